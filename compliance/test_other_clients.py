"""Clients beyond the official Python ones, each a program in an environment of its own that `scripts/clients` makes.

Each chats, streams, calls a tool, embeds, and sends a prompt that is over the budget; its own error type has to say
"context length".
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from served import Served

PROGRAMS = Path(__file__).parent / "programs"
ROOT = PROGRAMS.parents[1]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
NODE_MODULES = ROOT / ".cache" / "clients" / "node_modules"
QUESTION = 'Please call tool weather with {"city": "Oslo"}'
WORD = "ferry "


@dataclass(frozen=True)
class Client:
    """A program, and what its client makes of a refusal."""

    program: str
    error: str
    says: str = "maximum context length"
    arguments: tuple[str, ...] = ()
    embeds: bool = True

    def __str__(self) -> str:
        return "-".join((self.program, *self.arguments))

    def run(self, url: str) -> dict[str, Any]:
        """What the program says came of each thing."""
        asked = [url, QUESTION, WORD, *self.arguments]
        source = PROGRAMS / self.program
        environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        environ.pop("PYTHONPATH", None)
        if source.suffix == ".py":
            if not any(PYTHON.parents[1].glob("installed-*")):
                pytest.skip("scripts/clients has not made .venv-clients, or not to the end")
            environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONWARNINGS": "ignore"}
            done = _run([str(PYTHON), str(source), *asked], env=environ)
        else:
            node = shutil.which("node")
            if node is None or not (NODE_MODULES.parent / "fetched").exists():
                pytest.skip("there is no node, or scripts/clients has not fetched its packages")
            # From standard input modules are looked for beside the working directory.
            command = [node, "--input-type=module", "-", *asked]
            done = _run(command, env=environ, cwd=NODE_MODULES.parent, input=source.read_text("utf-8"))
        told: dict[str, Any] = json.loads(done.splitlines()[-1])
        return told


def _run(command: list[str], **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, **more)
    assert done.returncode == 0, done.stderr[-3000:]
    printed: str = done.stdout
    return printed


CLIENTS = (
    Client("langchain.py", "ResponseError"),
    Client("llamaindex.py", "ResponseError"),
    Client("with_litellm.py", "ContextWindowExceededError", arguments=("openai",)),
    Client("with_litellm.py", "ContextWindowExceededError", arguments=("anthropic",), embeds=False),
    Client("with_litellm.py", "BadRequestError", arguments=("ollama_chat",)),
    Client("ollama.mjs", "ResponseError"),
    Client("openai.mjs", "BadRequestError", says="context_length_exceeded"),
    Client("anthropic.mjs", "BadRequestError", embeds=False),
)


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=str)
@pytest.mark.usefixtures("rehearsed")
def test_everything_works_and_a_refusal_is_its_own_error(client: Client, served: Served) -> None:
    told = client.run(served.url)
    assert told["chat"]
    assert told["stream"]
    assert told["tools"] == ["weather"]
    if client.embeds:
        assert told["embed"] > 0
    error, text = told["over"]
    assert error == client.error
    assert client.says in text


@pytest.mark.slow
def test_llama_index_is_told_the_window_in_force(served: Served) -> None:
    assert CLIENTS[1].run(served.url)["window"] == 8192
