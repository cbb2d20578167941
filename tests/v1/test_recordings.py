"""Every recorded /v1 request through a running gate: Ollama answers natively, and the client gets what was recorded.

What Ollama gets carries `truncate:false`, `shift:false` and the model's window, which no /v1 request can say.
"""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
import pytest

from ollama_gate.app import Gate
from ollama_gate.errors import Refused
from ollama_gate.requests import Kind
from support.dialects import (
    BROKEN,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    as_its_layer_makes_it,
    as_ollama_reads_it,
    normal,
)
from support.gate import running_gate
from support.http import Reply, ask
from support.recorded import Recording, recording
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk, model, whole
from support.v1_answers import native_chunks
from support.v1_recordings import (
    ANSWERED,
    DIED,
    NATIVE_OF,
    PLAIN_WORDS,
    REFUSED,
    STREAMED,
    expected_answer,
    native_answer,
    request_of,
    with_words,
)

WINDOW = 32768
"""Wide enough that a small prompt is let through by its bytes: the recorded vocabularies are not here."""
CANNOT_THINK = {"v1-messages-thinking-unsupported"}
"""Recorded with a model that cannot; every other model here can do everything, because Ollama itself says no."""
TOO_LONG = {"v1-embeddings-over", "v1-chat-over-native-mode"}
"""Too long for Ollama too, which cut the one silently and refused the other in llama-server's JSON."""


def models_for(recorded: Recording) -> dict[str, dict[str, Any]]:
    """The model that a recording asks for, unless it is one that is not there."""
    try:
        _, request = request_of(recorded)
    except Refused:
        return {}
    if "missing" in recorded.id:
        return {}
    abilities = ["embedding"] if request.kind is Kind.EMBED else ["completion", "tools", "vision", "insert"]
    if recorded.id not in CANNOT_THINK:
        abilities.append("thinking")
    tag = "" if ":" in request.model else ":latest"
    name = request.model + tag
    return {name: model(name, capabilities=abilities)}


def asked_again(recorded: Recording) -> dict[str, str]:
    """The recorded headers, without those that the connection sets."""
    return {name: value for name, value in recorded.headers if name.lower() not in ("host", "content-length")}


def gate_for(url: str) -> AbstractAsyncContextManager[Gate]:
    """A gate with that window for every model."""
    return running_gate(url, defaults={"num_ctx": WINDOW})


async def replayed(recorded: Recording, answer: bytes) -> tuple[Reply, list[Got], str | None]:
    """The recorded request through a gate, what Ollama got of it, and the note that the client was sent."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with ScriptedOllama(script, models_for(recorded)) as ollama, gate_for(ollama.url) as gate:
        reply = await ask(gate.address, recorded.method, recorded.path, recorded.body, asked_again(recorded))
        return reply, ollama.got, reply.gate("note")


def as_stream(lines: list[Any]) -> bytes:
    """Native chunks as Ollama sends them: a line each, an HTTP chunk each."""
    return STREAM_HEAD + b"".join(chunk(orjson.dumps(line) + b"\n") for line in lines) + LAST_CHUNK


def assert_forced(got: Got, recorded: Recording) -> None:
    """What Ollama gets is the request that it would make of it itself, with what the gate decides."""
    native = got.json
    assert native.pop("truncate") is False
    if got.target != "/api/embed":
        assert native.pop("shift") is False
    assert native["options"].pop("num_ctx") == WINDOW
    expected = dict(NATIVE_OF.get(recorded.id) or request_of(recorded)[1].body)
    if recorded.id in CANNOT_THINK:
        del expected["think"]  # Ollama drops it later, once it knows the model
    if recorded.id == "v1-chat-max-completion-tokens":
        expected["options"] = {**expected["options"], "num_predict": 2}  # better than Ollama: it is honoured
    assert as_its_layer_makes_it(recorded.path, native) == as_ollama_reads_it(expected)


@pytest.mark.parametrize("name", [name for name in STREAMED if name not in DIED])
async def test_a_recorded_stream(name: str) -> None:
    recorded = recording(name)
    _, request = request_of(recorded)
    lines = native_chunks(recorded.path, "".join(recorded.chunks), request.asked_output)
    reply, [got], _ = await replayed(recorded, as_stream(lines))
    assert_forced(got, recorded)
    assert reply.status == recorded.status
    for header in ("Content-Type", "Cache-Control", "Transfer-Encoding"):
        assert reply.header(header) == recorded.answer_header(header)
    assert reply.complete
    written = reply.body.decode()
    count = counted(written) if recorded.path == MESSAGES else 0
    assert normal(written) == normal(expected_answer(recorded, count, lines[-1]["done_reason"]))


def counted(written: str) -> int:
    """What `message_start` tells of the prompt; the gate's count of what was recorded, whose vocabulary is not here."""
    start = next(line for line in written.split("\n") if line.startswith('data: {"type":"message_start"'))
    tokens = json.loads(start.removeprefix("data: "))["message"]["usage"]["input_tokens"]
    assert isinstance(tokens, int)
    assert tokens > 0
    return tokens


@pytest.mark.parametrize("name", [name for name in ANSWERED if name not in STREAMED and name not in TOO_LONG])
async def test_a_recorded_whole_answer(name: str) -> None:
    recorded = recording(name)
    _, request = request_of(recorded)
    native = native_answer(recorded, request)
    reply, [got], note = await replayed(recorded, whole(native))
    assert_forced(got, recorded)
    assert reply.status == recorded.status
    assert reply.header("Content-Type") == recorded.answer_header("Content-Type")
    assert reply.header("Content-Length") == str(len(reply.body))
    assert normal(reply.body.decode()) == normal(expected_answer(recorded, 0, native.get("done_reason", "")))
    assert (note is not None and "does not think" in note) is (name in CANNOT_THINK)


@pytest.mark.parametrize("name", DIED)
async def test_a_recorded_death_in_mid_stream_is_told(name: str) -> None:
    recorded = recording(name)
    lines = native_chunks(recorded.path, "".join(recorded.chunks), None)
    if "error" not in lines[-1]:
        lines.append({"error": BROKEN})
    reply, [got], _ = await replayed(recorded, as_stream(lines))
    assert_forced(got, recorded)
    assert reply.status == 200
    last = reply.body.decode().rstrip("\n").split("\n\n")[-1]
    assert "unexpected EOF" in last
    assert last.startswith(
        {
            CHAT: 'data: {"error":{"message":',
            COMPLETIONS: 'data: {"error":{"message":',
            RESPONSES: 'event: response.failed\ndata: {"response":',
            MESSAGES: 'event: error\ndata: {"type":"error","error":{"type":"api_error",',
        }[recorded.path]
    )
    for mark in (b"[DONE]", b"message_stop", b"response.completed"):
        assert mark not in reply.body


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in TOO_LONG])
async def test_a_recorded_error(name: str) -> None:
    """Whoever says no: the gate while it reads the request, or Ollama, whose words are handed on."""
    recorded = recording(name)
    expected = "".join(recorded.chunks)
    message = json.loads(expected)["error"]["message"]
    reply, got, _ = await replayed(recorded, ollamas_error(recorded, message))
    try:
        request_of(recorded)
    except Refused:
        assert not got
    else:
        assert len(got) == 1
    assert reply.status == recorded.status
    # Ollama names the charset or not, depending on the layer that says no.
    assert (reply.header("Content-Type") or "").startswith("application/json")
    if name in PLAIN_WORDS:
        assert b"unmarshal" not in reply.body
        return
    assert with_words(recorded.path, reply.body.decode()) == with_words(recorded.path, expected)


def ollamas_error(recorded: Recording, message: str) -> bytes:
    """The native error behind a recorded one."""
    return whole({"error": message}, recorded.status, recorded.reason)


@pytest.mark.parametrize("name", sorted(TOO_LONG))
async def test_what_ollama_cut_or_could_not_explain_is_refused_for_its_length(name: str) -> None:
    recorded = recording(name)
    told = json.loads("".join(recorded.chunks))
    reply, _, _ = await replayed(recorded, ollamas_error(recorded, told.get("error", {}).get("message", "")))
    assert (reply.status, reply.reason) == (400, "Context Length Exceeded")
    error = reply.json["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert error["message"].startswith("prompt is too long: ")
