"""The gate in front of the rehearsal, or of the real Ollama at OLLAMA_GATE_REAL_UPSTREAM; clients run in threads.

Against a real Ollama the models are those that OLLAMA_GATE_REAL_CHAT, _TOOLS, _THINKING and _EMBED name.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import openai
import pytest
from served import Served

from ollama_gate.observe import log
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import running_gate
from support.real import THREADS

REAL = os.environ.get("OLLAMA_GATE_REAL_UPSTREAM")
SECTIONS = {"upstream": {"num_parallel": 4}}
REAL_SECTIONS = {"defaults": {"num_ctx": 512, **THREADS}}
"""A small model that was not told to stop goes on to the end of its window, so it gets a small one."""
_REHEARSED = {
    "chat": "rehearsal",
    "tools": "rehearsal-tools",
    "thinking": "rehearsal-thinking",
    "embed": "rehearsal-embed",
}


def _model(use: str) -> str:
    """The model for one use: the rehearsal's, or the one that OLLAMA_GATE_REAL_<USE> names."""
    return os.environ[f"OLLAMA_GATE_REAL_{use.upper()}"] if REAL else _REHEARSED[use]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real model answers in its own time, and may have to be loaded first."""
    for item in items if REAL else ():
        item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """One gate for the whole run, on an event loop of its own thread."""
    started: list[Served] = []
    ready, done = threading.Event(), threading.Event()

    log.configure("error")

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            upstream = REAL or (await stack.enter_async_context(Rehearsal(Settings()))).url
            gate = await stack.enter_async_context(running_gate(upstream, **(REAL_SECTIONS if REAL else SECTIONS)))
            host, port = gate.address
            models = {name: _model(name) for name in ("chat", "tools", "thinking", "embed")}
            started.append(Served(url=f"http://{host}:{port}", upstream=upstream, real=bool(REAL), **models))
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="gate")
    thread.start()
    assert ready.wait(30)
    yield started[0]
    done.set()
    thread.join(30)


@pytest.fixture
def openai_client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        yield client


@pytest.fixture
async def openai_async(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        yield client


@pytest.fixture
def rehearsed(served: Served) -> None:
    """For tests whose model must do as it is told, or break on demand."""
    if served.real:
        pytest.skip("a real model neither obeys to the letter nor dies on demand")
