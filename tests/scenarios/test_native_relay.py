"""The native lane, from the client's first byte to its last: what Ollama gets, and what the client gets back."""

import asyncio
import json
from typing import Any

import pytest

from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import metric, running_gate
from support.http import Client, ask
from support.recorded import recording
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, Script, ScriptedOllama, chunk, whole

CHAT = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}]}
LINES = [
    '{"model":"llama3.2","message":{"role":"assistant","content":"He"},"done":false}\n',
    '{"model":"llama3.2","message":{"role":"assistant","content":"llo"},"done":false}\n',
    (
        '{"model":"llama3.2","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
        '"prompt_eval_count":7,"eval_count":2}\n'
    ),
]


async def test_a_stream_goes_through_chunk_by_chunk_and_the_forced_fields_go_up() -> None:
    step = asyncio.Event()

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for line in LINES:
            writer.write(chunk(line))
            await step.wait()
            step.clear()
        writer.write(LAST_CHUNK)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        async with await Client.connect(gate.address) as client:
            await client.send(
                "POST", "/api/chat", {**CHAT, "truncate": True, "options": {"num_ctx": 123456, "seed": 7}}
            )
            reply = await client.head()
            assert (reply.status, reply.header("Content-Type")) == (200, "application/x-ndjson")
            for line in LINES:
                # Each line is here before the next one is sent: nothing is held back.
                assert await client.next_chunk(reply) == line.encode()
                step.set()
            assert await client.next_chunk(reply) is None
        [got] = ollama.got
        assert got.json == {
            "model": "llama3.2",
            "messages": [{"role": "user", "content": "hi"}],
            "truncate": False,
            "shift": False,
            "options": {"seed": 7, "num_ctx": 8192},
        }
        assert got.headers["host"] == ollama.url.removeprefix("http://")
        assert metric(gate, "output_tokens_total", model="registry.ollama.ai/library/llama3.2:latest") == 2


async def test_an_answer_that_is_not_streamed_says_why_it_ended() -> None:
    answer = {"message": {"role": "assistant", "content": "x"}, "done": True, "done_reason": "length", "eval_count": 40}

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(answer))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        asked = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False, "options": {"num_predict": 40}})
        full = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False, "options": {"num_predict": 99}})
    assert asked.json == answer
    assert asked.gate("ended") == "limit"
    assert full.gate("ended") == "window"


HEAD = STREAM_HEAD.replace(b"application/x-ndjson", b"application/json; charset=utf-8")


def in_chunks(head: bytes, body: bytes, size: int) -> Script:
    """Ollama answers with a body whose length it does not tell, some bytes at a time."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for start in range(0, len(body), size):
            writer.write(chunk(body[start : start + size]))
            await writer.drain()
        writer.write(LAST_CHUNK)

    return script


@pytest.mark.parametrize(("size", "reason"), [(3000, "window"), (1 << 20, None)])
async def test_so_does_a_longer_one_whose_length_ollama_does_not_tell(size: int, reason: str | None) -> None:
    """Go's server tells no length of more than 2 KB, and such are the answers that end at the window."""
    message = {"role": "assistant", "content": "x" * size}
    answer = {"message": message, "done": True, "done_reason": "length", "eval_count": 40}
    script = in_chunks(HEAD, json.dumps(answer).encode(), 2000)
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        full = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
        again = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
    assert full.complete
    assert full.json == again.json == answer
    assert full.gate("ended") == again.gate("ended") == reason


async def test_one_that_breaks_off_before_it_is_whole_is_a_502() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk('{"model":"llama3.2","message":'))
        await writer.drain()
        writer.transport.abort()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
    assert (reply.status, reply.json["code"]) == (502, "upstream_broken")


async def test_a_stream_that_ollama_breaks_off_is_broken_off_for_the_client() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + chunk(LINES[0]))
        await writer.drain()
        writer.transport.abort()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
        assert reply.status == 200
        assert not reply.complete
        assert metric(gate, "upstream_errors_total", kind="upstream_broken") == 1


async def test_an_error_line_in_the_stream_passes_as_it_is() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + chunk(LINES[0]) + chunk('{"error":"boom"}\n') + LAST_CHUNK)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
    assert reply.complete
    assert reply.lines[-1] == {"error": "boom"}


async def test_ollamas_own_overflow_becomes_the_gates_refusal() -> None:
    inner = {
        "error": {
            "code": 400,
            "message": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000,
            "n_ctx": 8192,
        }
    }

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"error": json.dumps(inner)}, 400, "Bad Request"))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
    assert reply.status == 400
    assert reply.json["code"] == "context_length_exceeded"
    assert reply.json["error"].startswith("prompt is too long: 9000 tokens > 8191 maximum.")


REFUSED_STREAM = HEAD.replace(b"200 OK", b"400 Bad Request").replace(b"; charset=utf-8", b"")
"""How Ollama refuses what was to be streamed: the length is not told, as in the recorded exchange."""


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_its_overflow_of_what_was_to_be_streamed_does_too(path: str) -> None:
    recorded = recording("over-chat-truncate-false-stream")
    body: dict[str, Any] = {"model": "llama3.2", "stream": True, "max_tokens": 9}
    body["input" if path == "/v1/responses" else "messages"] = CHAT["messages"]

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(REFUSED_STREAM)
        for piece in recorded.chunks:
            writer.write(chunk(piece))
        writer.write(LAST_CHUNK)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", path, body)
    assert (reply.status, reply.reason, recorded.status) == (400, "Context Length Exceeded", 400)
    assert (reply.gate("verdict"), reply.header("x-should-retry")) == ("refuse", "false")
    assert b"context_length_exceeded" in reply.body
    assert b"However, your messages resulted in 594 tokens." in reply.body


@pytest.mark.parametrize("size", [20, 200_000])
async def test_another_error_of_what_was_to_be_streamed_comes_back_unchanged(size: int) -> None:
    error = json.dumps({"error": "context" * size}).encode()
    async with ScriptedOllama(in_chunks(REFUSED_STREAM, error, 50_000)) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
    assert reply.complete
    assert (reply.status, reply.body == error) == (400, True)


async def test_other_errors_of_ollamas_come_back_unchanged() -> None:
    body = b'{"error":"invalid think value: \\"x\\" (must be \\"high\\" or \\"low\\")"}'

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(body, 400, "Bad Request"))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", {**CHAT, "think": "x"})
    assert (reply.status, reply.body) == (400, body)


async def test_no_ollama_is_503_in_the_callers_shape_and_recovers_by_itself() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"done": True}))

    async with ScriptedOllama(script) as ollama:
        url = ollama.url
    async with running_gate(url) as gate:
        native = await ask(gate.address, "POST", "/api/chat", CHAT)
        openai = await ask(gate.address, "POST", "/v1/chat/completions", CHAT)
        health = await ask(gate.address, "GET", "/gate/health")
        passed = await ask(gate.address, "GET", "/api/tags")
    assert (native.status, native.json["code"]) == (503, "upstream_unreachable")
    assert isinstance(native.json["error"], str)
    assert (openai.status, openai.json["error"]["code"]) == (503, "upstream_unreachable")
    assert (health.status, health.json["ready"], health.json["live"]) == (503, False, True)
    assert passed.status == 503


async def test_while_ollama_does_not_tell_its_models_nothing_goes_up_uncounted() -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        ollama.fault("status", path="/api/tags", status=500)
        long = {"model": "rehearsal-small", "messages": [{"role": "user", "content": "word " * 9000}]}
        native = await ask(gate.address, "POST", "/api/chat", long)
        openai = await ask(gate.address, "POST", "/v1/chat/completions", long)
        assert not ollama.journal.to("/api/chat")
        ollama.service.faults.active.clear()
        again = await ask(gate.address, "POST", "/api/chat", long)
    assert (native.status, native.json["code"]) == (502, "upstream_broken")
    assert (openai.status, openai.json["error"]["code"]) == (502, "upstream_broken")
    assert (again.status, again.json["code"]) == (400, "context_length_exceeded")
