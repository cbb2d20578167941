"""What the pages show in a console is what comes out: each command is run, in front of the rehearsal."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import running_gate
from support.http import ask
from support.pages import PAGES, ROOT, name_of, shown

WITH_COMMANDS = [page for page in PAGES if any(shown(page))]
GATE, OLLAMA = "127.0.0.1:11435", "127.0.0.1:11434"
"""Where the pages say that these two are."""


def test_the_readme_shows_commands() -> None:
    assert ROOT / "README.md" in WITH_COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
async def test_commands_print_what_the_page_shows(page: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the pages use curl, which is not installed here")
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        address = ":".join(map(str, gate.address))
        # A gate that has been in use: the model is loaded, its counts were compared with Ollama's.
        hello = {"model": "rehearsal-go", "stream": False, "messages": [{"role": "user", "content": "hi"}]}
        assert (await ask(gate.address, "POST", "/api/chat", hello)).status == 200
        for step in shown(page):
            process = await asyncio.create_subprocess_shell(
                step.command.replace(GATE, address),
                cwd=ROOT,
                env=os.environ
                | {
                    "OLLAMA_HOST": address,
                    "OLLAMA_GATE_SERVER_LISTEN": address,
                    "OLLAMA_GATE_UPSTREAM_URL": ollama.url,
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                },
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            printed = (await process.communicate())[0].decode()
            printed = printed.replace(ollama.url, f"http://{OLLAMA}").replace(address, GATE)
            assert (process.returncode, _shape(printed)) == (0, _shape(step.output)), printed


def _shape(output: str) -> str:
    """An output without what may differ from run to run: ids, numbers, and where lines are broken."""
    output = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]+\b", "ID", output)
    return re.sub(r"\d+(\.\d+)?", "N", " ".join(output.split()))
