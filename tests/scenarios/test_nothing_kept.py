"""What is left of a request when it is over: nothing that only a look for cycles would free, however it ended.

A large body that waits for the garbage collector takes its memory many times over, and the collector takes a tenth of a
second to give it back, at a moment that nobody chose.
"""

import gc
import gzip
import io
import json
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ollama_gate
from support import faultproxy as faulty
from support.cases import front
from support.faultfront import WAYS, behind
from support.gate import running_gate
from support.http import ask
from support.waiting import until

PACKAGE = str(Path(ollama_gate.__file__).parent)
MODEL = "gemma3:4b"
IMAGE = "iVBORw0KGgo" * 30_000
TOO_LONG = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 86\r\n\r\n"
    b'{"error":"the input (9000 tokens) exceeds the model context length (8192 tokens)....."}'
)
LONG = "word " * 300_000


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}


def shown(data: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]


REQUESTS: dict[str, tuple[str, Any, int]] = {
    "a small one": ("/api/chat", chat("hi"), 200),
    "a stream": ("/v1/chat/completions", chat("hi", stream=True), 200),
    "a message": ("/v1/messages", chat("hi", max_tokens=5), 200),
    "an image": ("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "x", "images": [IMAGE]}]}, 200),
    "an image for OpenAI": ("/v1/chat/completions", chat(shown(IMAGE)), 200),
    "too long": ("/api/chat", chat(LONG), 400),
    "too long for OpenAI, a stream": ("/v1/chat/completions", chat(LONG, stream=True), 400),
    "too long for Anthropic": ("/v1/messages", chat(LONG, max_tokens=5), 400),
    "too much text": ("/api/chat", chat("word " * 2_200_000), 413),
    "no JSON": ("/api/chat", b"{" * 300_000, 400),
    "too many values": ("/api/chat", chat("x", format={"enum": list(range(310_000))}), 400),
    "no model of that name": ("/api/chat", {**chat("hi"), "model": "nobody"}, 404),
    "counted": ("/gate/count", chat(LONG), 200),
}


def _is_the_gates(file: str) -> bool:
    return file.startswith(PACKAGE) and not file.startswith(f"{PACKAGE}/rehearsal/")


@contextmanager
def cycles() -> Iterator[list[str]]:
    """What of the package's own is garbage at the end of the block, in words."""
    found: list[str] = []
    gc.freeze()  # what is there now, garbage or not, does not count and need not be looked through
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        for one in gc.garbage:
            code = getattr(one, "f_code", None) or getattr(one, "__code__", None)
            if isinstance(code, types.CodeType) and _is_the_gates(code.co_filename):
                found.append(f"{type(one).__name__} {code.co_qualname}")
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_a_request_leaves_no_cycles(*, packed: bool) -> None:
    headers = {"Content-Encoding": "gzip"} if packed else {}
    async with front() as line:
        for name, (path, body, status) in REQUESTS.items():
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            raw = gzip.compress(raw, 1) if packed else raw
            await ask(line.gate.address, "POST", path, raw, headers)  # it meets what is made once
            with cycles() as left:
                reply = await ask(line.gate.address, "POST", path, raw, headers)
                await until(lambda: not line.gate.turns)
            assert reply.status == status, (name, reply.body[:300])
            assert left == [], name


async def test_nor_does_one_that_ollama_does_not_answer() -> None:
    async with running_gate("http://127.0.0.1:9") as gate:
        for path in ("/api/chat", "/v1/chat/completions", "/v1/messages", "/api/tags"):
            for stream in (False, True):
                with cycles() as left:
                    reply = await ask(gate.address, "POST", path, chat("hi", stream=stream, max_tokens=5))
                    await until(lambda: not gate.turns)
                assert reply.status == 503
                assert left == [], path


@pytest.mark.slow
async def test_nor_does_one_whose_answer_breaks(written_log: io.StringIO) -> None:
    no_description = faulty.says(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}")
    async with behind(written_log) as line:
        for way in (WAYS["chat"], WAYS["openai"], WAYS["anthropic"]):
            await line.serves(way)
            for path, fault in (
                (way.native, faulty.reset(head=0)),
                (way.native, faulty.reset(body=100)),
                (way.native, faulty.says(TOO_LONG)),
                ("/api/show", no_description),
            ):
                for stream in (False, True):
                    if path == "/api/show":
                        line.gate.wiring.catalog._cards.clear()
                    line.proxy.arm(path, fault)
                    with cycles() as left:
                        reply = await line.ask(way, stream=stream)
                        await line.rid_of_it()
                    assert reply.status >= 400 or not reply.complete
                    assert left == [], (way.path, path, stream)
