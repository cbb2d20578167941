"""Translated streams on connections that end with them: HTTP/1.0, and `Connection: close`."""

import asyncio
import json

import pytest

from support.gate import running_gate
from support.http import Client, Reply
from support.scripted import Got, ScriptedOllama
from support.v1_lanes import LANES, Lane

lanes = pytest.mark.parametrize("lane", LANES.values(), ids=LANES)


def answers(lane: Lane) -> ScriptedOllama:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(lane.answer())

    return ScriptedOllama(script)


@lanes
async def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_by_the_connections(lane: Lane) -> None:
    async with answers(lane) as ollama, running_gate(ollama.url) as gate:
        reader, writer = await asyncio.open_connection(*gate.address)
        body = json.dumps(lane.body()).encode()
        writer.write(f"POST {lane.path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))
    assert b"chunked" not in head.lower()
    said = Reply(200, "OK", [], [rest])
    assert (lane.text_of(said), lane.ended(said)) == ("Hello.", True)


@lanes
async def test_a_connection_that_is_to_be_closed_carries_the_whole_stream_and_is(lane: Lane) -> None:
    async with answers(lane) as ollama, running_gate(ollama.url) as gate, await Client.connect(gate.address) as client:
        await client.send("POST", lane.path, lane.body(), {"Connection": "close"})
        reply = await client.rest(await client.head())
        assert await client.reader.read() == b""
    assert (reply.complete, lane.text_of(reply), lane.ended(reply)) == (True, "Hello.", True)
    assert reply.header("Date")
    assert reply.header("Server") == "ollama-gate"


@lanes
async def test_a_connection_that_stays_says_when_and_who(lane: Lane) -> None:
    async with answers(lane) as ollama, running_gate(ollama.url) as gate, await Client.connect(gate.address) as client:
        for _ in range(2):
            await client.send("POST", lane.path, lane.body())
            reply = await client.rest(await client.head())
            assert (reply.complete, lane.text_of(reply), lane.ended(reply)) == (True, "Hello.", True)
            names = [name.lower() for name, _ in reply.headers]
            assert len(names) == len(set(names))
            assert {"date", "server", "content-type", "transfer-encoding"} <= set(names)
