"""The commands of the pages' `sh` blocks are run, in front of the rehearsal and in a home of their own."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import running_gate
from support.http import ask
from support.pages import PAGES, ROOT, name_of

GATE: Final = "127.0.0.1:11435"
NOT_RUN: Final = {
    "./scripts/serve": "runs until it is stopped: tests/scripts/test_serve.py",
    "./scripts/test": "it is what runs this",
    "./scripts/check": "it runs a part of the same",
    ".venv/bin/python -m pytest tests/real": "needs a real Ollama",
    "export OLLAMA_GATE_REAL_UPSTREAM": "needs a real Ollama",
    "OLLAMA_GATE_REAL_CHAT=": "needs a real Ollama",
    "ollama run": "needs the ollama command",
    "ollama ps": "needs the ollama command",
    "ANTHROPIC_BASE_URL=http://127.0.0.1:11435 ANTHROPIC_AUTH_TOKEN=any claude": "needs Claude Code",
    "aider": "needs aider",
    "journalctl": "needs systemd",
    "sudo systemctl": "needs root and systemd",
    "sudo install": "needs root",
    "sudo ln": "needs root",
    "sudo python3 -m venv /opt": "needs root",
    "sudo /opt/ollama-gate/bin/pip": "needs root",
    "sudo rm": "needs root",
    "python3.11 -m venv /opt": "needs root: scripts/release does the same elsewhere",
    "/opt/ollama-gate/bin/pip": "needs root: scripts/release does the same elsewhere",
    "python3 -m pip wheel": "tests/deploy/test_wheel.py builds it",
    'eval "$(ollama-gate completion zsh)"': "needs zsh",
    "ollama-gate keys add NAME [": "shows what there is; the options are checked by name",
    "ollama-gate keys list [": "the same",
    "ollama-gate keys revoke NAME|": "the same",
    "ollama-gate keys rotate NAME|": "the same",
    "ollama-gate keys import FILE": "the same: tests/cli/test_shared_keys.py runs it",
}
"""Beginnings of commands that are not run, and why."""
CODES: Final = {
    "ollama-gate audit": 1,  # it has advice
    "ollama-gate check --strict": 1,  # budgets are not declared
    "ollama-gate archive show": 1,  # nothing was kept
    "ollama-gate archive search": 1,
    "ollama-gate archive export": 1,
}
"""Exit codes that are not 0."""
MEANT: Final = {"MODEL": "rehearsal-go", "COMMAND": "plan", "NAME": "conversation"}
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[list[str]]:
    """The commands of each block, without comments; what is broken into lines is one."""
    for body in _BLOCK.findall(page.read_text("utf-8")):
        text = re.sub(r"\\\n\s*|\n +", " ", body)
        yield [line for one in text.splitlines() if (line := re.sub(r"(^|\s+)#\s.*$", "", one).strip())]


def all_of(page: Path) -> list[str]:
    return [command for block in blocks(page) for command in block]


WITH_COMMANDS: Final = [page for page in PAGES if any(blocks(page))]


def run(command: str) -> bool:
    return not any(command.startswith(beginning) for beginning in NOT_RUN)


def prints(command: str) -> bool:
    return run(command) and not command.startswith("export ")


def test_what_is_not_run_is_shown_somewhere() -> None:
    shown = [command for page in WITH_COMMANDS for command in all_of(page)]
    for beginning in (*NOT_RUN, *CODES):
        assert any(command.startswith(beginning) for command in shown), beginning
    assert sum(map(run, shown)) > 25


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if any(map(prints, all_of(page)))], ids=name_of)
async def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    (tmp_path / ".config/fish/completions").mkdir(parents=True)
    prompt = "".join(f"# Part {number}\n\n{'Write down what came in. ' * 120}\n\n" for number in range(6))
    (tmp_path / "PROMPT.md").write_text(prompt)
    archive = {"enabled": True, "url": f"sqlite:///{tmp_path / 'archive.db'}"}
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, archive=archive) as gate:
        address = ":".join(map(str, gate.address))
        await ask(gate.address, "GET", "/gate/archive/search?q=x")  # it makes its tables
        home = {
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "OLLAMA_GATE_SERVER_LISTEN": address,
            "OLLAMA_GATE_ACCESS_KEYS": str(tmp_path / "keys.json"),
            "OLLAMA_GATE_ARCHIVE_ENABLED": "true",
            "OLLAMA_GATE_ARCHIVE_URL": str(archive["url"]),
        }
        for block in blocks(page):
            environ = dict(home)
            for command in filter(run, block):
                if command.startswith("export "):
                    environ |= dict(pair.split("=", 1) for pair in command.split()[1:])
                    continue
                text = command.replace(GATE, address).removeprefix("sudo ").replace("/opt/ollama-gate/bin/", "")
                for word, meant in MEANT.items():
                    text = re.sub(rf"\b{word}\b", meant, text)
                process = await asyncio.create_subprocess_exec(
                    *("bash", "-c", text),
                    cwd=tmp_path,
                    env=environ,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
                printed = (await process.communicate())[0].decode()
                code = next((code for beginning, code in CODES.items() if command.startswith(beginning)), 0)
                assert process.returncode == code, f"{text}\n{printed}"


def test_nothing_of_the_checkout_is_missing() -> None:
    """What commands name in the checkout is there."""
    for page in WITH_COMMANDS:
        for word in re.findall(r"(?<![\w/])(?:\./)?((?:deploy|scripts)/[\w./-]+)", "\n".join(all_of(page))):
            assert (ROOT / word).exists(), word
