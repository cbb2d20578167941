"""What is nested so deeply that a writer of JSON gives up: a clear refusal, or an honest end, and never a 500."""

import asyncio
from typing import Any

import pytest

from support.gate import running_gate
from support.http import Reply, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk, model, whole
from support.v1_lanes import LANES, Lane

CHAT_LANES = {name: lane for name, lane in LANES.items() if lane.native == "/api/chat"}
chat_lanes = pytest.mark.parametrize("lane", CHAT_LANES.values(), ids=CHAT_LANES)
depths = pytest.mark.parametrize("depth", [239, 240, 249, 250, 254, 900, 5000])


def lists(depth: int) -> str:
    return "[" * depth + "]" * depth


async def asked(path: str, body: Any) -> Reply:
    """What a client gets for a request from a gate whose Ollama answers whatever it is asked."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"message": {"role": "assistant", "content": "Hi."}, "done": True, "done_reason": "stop"}))

    models = {"llama3.2:latest": model("llama3.2", capabilities=["completion", "tools"])}
    async with ScriptedOllama(script, models) as ollama, running_gate(ollama.url) as gate:
        return await ask(gate.address, "POST", path, body)


@depths
async def test_arguments_of_an_earlier_call(depth: int) -> None:
    """They come as a text inside the body, where the limit for bodies does not see them."""
    arguments = f'{{"a":{lists(depth)}}}'
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    items = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c", "output": "y"},
    ]
    chat = await asked("/v1/chat/completions", {"model": "llama3.2", "messages": messages})
    responses = await asked("/v1/responses", {"model": "llama3.2", "input": items})
    counted = await asked("/v1/responses/input_tokens", {"model": "llama3.2", "input": items})
    for reply in (chat, responses, counted):
        assert reply.status in (200, 400)
        assert reply.status == 200 or reply.json["error"]["type"] == "invalid_request_error"


@depths
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_the_schema_of_a_tool_stands_deeper_natively_than_it_came(path: str, depth: int) -> None:
    tools = f'[{{"name":"f","input_schema":{{"type":"object","enum":{lists(depth)}}}}}]'
    body = f'{{"model":"llama3.2","max_tokens":5,"messages":[{{"role":"user","content":"x"}}],"tools":{tools}}}'
    reply = await asked(path, body.encode())
    assert reply.status in (200, 400)
    assert reply.status == 200 or reply.json["error"]["type"] == "invalid_request_error"


def native(said: str, *, done: bool) -> bytes:
    """A native line that JSON's writers here may not be able to make."""
    end = '"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2' if done else '"done":false'
    return f'{{"model":"llama3.2","created_at":"2026-11-30T08:20:39.9Z",{said},{end}}}\n'.encode()


def a_call(depth: int) -> str:
    function = f'{{"index":0,"name":"f","arguments":{{"a":{lists(depth)}}}}}'
    return f'"message":{{"role":"assistant","content":"","tool_calls":[{{"id":"c","function":{function}}}]}}'


@chat_lanes
@pytest.mark.parametrize("depth", [240, 300, 600, 970, 1010, 5000])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_arguments_that_the_model_wrote(lane: Lane, depth: int, *, stream: bool) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        if stream:
            called = native(a_call(depth), done=False)
            writer.write(STREAM_HEAD + lane.piece("Hello") + chunk(called) + lane.last() + LAST_CHUNK)
        else:
            writer.write(whole(native(a_call(depth), done=True)))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", lane.path, lane.body(stream=stream))
    if not stream:
        assert reply.status == (200 if depth < 900 else 502)
        return
    assert lane.text_of(reply) == "Hello"
    assert (reply.complete, lane.ended(reply)) == ((True, True) if depth < 900 else (False, False))
    assert lane.ended(reply) or "broke off" in lane.failure(reply)["message"]


@pytest.mark.parametrize("lane", LANES.values(), ids=LANES)
@pytest.mark.parametrize("depth", [300, 1000])
async def test_an_error_that_is_no_text(lane: Lane, depth: int) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        broken = chunk(native(f'"error":{lists(depth)}', done=False))
        writer.write(STREAM_HEAD + lane.piece("Hello") + broken + LAST_CHUNK)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", lane.path, lane.body())
    assert lane.text_of(reply) == "Hello"
    assert not lane.ended(reply)
    assert lane.failure(reply)["message"]
