import subprocess
import sys
from pathlib import Path

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
