import asyncio
import json
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from ollama_gate.archive.schema import message
from ollama_gate.archive.store import Store
from ollama_gate.cli import main
from ollama_gate.cli.output import visible
from ollama_gate.compaction.originals import original_of
from ollama_gate.config.archive import SQLITE
from support.archives import Clock, opened, store_in, talk

T = TypeVar("T")
CALL = {"function": {"name": "read_file", "arguments": {"path": "/srv/\x1b[31mred"}}}
ANSWER = original_of({"role": "assistant", "content": "I \x1b[2Jread\x07 it.", "thinking": "hm", "tool_calls": [CALL]})


def into(file: Path, work: Callable[[Store], Awaitable[T]], *, clock: Clock | None = None) -> T:
    async def run() -> T:
        async with opened(f"{SQLITE}{file}") as database:
            return await work(store_in(database, clock))

    return asyncio.run(run())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An archive with two conversations, one of them long ago."""
    path, clock = tmp_path / "archive.db", Clock()

    async def fill(store: Store) -> None:
        clock.now = 1_600_000_000.0
        await store.keep("old", "m", talk(5))
        clock.now += 3600
        await store.keep("new", "m", [*talk(3), ANSWER])

    into(path, fill, clock=clock)
    return path


def run(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - as CliRunner calls it
    return CliRunner().invoke(main, ["archive", *arguments], input=input)


def test_a_message_is_shown_whole_and_harmless(file: Path) -> None:
    done = run("show", ANSWER.hash[:12], "--url", str(file))
    assert done.exit_code == 0
    assert ANSWER.hash in done.stdout
    assert "assistant, first kept 2020-09-13T13:26:40Z, in new" in done.stdout
    assert "I ␛[2Jread␇ it." in done.stdout
    assert "read_file" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_message_is_shown_to_programs(file: Path) -> None:
    done = run("show", ANSWER.hash.upper(), "--json", "--url", str(file))
    told = json.loads(done.stdout)
    assert (told["hash"], told["conversations"]) == (ANSWER.hash, ["new"])
    assert told["message"] == json.loads(ANSWER.body)


def test_a_search_says_what_it_found(file: Path) -> None:
    done = run("search", "message number", "word1", "--url", str(file))
    assert done.exit_code == 0
    assert "message number 1" in done.stdout
    told = json.loads(run("search", "NUMBER", "--json", "--role", "assistant", "--url", str(file)).stdout)
    assert (len(told["matches"]), told["searched"], told["complete"]) == (2, 3, True)
    assert len(json.loads(run("search", "number", "--json", "--limit", "2", "--url", str(file)).stdout)["matches"]) == 2
    assert "there are more" in run("search", "number", "--limit", "2", "--url", str(file)).stdout
    assert (
        len(
            json.loads(run("search", "number", "--json", "--conversation", "new", "--url", str(file)).stdout)["matches"]
        )
        == 3
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "0" * 12), 1, "no message with the hash 000000000000"),
        (("show", "xyz"), 2, "12 to 64 hex digits"),
        (("search", "nowhere"), 1, "nothing was found in 6 messages"),
        (("search", '"'), 2, "what to look for"),
        (("search",), 2, "Missing argument"),
        (("export", "--conversation", "nobody"), 1, "nothing to export"),
        (("export", "--since", "soon"), 2, "'--since': 'soon' is not a time"),
        (("export", "-o", "/nowhere/at/all.ndjson"), 2, "No such file or directory"),
        (("purge", "--older-than", "x"), 2, "--older-than"),
        (("purge", "--larger-than", "x"), 2, "--larger-than"),
    ],
)
def test_each_way_to_fail_has_its_exit_code(file: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = run(*arguments, *(() if arguments == ("search",) else ("--url", str(file))))
    assert done.exit_code == code, done.output
    assert says in done.stderr
    assert done.stdout == ""


def test_messages_are_exported_one_a_line(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    assert run("export", "-o", str(out), "--url", str(file)).exit_code == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert {row["hash"] for row in rows} == {original.hash for original in (*talk(5), ANSWER)}
    printed = run("export", "--conversation", "new", "--url", str(file)).stdout
    assert [json.loads(line)["message"] for line in printed.splitlines()] == [
        json.loads(original.body) for original in (*talk(3), ANSWER)
    ]
    assert run("export", "--since", "1h", "--url", str(file)).exit_code == 1
    assert not list(tmp_path.glob(".*"))


def test_an_export_that_fails_leaves_the_file_that_was_there(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    out.write_text("before")
    assert run("export", "-o", str(out), "--conversation", "nobody", "--url", str(file)).exit_code == 1
    assert out.read_text() == "before"

    async def damage(store: Store) -> None:
        async with store.database.writing() as connection:
            await connection.execute(update(message).values(data=b"nonsense"))

    into(file, damage)
    out.write_text("before")
    assert run("export", "-o", str(out), "--url", str(file)).exit_code == 2
    assert out.read_text() == "before"


def test_what_was_purged_is_gone(file: Path) -> None:
    gone = json.loads(run("purge", "--conversation", "old", "--json", "--url", str(file)).stdout)
    assert (gone["conversations"], gone["messages"]) == (1, 2)
    assert run("show", talk(5)[4].hash, "--url", str(file)).exit_code == 1
    assert run("show", talk(5)[0].hash, "--url", str(file)).exit_code == 0
    assert run("purge", "--url", str(file)).stdout.startswith("1 conversation and 4 messages taken away")
    assert json.loads(run("stats", "--json", "--url", str(file)).stdout)["messages"] == 0


def test_everything_is_purged_only_when_it_is_meant(file: Path) -> None:
    assert run("purge", "--all", "--url", str(file), input="n\n").exit_code == 1
    assert json.loads(run("stats", "--json", "--url", str(file)).stdout)["messages"] == 6
    assert run("purge", "--all", "--yes", "--url", str(file)).exit_code == 0
    assert json.loads(run("stats", "--json", "--url", str(file)).stdout)["messages"] == 0


@pytest.mark.parametrize("more", [["--older-than", "7d"], ["--larger-than", "1GiB"], ["--conversation", "old"]])
def test_everything_and_a_part_of_it_contradict_each_other(file: Path, more: list[str]) -> None:
    assert run("purge", "--all", "--yes", *more, "--url", str(file)).exit_code == 2
    assert json.loads(run("stats", "--json", "--url", str(file)).stdout)["messages"] == 6


def test_the_numbers_are_told(file: Path) -> None:
    told = json.loads(run("stats", "--json", "--url", str(file)).stdout)
    assert (told["messages"], told["conversations"], told["checkpoints"]) == (6, 2, 0)
    assert (told["archive"], told["file_bytes"]) == (str(file), file.stat().st_size)
    assert (told["oldest"], told["newest"]) == ("2020-09-13T12:26:40Z", "2020-09-13T13:26:40Z")
    assert str(file) in run("stats", "--url", str(file)).stdout


def test_the_archive_of_the_configuration_is_the_one_that_is_meant(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "ollama-gate.toml"
    config.write_text('[archive]\nenabled = true\nurl = "archive.db"\nkeep_for = 0\nmax_size = 0\n')
    assert run("show", ANSWER.hash, "--config", str(config)).exit_code == 0
    assert run("purge", "--config", str(config)).stdout.startswith("0 conversations")


def test_an_archive_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    done = run("stats", "--url", str(missing))
    assert (done.exit_code, missing.exists()) == (2, False)
    assert "there is no archive at" in done.stderr
    assert run("migrate", "--url", str(missing)).exit_code == 0
    assert run("migrate", "--url", str(missing)).stdout.endswith("nothing to do\n")
    assert run("stats", "--url", str(missing)).exit_code == 0


@pytest.mark.parametrize("name", ["gate", "damaged"])
def test_a_database_that_does_not_answer_is_no_mistake_of_the_configuration(unused_tcp_port: int, name: str) -> None:
    done = run("stats", "--url", f"postgresql://gate:s3cret@127.0.0.1:{unused_tcp_port}/{name}")
    assert done.exit_code == 3
    assert "s3cret" not in done.output


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    file.write_text("not a database\n" * 200)
    done = run("stats", "--url", str(file))
    assert done.exit_code == 3
    assert "not a database" in done.stderr


def test_nothing_of_a_database_is_loaded_for_the_help() -> None:
    program = (
        "import sys\nfrom ollama_gate.cli import main\nmain(['archive', '--help'], standalone_mode=False)\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'aiosqlite', 'asyncpg', 'aiohttp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_terminal_shows_control_characters_and_does_not_obey_them() -> None:
    assert visible("a\tb\n\x00\x7f\x9b\u202e") == "a\tb\n␀␡\\u009b\\u202e"
