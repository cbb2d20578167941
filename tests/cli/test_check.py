import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.cli import main
from support.canned import Canned, canned
from support.shows import attention, show, size

SHOW = {
    "modelfile": "FROM /models/blobs/sha256-1\n",
    "template": "{% for m in messages %}{{ m }}{% endfor %}",
    **show("qwen3", **size(36, 4096, 12288, 151936, trained=32768), **attention(32, 8, 128)),
}


@pytest.fixture
def ollama() -> Iterator[Canned]:
    answers: dict[str, tuple[int, Any]] = {
        "/api/version": (200, {"version": "0.33.1"}),
        "/api/tags": (200, {"models": [{"name": "qwen3:8b", "digest": "d"}, {"name": "x:cloud"}, {"name": "gone:1"}]}),
        "/api/ps": (200, {"models": [{"name": "qwen3:8b", "context_length": 4096}]}),
        "/api/show qwen3:8b": (200, SHOW),
    }
    with canned(answers) as server:
        yield server


def check(tmp_path: Path, url: str, *arguments: str, text: str = "") -> Result:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(f"[upstream]\nurl = '{url}'\n{text}")
    return CliRunner().invoke(main, ["check", "--config", str(file), *arguments])


def test_ollama_is_asked_and_findings_come_with_their_fix(tmp_path: Path, ollama: Canned) -> None:
    done = check(tmp_path, ollama.url, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (told["ok"], told["version"], told["upstream"]) == (True, "0.33.1", ollama.url)
    assert told["file"] == str(tmp_path / "ollama-gate.toml")
    assert [(finding["level"], finding["about"]) for finding in told["findings"]] == [("warning", "qwen3:8b")] * 2
    assert all(finding["fix"] for finding in told["findings"])
    assert [path for path, _ in ollama.asked] == ["/api/version", "/api/tags", "/api/show", "/api/show", "/api/ps"]


def test_strict_fails_on_a_warning(tmp_path: Path, ollama: Canned) -> None:
    assert check(tmp_path, ollama.url, "--strict").exit_code == 1
    declared = '[models."qwen3:8b"]\nnum_ctx = 4096\nbudget = 3000\n'
    done = check(tmp_path, ollama.url, "--strict", text=declared)
    assert done.exit_code == 0
    assert "nothing to put right" in done.stdout
    assert "version 0.33.1, 1 local models" in done.stdout


def test_people_get_a_table(tmp_path: Path, ollama: Canned) -> None:
    done = check(tmp_path, ollama.url)
    assert done.stdout.count("warning") == 2
    assert "qwen3:8b" in done.stdout


def test_a_silent_ollama_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        done = check(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}", "--json")
    assert done.exit_code == 3
    told = json.loads(done.stdout)
    assert told["version"] is None
    assert "does not answer" in told["findings"][0]["what"]


@pytest.mark.parametrize(
    "answers",
    [
        {"/api/version": (200, b"<html>")},
        {"/api/version": (500, {"error": "x"})},
        {"/api/version": (200, {"version": 3})},
        {"/api/version": (200, [])},
        {"/api/version": (200, {"version": "0.33.1"})},
        {"/api/version": (200, b"[" * 100_000)},
    ],
)
def test_what_answers_but_is_no_ollama_is_told(tmp_path: Path, answers: dict[str, tuple[int, Any]]) -> None:
    with canned(answers) as server:
        done = check(tmp_path, server.url)
    assert done.exit_code == 3
    assert "Traceback" not in done.output


def test_odd_rows_of_an_ollama_are_passed_over(tmp_path: Path, ollama: Canned) -> None:
    rows: list[Any] = [None, 3, {}, {"name": 3}, {"name": "../x"}, {"name": "qwen3:8b", "digest": None}]
    ollama.answers["/api/tags"] = (200, {"models": rows})
    ollama.answers["/api/ps"] = (200, {"models": [None, {"name": ""}, {"name": "qwen3:8b", "context_length": "x"}]})
    done = check(tmp_path, ollama.url, "--json")
    assert [finding["about"] for finding in json.loads(done.stdout)["findings"]] == ["Ollama", "qwen3:8b"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, {"error": "busy"}), "/api/ps answers 500"),
        ((200, b"<html>"), "/api/ps answers 200 with something that is not JSON"),
        ((200, {"models": None}), "no list of models"),
        ((200, {"models": [{"name": "qwen3:8b", "context_length": 4096}, 3]}), "no list of models"),
        ((200, []), "no list of models"),
    ],
)
def test_an_ollama_that_does_not_say_what_is_loaded_is_an_error(
    tmp_path: Path, ollama: Canned, answer: tuple[int, Any], why: str
) -> None:
    ollama.answers["/api/ps"] = answer
    done = check(tmp_path, ollama.url, "--json")
    assert done.exit_code == 1
    error = json.loads(done.stdout)["findings"][0]
    assert (error["level"], error["about"]) == ("error", "Ollama")
    assert why in error["what"]


def test_offline_nobody_is_asked(tmp_path: Path, ollama: Canned) -> None:
    done = check(tmp_path, ollama.url, "--offline", "--strict", text="[models.a]\nnum_ctx = 512\n")
    assert done.exit_code == 1
    assert ollama.asked == []


def test_a_bad_file_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = check(tmp_path, "x", text="[queu]\n")
    assert done.exit_code == 2
    assert "did you mean [queue]?" in done.stderr


def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, ollama: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert check(tmp_path, ollama.url).exit_code == 0


ARCHIVE = '[models."qwen3:8b"]\nnum_ctx = 4096\nbudget = 3000\ncompaction = true\n[archive]\nenabled = true\n'


def test_an_archive_that_a_gate_could_use_is_nothing_to_put_right(tmp_path: Path, ollama: Canned) -> None:
    text = f'{ARCHIVE}url = "archive.db"\n'
    assert check(tmp_path, ollama.url, "--strict", text=text).exit_code == 0
    assert CliRunner().invoke(main, ["archive", "migrate", "--url", str(tmp_path / "archive.db")]).exit_code == 0
    assert check(tmp_path, ollama.url, "--strict", text=text).exit_code == 0


def test_an_archive_that_it_could_not_is_an_error(tmp_path: Path, ollama: Canned) -> None:
    (tmp_path / "archive.db").write_text("not a database\n" * 500)
    done = check(tmp_path, ollama.url, "--json", text=f'{ARCHIVE}url = "archive.db"\n')
    assert done.exit_code == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["level"], finding["about"]) == ("error", "archive")
    assert "not a database" in finding["what"]
    assert check(tmp_path, ollama.url, "--offline", text=f'{ARCHIVE}url = "archive.db"\n').exit_code == 0
    nobody = f'{ARCHIVE}url = "postgresql://gate:s3cret@127.0.0.1:1/gate"\n'
    done = check(tmp_path, ollama.url, text=nobody)
    assert done.exit_code == 1
    assert "s3cret" not in done.output


def test_tables_of_a_newer_version_are_an_error(tmp_path: Path, ollama: Canned) -> None:
    file = tmp_path / "archive.db"
    assert CliRunner().invoke(main, ["archive", "migrate", "--url", str(file)]).exit_code == 0
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE gate_revision SET version_num = '9999'")
    for migrates in ("true", "false"):
        done = check(tmp_path, ollama.url, text=f'{ARCHIVE}url = "archive.db"\nmigrate = {migrates}\n')
        assert done.exit_code == 1
        assert "newer version of ollama-gate" in " ".join(done.stdout.split())
