import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ollama_gate import __version__
from ollama_gate.cli import COMMANDS, main


def test_the_version_is_told_without_loading_the_gate() -> None:
    program = (
        "import sys\nfrom ollama_gate.cli import main\nmain(['--version'], standalone_mode=False)\n"
        "print([name for name in ('aiohttp', 'pydantic', 'tokenizers', 'rich', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"ollama-gate {__version__}", "[]"]


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "ollama_gate", "--help"], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    if name == "rehearse":
        return  # its help is that of the program it starts
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0
    assert f"Usage: main {name}" in done.output


def test_an_unknown_command_is_a_mistake_of_the_command_line() -> None:
    near, far = CliRunner().invoke(main, ["sevre"]), CliRunner().invoke(main, ["xyz"])
    assert (near.exit_code, far.exit_code) == (2, 2)
    assert "Did you mean 'serve'?" in near.output
    assert "Did you mean" not in far.output


def test_a_configuration_that_cannot_be_used_is_told_in_full(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[queue]\ndepht = 1\ndeadline = 'soon'\n")
    done = CliRunner().invoke(main, ["config", "show", "--config", str(file)])
    assert done.exit_code == 2
    assert f"{file}: queue.depht: unknown key: did you mean `depth`?\n" in done.stderr
    assert f"{file}: queue.deadline: 'soon' is not a time" in done.stderr
    assert done.stdout == ""


def takers_of_json(group: click.Group, *before: str) -> Iterator[tuple[str, ...]]:
    """Each command that takes --json, as it is called."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from takers_of_json(command, *before, name)
        elif command is not None and any("--json" in option.opts for option in command.params):
            yield (*before, name)


JSON_TAKERS = sorted(takers_of_json(main))


def told_as_json(*arguments: str, code: int, word: str, asked: str = "") -> str:
    """The message of an error that a program can read, with its word and exit code."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert (done.exit_code, done.stderr) == (code, asked)
    told = json.loads(done.stdout)["error"]
    assert told == {"code": word, "message": told["message"], "exit_code": code}
    return str(told["message"])


def test_there_are_commands_that_take_json() -> None:
    assert {("plan",), ("models",), ("count",), ("keys", "list"), ("archive", "purge")} <= set(JSON_TAKERS)


@pytest.mark.parametrize("command", JSON_TAKERS, ids=" ".join)
def test_a_mistake_of_the_command_line_is_json_where_json_was_asked_for(command: tuple[str, ...]) -> None:
    assert "--no-such-thing" in told_as_json(*command, "--no-such-thing", code=2, word="usage")


@pytest.mark.parametrize("command", [("plan",), ("models",), ("count",), ("config", "show"), ("check",)], ids=" ".join)
def test_a_configuration_that_cannot_be_used_is_json_too(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[queue]\ndepht = 1\n")
    assert "did you mean `depth`?" in told_as_json(*command, "--config", str(file), code=2, word="unusable")


@pytest.mark.parametrize("command", ["plan", "models", "count", "top"])
def test_nobody_who_answers_is_json_too(tmp_path: Path, command: str) -> None:
    file = tmp_path / "some.toml"
    file.write_text("[upstream]\nurl = 'http://127.0.0.1:1'\n")
    given = {"count": ["-m", "x", str(file)]}.get(command, [])
    where = ["--config", str(file), "--gate", "http://127.0.0.1:1"]
    assert "does not answer" in told_as_json(command, *given, *where, code=3, word="no_answer")


def test_a_question_that_nobody_answers_is_json_too() -> None:
    question = "Take every message away for good? [y/N]: "
    told = told_as_json("archive", "purge", "--all", code=1, word="failed", asked=question)
    assert told == "a question was not answered with yes"
