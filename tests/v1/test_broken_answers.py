"""Answers of Ollama's that break: the client gets what there was, an error event of its dialect, and no end mark."""

import asyncio
from typing import Any

import pytest

from support.gate import metric, running_gate
from support.http import Client, Reply, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk, model, whole
from support.v1_lanes import LANES, Lane, line

lanes = pytest.mark.parametrize("lane", LANES.values(), ids=LANES)


async def answered(lane: Lane, *writes: bytes, lost: bool = False, **body: Any) -> tuple[Reply, dict[str, float]]:
    """What a client gets when Ollama sends these bytes, and cuts the connection where it is `lost`."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        for data in writes:
            writer.write(data)
            await writer.drain()
        if lost:
            writer.close()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", lane.path, lane.body(**body))
        kinds = ("upstream_broken", "error_in_answer")
        return reply, {kind: metric(gate, "upstream_errors_total", kind=kind) for kind in kinds}


@lanes
async def test_a_connection_that_is_lost_in_mid_stream(lane: Lane) -> None:
    reply, errors = await answered(lane, STREAM_HEAD, lane.piece("Hel"), lane.piece("lo"), lost=True)
    assert (reply.status, reply.complete, lane.ended(reply)) == (200, False, False)
    assert lane.text_of(reply) == "Hello"
    assert "broke off" in lane.failure(reply)["message"]
    assert errors["upstream_broken"] == 1


@lanes
async def test_a_stream_that_ends_cleanly_without_done(lane: Lane) -> None:
    """Ollama's repeat guard ends so, and agents take such an end for a reason to ask again at once."""
    reply, errors = await answered(lane, STREAM_HEAD + lane.piece("Hello") + LAST_CHUNK)
    assert (reply.complete, lane.ended(reply)) == (False, False)
    assert lane.text_of(reply) == "Hello"
    assert "end mark" in lane.failure(reply)["message"]
    assert errors["upstream_broken"] == 1


@lanes
async def test_a_stream_without_a_single_line(lane: Lane) -> None:
    reply, _ = await answered(lane, STREAM_HEAD + LAST_CHUNK)
    assert (reply.complete, lane.ended(reply)) == (False, False)
    assert lane.failure(reply)["message"]


@lanes
@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"code": 7, "message": "out of memory"}, "out of memory"),
        ({"code": 7}, '{"code":7}'),
        (["x", None], '["x",null]'),
    ],
)
async def test_an_error_line_that_holds_no_text_is_told_by_its_message_or_as_json(
    lane: Lane, error: Any, told: str
) -> None:
    streamed, _ = await answered(lane, STREAM_HEAD + lane.piece("Hello") + line({"error": error}) + LAST_CHUNK)
    assert (lane.failure(streamed)["message"], lane.ended(streamed)) == (told, False)
    at_once, _ = await answered(lane, whole({"model": "llama3.2", "error": error}), stream=False)
    assert at_once.status == 502
    assert at_once.json["error"]["message"].endswith(f": {told}")


@lanes
async def test_an_error_line_in_the_stream(lane: Lane) -> None:
    """Ollama's own layer loses it and ends the stream as if all were well."""
    broken = line({"error": "an error was encountered while running the model: unexpected EOF"})
    reply, errors = await answered(lane, STREAM_HEAD + lane.piece("Hello") + broken + LAST_CHUNK)
    assert not lane.ended(reply)
    assert lane.text_of(reply) == "Hello"
    assert lane.failure(reply)["message"] == "an error was encountered while running the model: unexpected EOF"
    assert errors["error_in_answer"] == 1


@lanes
async def test_a_line_that_is_no_json_loses_nothing_of_what_came_before_it(lane: Lane) -> None:
    at_once = STREAM_HEAD + lane.piece("Hel") + lane.piece("lo") + chunk(b"{]\n") + lane.last() + LAST_CHUNK
    reply, errors = await answered(lane, at_once)
    assert (reply.complete, lane.ended(reply)) == (False, False)
    assert lane.text_of(reply) == "Hello"
    assert "not JSON" in lane.failure(reply)["message"]
    assert errors["upstream_broken"] == 1


@lanes
async def test_the_framing_of_lines_and_chunks_does_not_matter(lane: Lane) -> None:
    """Lines cut anywhere, many in one read, and a last line without its end."""
    lines = b"".join(one.split(b"\r\n", 1)[1][:-2] for one in (lane.piece("Hel"), lane.piece("lo"), lane.last()))
    for size in (1, 7, len(lines)):
        pieces = [lines[at : at + size] for at in range(0, len(lines) - 1, size)]
        pieces[-1] = pieces[-1].rstrip(b"\n")
        reply, _ = await answered(lane, STREAM_HEAD + b"".join(map(chunk, pieces)) + LAST_CHUNK)
        assert (reply.complete, lane.ended(reply), lane.text_of(reply)) == (True, True, "Hello")


@lanes
@pytest.mark.parametrize(
    "answer",
    [b'{"message":', b"[]", b"upstream says hello"],
    ids=["cut JSON", "no object", "no JSON"],
)
async def test_a_whole_answer_that_is_none_is_a_bad_gateway(lane: Lane, answer: bytes) -> None:
    reply, errors = await answered(lane, whole(answer), stream=False)
    assert reply.status == 502
    assert reply.json["error"]["type"] == "api_error"
    assert errors["upstream_broken"] == 1


@lanes
async def test_a_whole_answer_that_is_cut_is_a_bad_gateway(lane: Lane) -> None:
    reply, errors = await answered(lane, whole({"done": True})[:-3], lost=True, stream=False)
    assert reply.status == 502
    assert reply.json["error"]["message"].startswith("Ollama broke off before its answer was whole")
    assert errors["upstream_broken"] == 1


@lanes
@pytest.mark.parametrize(
    ("last", "why"),
    [({}, "without its end mark"), ({"done": False}, "without its end mark"), ({"error": "the runner died"}, "died")],
)
async def test_a_whole_answer_without_its_end_mark_is_a_bad_gateway(lane: Lane, last: dict[str, Any], why: str) -> None:
    """Ollama's repeat guard ends so, with half an answer and 200 (repeat-guard-nonstream)."""
    text = {"response": "Hel", "message": {"role": "assistant", "content": "Hel"}}
    reply, errors = await answered(lane, whole({"model": "llama3.2", **text, **last}), stream=False)
    assert (reply.status, reply.json["error"]["type"]) == (502, "api_error")
    assert why in reply.json["error"]["message"]
    assert errors["upstream_broken"] == 1


async def test_embeddings_have_no_end_mark() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"model": "all-minilm", "embeddings": [[0.5]], "prompt_eval_count": 3}))

    embedder = {"all-minilm:latest": model("all-minilm", capabilities=["embedding"])}
    async with ScriptedOllama(script, embedder) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/v1/embeddings", {"model": "all-minilm", "input": "x"})
    assert (reply.status, reply.json["data"][0]["embedding"]) == (200, [0.5])


@lanes
@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"message":"x"}'])
async def test_an_error_of_any_shape_is_an_error_of_the_dialect(lane: Lane, body: bytes) -> None:
    reply, _ = await answered(lane, whole(body, 503, "Service Unavailable"))
    assert reply.status == 503
    error = reply.json["error"]
    assert error["type"] == ("overloaded_error" if lane.path == "/v1/messages" else "api_error")
    assert error["message"] == (body.decode() or "503 Service Unavailable")


@lanes
async def test_a_client_that_leaves_in_mid_stream_ends_ollamas_work(lane: Lane) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + lane.piece("Hello"))
        await asyncio.Event().wait()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        async with await Client.connect(gate.address) as client:
            await client.send("POST", lane.path, lane.body())
            assert await client.next_chunk(await client.head()) is not None
        async with asyncio.timeout(5):
            await ollama.left.wait()
