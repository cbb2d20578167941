"""A real Ollama for the opt-in suite in `tests/real`, and what it is asked directly, past any gate.

The suite runs where OLLAMA_GATE_REAL_UPSTREAM names one. It unloads models there, so it wants that Ollama for itself.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from ollama_gate.app import Gate
from support.gate import running_gate
from support.http import Reply, ask

UPSTREAM: Final = os.environ.get("OLLAMA_GATE_REAL_UPSTREAM", "")
THREADS: Final = {"num_thread": int(told)} if (told := os.environ.get("OLLAMA_GATE_REAL_THREADS")) else {}
"""How many threads a model gets, as an option. One is much faster than two on a machine that does other things too."""
SUITE: Final = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(not UPSTREAM, reason="needs a real Ollama to itself: set OLLAMA_GATE_REAL_UPSTREAM to its URL"),
    pytest.mark.xdist_group("real"),  # one Ollama, one test at a time
    pytest.mark.timeout(1200),
]
"""The marks of every module of the suite."""


async def direct(method: str, path: str, body: Any = None) -> Reply:
    """Ask Ollama itself."""
    where = urlsplit(UPSTREAM)
    host, port = where.hostname or "127.0.0.1", where.port or 80
    return await ask((host, port), method, path, body, {"Host": where.netloc})


async def installed() -> Mapping[str, str]:
    """Digest of each model that this Ollama has, by its name with tag."""
    tags = await direct("GET", "/api/tags")
    return {row["name"]: row["digest"] for row in tags.json["models"]}


async def needed(name: str) -> str:
    """The digest of a model; the test is skipped where Ollama does not have it."""
    digest = (await installed()).get(name if ":" in name else f"{name}:latest")
    if digest is None:
        pytest.skip(f"this Ollama has no model {name}")
    return digest


async def unload_all() -> None:
    """Leave nothing in memory."""
    while rows := (await direct("GET", "/api/ps")).json["models"]:
        for row in rows:
            await direct("POST", "/api/generate", {"model": row["name"], "keep_alive": 0})
        await asyncio.sleep(0.05)  # Ollama tells of it in /api/ps only


@asynccontextmanager
async def gate_before(model: str, num_ctx: int, *, fresh: bool = False, **sections: Any) -> AsyncIterator[Gate]:
    """A gate in front of the real Ollama; one model is loaded through it, and prompts may fill the window.

    Names over one GGUF share a runner, so that it may be there already. With `fresh` it is loaded anew.
    """
    if fresh:
        await unload_all()
    defaults = {"num_ctx": num_ctx, "budget": num_ctx - 1, **THREADS, **sections.pop("defaults", {})}
    async with running_gate(UPSTREAM, defaults=defaults, **sections) as gate:
        is_embedder = "embedding" in (await direct("POST", "/api/show", {"model": model})).json["capabilities"]
        empty = ("/api/embed", "input") if is_embedder else ("/api/generate", "prompt")
        loaded = await ask(gate.address, "POST", empty[0], {"model": model, empty[1]: "", "stream": False})
        assert loaded.status == 200, loaded.body
        yield gate
