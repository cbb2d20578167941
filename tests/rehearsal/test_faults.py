"""Faults: each does to the wire what it says, and the recorded deaths look as recorded."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.rehearsal import Fault, Rehearsal, Settings
from ollama_gate.rehearsal.faults import KINDS, Faults, parse
from support.rawhttp import RawAnswer, exchange
from support.recorded import recording


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    async with Rehearsal() as rehearsal:
        yield rehearsal


async def ask(upstream: Rehearsal, path: str = "/api/chat", *, fault: str = "", **fields: Any) -> RawAnswer:
    asked = {"messages": [{"role": "user", "content": "write 8 tokens"}], "prompt": "write 8 tokens"}
    body = json.dumps({"model": "rehearsal", **asked, **fields}).encode()
    headers = [("Host", "localhost")] + ([("X-Rehearsal-Fault", fault)] if fault else [])
    return await exchange(upstream.url, "POST", path, headers=headers, body=body)


@pytest.mark.parametrize(("text", "fault"), [
    ("cut", Fault("cut")),
    ("cut:after=3,path=/api/chat", Fault("cut", after=3, path="/api/chat")),
    ("slow:seconds=0.5,times=2", Fault("slow", seconds=0.5, times=2)),
])  # fmt: skip
def test_faults_are_written_in_one_line(text: str, fault: Fault) -> None:
    assert parse(text) == fault


@pytest.mark.parametrize("text", ["melt", "cut:when=3", "cut:after=x"])
def test_an_unknown_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no fault|no setting|invalid literal"):
        parse(text)


def test_a_fault_with_a_number_of_times_is_used_up() -> None:
    faults = Faults((Fault("cut", times=2, path="/api/chat"), Fault("slow")))
    kinds = [
        [fault.kind for fault in faults.strike(path)] for path in ("/api/chat", "/api/tags", "/api/chat", "/api/chat")
    ]
    assert kinds == [["cut", "slow"], ["slow"], ["cut", "slow"], ["slow"]]
    faults.reset()
    assert len(faults.strike("/api/chat")) == 2


@pytest.mark.parametrize(
    ("name", "path", "stream"),
    [
        ("dies-native-chat-stream", "/api/chat", True),
        ("dies-native-generate-stream", "/api/generate", True),
        ("dies-native-chat-nonstream", "/api/chat", False),
    ],
)
async def test_a_runner_dies_as_recorded(upstream: Rehearsal, name: str, path: str, stream: bool) -> None:  # noqa: FBT001
    recorded = recording(name)
    answer = await ask(upstream, path, fault="dies:after=3", stream=stream)
    assert answer.status == recorded.status
    assert answer.header("Content-Type") == recorded.answer_header("Content-Type")
    assert answer.complete
    assert len(answer.chunks) == len(recorded.chunks)
    assert answer.chunks[-1].decode() == recorded.chunks[-1]
    assert upstream.loads("rehearsal") == 1
    assert json.loads((await ask(upstream, stream=False)).body)["done"]
    assert upstream.loads("rehearsal") == 2


async def test_a_stream_may_end_without_done(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="no_done:after=3")
    assert answer.complete
    assert [json.loads(chunk)["done"] for chunk in answer.chunks] == [False] * 3


@pytest.mark.parametrize("kind", ["cut", "close"])
@pytest.mark.parametrize("after", [0, 3])
async def test_a_connection_breaks_in_mid_stream(upstream: Rehearsal, kind: str, after: int) -> None:
    answer = await ask(upstream, fault=f"{kind}:after={after}")
    assert not answer.complete
    assert len(answer.chunks) <= after
    if kind == "close":  # what was written before a plain close arrives; a reset may take it along
        assert (answer.status, len(answer.chunks)) == (200, after)


async def test_a_whole_answer_may_break_too(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="close", stream=False)
    assert (answer.status, answer.complete, answer.body) == (200, False, b"")


async def test_every_byte_in_a_chunk_of_its_own(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="dribble")
    assert answer.complete
    assert {len(chunk) for chunk in answer.chunks} == {1}
    assert json.loads(answer.body.splitlines()[-1])["done"]


async def test_many_lines_in_a_chunk(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="coalesce:after=4")
    assert [chunk.count(b"\n") for chunk in answer.chunks] == [4, 4, 1]


async def test_a_line_of_eight_megabytes(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="long_line:after=1")
    assert len(answer.chunks[1]) > 8_000_000
    assert len(json.loads(answer.chunks[1])["message"]["content"]) > 8_000_000


async def test_a_line_that_is_not_json(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="broken_line:after=2")
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(answer.chunks[2])
    assert json.loads(answer.chunks[3])


async def test_a_length_that_is_not_the_bodys(upstream: Rehearsal) -> None:
    answer = await ask(upstream, fault="wrong_length:bytes=7", stream=False)
    assert not answer.complete
    assert int(answer.header("Content-Length") or 0) == len(answer.body) + 7


async def test_bytes_that_are_not_http(upstream: Rehearsal) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
    writer.write(b"GET /api/tags HTTP/1.1\r\nHost: localhost\r\nX-Rehearsal-Fault: garbage\r\n\r\n")
    assert not (await reader.read()).startswith(b"HTTP/")
    writer.close()


async def test_busy_and_any_other_status(upstream: Rehearsal) -> None:
    busy = await ask(upstream, fault="busy")
    assert (busy.status, busy.body.decode()) == (503, recording("busy-native-chat").chunks[0])
    other = await ask(upstream, fault="status:status=418,text=no tea")
    assert (other.status, other.body) == (418, b'{"error":"no tea"}')


async def test_an_embedding_that_is_not_finite(upstream: Rehearsal) -> None:
    body = b'{"model":"rehearsal-embed","input":"x","options":{"rehearsal_fault":"nan"}}'
    answer = await exchange(upstream.url, "POST", "/api/embed", body=body)
    assert (answer.status, answer.body) == (400, b'{"error":"embedding contains NaN or Inf values"}')


@pytest.mark.parametrize("at", ["start", "stream", "end"])
async def test_it_hangs_until_the_client_leaves(upstream: Rehearsal, at: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
    body = b'{"model":"rehearsal","prompt":"write 4 tokens"}'
    head = f"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nX-Rehearsal-Fault: hang:at={at},after=2\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    expected = {"start": b"", "stream": b'"done":false', "end": b'"done":true'}[at]
    await reader.readuntil(expected) if expected else await upstream.journal.until(lambda j: len(j) and j[0].generated)
    assert upstream.journal[0].ended is None
    writer.transport.abort()
    await upstream.journal.until(lambda journal: journal[0].client_left)


async def test_faults_come_by_every_way() -> None:
    async with Rehearsal(Settings(faults=(Fault("busy", path="/api/chat"),))) as upstream:
        assert (await ask(upstream)).status == 503
        added = await exchange(
            upstream.url, "POST", "/rehearsal/faults", body=b'{"kind":"busy","path":"/api/generate"}'
        )
        assert added.status == 200
        assert (await ask(upstream, "/api/generate")).status == 503
        await exchange(upstream.url, "POST", "/rehearsal/reset")
        assert (await ask(upstream, "/api/generate")).status == 200
        assert (await ask(upstream)).status == 503
        unknown = await exchange(upstream.url, "POST", "/rehearsal/faults", body=b'{"kind":"melt"}')
        assert unknown.status == 400
        listed = json.loads((await exchange(upstream.url, "GET", "/rehearsal/faults")).body)
        assert listed["kinds"] == KINDS
    async with Rehearsal() as upstream:
        upstream.fault("busy", times=1)
        assert [(await ask(upstream)).status for _ in range(2)] == [503, 200]
        assert (await ask(upstream, options={"rehearsal_fault": "busy"})).status == 503
        assert (await ask(upstream, fault="melt")).status == 400
        upstream.fault("busy", model="other")
        assert (await ask(upstream)).status == 200
