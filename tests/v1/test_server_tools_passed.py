"""Tools that Ollama runs by itself, where the operator passes them: the first prompt is judged, no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ollama_gate.app import Gate
from support.gate import running_gate
from support.http import ask
from support.scripted import LAST_CHUNK, Got, ScriptedOllama, chunk, model

MODEL = "llama3.2"
STREAM = (
    'event: response.created\ndata: {"n":1}\n\n',
    'event: response.web_search_call.in_progress\ndata: {"n":2}\n\n',
    'event: response.completed\ndata: {"n":3}\n\n',
)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": MODEL, "input": "Hello.", "tools": [{"type": "web_search"}], "stream": True, "x": [1]},
    "/v1/messages": {
        "model": MODEL,
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "Hello."}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "stream": True,
    },
}


async def script(_: Got, writer: asyncio.StreamWriter) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head + b"".join(map(chunk, STREAM)) + LAST_CHUNK)


@asynccontextmanager
async def passing(parameters: str = "", **sections: Any) -> AsyncIterator[tuple[ScriptedOllama, Gate]]:
    models = {f"{MODEL}:latest": model(MODEL, capabilities=["completion", "tools"], parameters=parameters)}
    async with (
        ScriptedOllama(script, models) as ollama,
        running_gate(ollama.url, dialects={"server_tools": "pass"}, **sections) as gate,
    ):
        yield ollama, gate


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_with_one_goes_to_ollamas_own_layer_as_it_came(path: str) -> None:
    async with passing() as (ollama, gate):
        reply = await ask(gate.address, "POST", path, BODIES[path])
        plain = {name: value for name, value in BODIES[path].items() if name != "tools"}
        await ask(gate.address, "POST", path, plain)
    assert (reply.status, reply.body.decode(), reply.complete) == (200, "".join(STREAM), True)
    assert reply.gate("note") == "server-side tools are run by Ollama, unguarded"
    assert reply.gate("verdict") == "admit"
    assert [got.target for got in ollama.got] == [path, "/api/chat"]
    assert ollama.got[0].json == BODIES[path]


@pytest.mark.parametrize(
    ("parameters", "limit"), [("", 4095), ("num_ctx 6000", 5999), ("num_ctx 99999", 32_767), ("num_ctx 512", 511)]
)
async def test_its_first_prompt_has_to_fit_the_window_that_this_layer_has(parameters: str, limit: int) -> None:
    body = {**BODIES["/v1/responses"], "input": "word " * 20_000}
    async with passing(parameters, defaults={"num_ctx": 8192, "budget": "100%"}) as (ollama, gate):
        reply = await ask(gate.address, "POST", "/v1/responses", body)
    assert not ollama.got
    assert (reply.status, reply.json["error"]["code"]) == (400, "context_length_exceeded")
    assert f"> {limit} maximum" in reply.json["error"]["message"]
