"""What commands do where standard output does not take what they write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "ollama_gate")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is always full")


def run(*arguments: str, to: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with its output redirected by a shell, as people do it."""
    shell = ["sh", "-c", f'"$@" {to}', "sh", *PROGRAM, *arguments]
    around = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OLLAMA"))}
    around |= {"PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    return subprocess.run(shell, capture_output=True, check=False, text=True, env=around, encoding="utf-8")


@needs_full
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("config", "show", "--json"),
        ("config", "schema"),
        ("check", "--offline"),
        ("check", "--no-such-option", "--json"),
        ("audit", __file__, "--gate", "http://127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_a_full_disk_is_told_in_a_line(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, to=f"> {FULL}")
    assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")


@needs_full
def test_a_full_disk_is_told_where_python_does_not_buffer() -> None:
    done = run("config", "show", to=f"> {FULL}", PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")


@pytest.mark.parametrize("arguments", [("config", "show", "--json"), ("check", "--offline")], ids=" ".join)
def test_a_closed_output_is_an_error(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, to=">&-")
    assert (done.returncode, done.stderr) == (1, "standard output: Bad file descriptor\n")


def test_a_command_that_fails_before_it_writes_keeps_its_exit_code() -> None:
    done = run("config", "show", "--no-such-option", to=">&-")
    assert done.returncode == 2
    assert "standard output" not in done.stderr


def test_a_reader_that_has_left_is_told_nothing() -> None:
    assert run("config", "schema", to="| head -1").stderr == ""
    assert run("check", "--offline", to="| true").stderr == ""


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=" ".join,
)
def test_characters_that_the_output_does_not_have_are_question_marks(environment: dict[str, str]) -> None:
    done = run("check", "--offline", to="", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n         ? declare num_ctx and budget" in done.stdout


def test_text_that_no_encoding_has_breaks_nothing(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"odd-\xff.toml")
    file.touch()
    done = run("config", "show", "--config", str(file), to="")
    assert (done.returncode, done.stderr) == (0, "")
    assert "odd-?.toml" in done.stdout
