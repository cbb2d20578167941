"""Completion as shells ask for it, and the hook for pre-commit."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ollama_gate.cli import COMMANDS, main
from support.pages import ROOT


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_it_understands(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_OLLAMA_GATE_COMPLETE" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.slow
def test_commands_are_completed() -> None:
    environ = {
        **os.environ,
        "_OLLAMA_GATE_COMPLETE": "bash_complete",
        "COMP_WORDS": "ollama-gate co",
        "COMP_CWORD": "1",
    }
    program = "import sys; sys.argv = ['ollama-gate']; from ollama_gate.cli import main; main(prog_name='ollama-gate')"
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"plain,{name}" for name in COMMANDS if name.startswith("co")]


def test_an_unknown_shell_is_a_mistake() -> None:
    assert CliRunner().invoke(main, ["completion", "tcsh"]).exit_code == 2


def test_the_hook_of_pre_commit_fails_on_a_mistake_and_on_what_is_not_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    found = re.search(r"^  entry: ollama-gate (.+)$", hook, re.MULTILINE)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    file = Path("ollama-gate.toml")

    def committed(text: str) -> int:
        file.write_text(text)
        return CliRunner().invoke(main, found[1].split()).exit_code

    assert committed('[models."a:1"]\nnum_ctx = 8192\nbudget = 6000\n') == 0
    assert committed('[models."a:1"]\nnum_ctx = 8192\n') == 1
    assert committed("[queu]\n") == 2
    assert re.search(r"^  files: (.+)$", hook, re.MULTILINE)
