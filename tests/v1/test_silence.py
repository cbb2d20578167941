"""While Ollama is silent, an open stream shows signs of life that its clients count and ignore; errors stay errors."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from ollama_gate.app import Gate
from support.dialects import events
from support.gate import metric, running_gate
from support.http import Client, Reply
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, whole
from support.v1_lanes import LANES, Lane, line

OFTEN = 0.02
"""Seconds of silence after which these gates show a sign of life."""
OVERFLOW = {
    "error": {
        "code": 400,
        "message": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 8192,
    }
}
lanes = pytest.mark.parametrize("lane", LANES.values(), ids=LANES)


@dataclass(slots=True)
class Silent:
    """An Ollama that waits for the test before it says `then`, and a gate with little patience."""

    gate: Gate
    ollama: ScriptedOllama
    go_on: asyncio.Event
    clients: list[Client] = field(default_factory=list)

    async def ask(self, lane: Lane) -> Client:
        client = await Client.connect(self.gate.address)
        self.clients.append(client)
        await client.send("POST", lane.path, lane.body())
        return client


@asynccontextmanager
async def silent(*, before: bytes = b"", then: bytes) -> AsyncIterator[Silent]:
    """Ollama sends `before` at once, and `then` when the test says so."""
    go_on = asyncio.Event()

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        await go_on.wait()
        if then:
            writer.write(then)
        else:
            writer.transport.abort()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        # By default no load of a model is silence yet, and every agent still listens: they give up after 300 s.
        assert 5 <= gate.wiring.pipeline.signs_every <= 20
        gate.wiring.pipeline.signs_every = OFTEN
        made = Silent(gate, ollama, go_on)
        try:
            yield made
        finally:
            for client in made.clients:
                client.reset()


async def signs(client: Client, reply: Reply, number: int) -> None:
    """Wait for so many chunks."""
    for _ in range(number):
        assert await client.next_chunk(reply) is not None


@lanes
async def test_silence_before_the_first_byte_opens_the_stream_and_shows_signs_of_life(lane: Lane) -> None:
    async with silent(then=lane.answer()) as line_:
        client = await line_.ask(lane)
        reply = await client.head()
        assert (reply.status, reply.header("Content-Type")) == (200, "text/event-stream")
        await signs(client, reply, 3)
        line_.go_on.set()
        await client.rest(reply)
    assert reply.complete
    assert lane.text_of(reply) == "Hello."
    assert lane.ended(reply)


@lanes
async def test_silence_in_the_stream_shows_signs_of_life(lane: Lane) -> None:
    begun = STREAM_HEAD + lane.piece("Hel")
    async with silent(before=begun, then=lane.piece("lo.") + lane.last() + LAST_CHUNK) as line_:
        client = await line_.ask(lane)
        reply = await client.head()
        await signs(client, reply, 4)
        line_.go_on.set()
        await client.rest(reply)
    assert reply.complete
    assert lane.text_of(reply) == "Hello."
    assert lane.ended(reply)


async def signed(lane: Lane) -> str:
    """A stream with two signs of life before its first token and one in it."""
    async with silent(then=lane.answer()) as line_:
        client = await line_.ask(lane)
        reply = await client.head()
        await signs(client, reply, 3)
        line_.go_on.set()
        return (await client.rest(reply)).body.decode()


@pytest.mark.parametrize("name", ["chat", "completions"])
async def test_openai_streams_live_by_comments(name: str) -> None:
    sent = await signed(LANES[name])
    assert sent.startswith(": keep-alive\n\n" * 3)
    assert "keep-alive" not in sent.removeprefix(": keep-alive\n\n" * sent.count("keep-alive"))


async def test_responses_live_by_events_of_a_type_that_nobody_knows() -> None:
    sent = await signed(LANES["responses"])
    told = list(events(sent))
    assert [name for name, _ in told[:4]] == ["response.created", "response.in_progress", "keepalive", "keepalive"]
    assert [data["sequence_number"] for _, data in told] == list(range(len(told)))
    assert not [line_ for line_ in sent.split("\n") if line_.startswith(":")]


async def test_messages_live_by_deltas_without_text() -> None:
    """Claude Code counts neither comments nor pings."""
    told = list(events(await signed(LANES["messages"])))
    assert [name for name, _ in told[:4]] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
    ]
    assert told[2][1] == {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}
    assert [name for name, _ in told].count("content_block_start") == 1
    assert [name for name, _ in told][-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_a_sign_before_thinking_is_a_block_of_its_own() -> None:
    lane = LANES["messages"]
    thought = line({"message": {"role": "assistant", "content": "", "thinking": "Hm."}, "done": False})
    async with silent(then=STREAM_HEAD + thought + lane.piece("Hello.") + lane.last() + LAST_CHUNK) as line_:
        client = await line_.ask(lane)
        reply = await client.head()
        await signs(client, reply, 2)
        line_.go_on.set()
        await client.rest(reply)
    blocks = [data for name, data in events(reply.body.decode()) if name == "content_block_start"]
    assert [(block["index"], block["content_block"]["type"]) for block in blocks] == [
        (0, "text"),
        (1, "thinking"),
        (2, "text"),
    ]


@lanes
async def test_an_error_of_ollamas_after_an_early_opening_is_an_event_and_no_clean_end(lane: Lane) -> None:
    refusal = whole({"error": "model failed to load"}, 500, "Internal Server Error")
    reply = await after_an_early_opening(lane, refusal)
    assert lane.failure(reply)["message"] == "model failed to load"


@lanes
async def test_a_connection_that_is_lost_after_an_early_opening_is_an_event_and_no_clean_end(lane: Lane) -> None:
    reply = await after_an_early_opening(lane, b"")
    assert lane.failure(reply)["message"]


@lanes
async def test_a_refusal_after_an_early_opening_keeps_its_words_and_its_code(lane: Lane) -> None:
    refusal = whole({"error": json.dumps(OVERFLOW)}, 400, "Bad Request")
    failure = lane.failure(await after_an_early_opening(lane, refusal))
    assert failure["message"].startswith("prompt is too long: 9000 tokens > 8191 maximum. ")
    if lane.path != "/v1/messages":
        assert failure["code"] == "context_length_exceeded"


async def after_an_early_opening(lane: Lane, then: bytes) -> Reply:
    """What the client gets of a stream that was opened before Ollama failed."""
    async with silent(then=then) as line_:
        client = await line_.ask(lane)
        reply = await client.head()
        assert reply.status == 200
        await signs(client, reply, 1)
        line_.go_on.set()
        await client.rest(reply)
        gone = metric(line_.gate, "client_gone_total", phase="streaming")
    assert not reply.complete
    assert not lane.ended(reply)
    assert gone == 0
    return reply


@lanes
async def test_an_error_before_the_stream_is_open_keeps_its_status(lane: Lane) -> None:
    async with silent(then=whole({"error": "model failed to load"}, 500, "Internal Server Error")) as line_:
        line_.gate.wiring.pipeline.signs_every = 60.0
        line_.go_on.set()
        client = await line_.ask(lane)
        reply = await client.rest(await client.head())
    assert reply.status == 500
    error = reply.json["error"]
    assert (error["type"], error["message"]) == ("api_error", "model failed to load")


@lanes
async def test_a_client_that_leaves_a_silent_stream_ends_ollamas_work(lane: Lane) -> None:
    async with silent(then=lane.answer()) as line_:
        client = await line_.ask(lane)
        reply = await client.head()
        await signs(client, reply, 2)
        client.reset()
        async with asyncio.timeout(5):
            await line_.ollama.left.wait()
