"""A head that comes again is not parsed again, and no client can tell."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import StreamReader, web
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from ollama_gate.access.again import Heads, WholeBody
from ollama_gate.access.connections import ClientConnection, ClientServer, ConnectionLimits
from support.cases import front
from support.http import Client
from support.unhurried import unhurried

HEAD = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nX-Who: me\r\n\r\n"
Seen = tuple[str, str, tuple[tuple[bytes, bytes], ...], list[tuple[str, str]], bytes]


def request(body: bytes, head: bytes = HEAD) -> bytes:
    return head % len(body) + body


def parsed(data: bytes) -> RawRequestMessage:
    parser = HttpRequestParser(Mock(), Mock(), 2**16)
    [(message, _)], _, _ = parser.feed_data(data)
    return message


def learnt(data: bytes) -> Heads:
    heads = Heads()
    heads.parsed(data, parsed(data))
    return heads


@pytest.mark.parametrize("body", [b"{}", b"[]", b"{}" * 50, b"x", b"x" * 100_000])
def test_the_same_head_is_known_whatever_the_length_of_its_body(body: bytes) -> None:
    again = learnt(request(b"{}")).again(request(body))
    assert again is not None
    message, came = again
    afresh = parsed(request(body))
    assert came == body
    assert message.raw_headers == afresh.raw_headers
    assert list(message.headers.items()) == list(afresh.headers.items())
    assert (message.method, message.path, message.url) == (afresh.method, afresh.path, afresh.url)


@pytest.mark.parametrize(
    "data",
    [
        request(b"{}")[:-1],
        request(b"{}") + b"P",
        request(b"{}") * 2,
        request(b"{}").replace(b"me", b"Me"),
        request(b"{}").replace(b"chat", b"show"),
        request(b"{}").replace(b": 2", b": +2"),
        request(b"{}").replace(b": 2", b":  2"),
        request(b"{}").replace(b": 2", b": 0000000002"),
        request(b"{}").replace(b": 2", b": "),
        request(b"{}").replace(b": 2", b": 2\r\nContent-Length: 2"),
        request(b"{}").replace(b": 2", b": 2 "),
        b"\r\n" + request(b"{}"),
        b"",
    ],
)
def test_what_differs_in_anything_else_goes_to_the_parser(data: bytes) -> None:
    assert learnt(request(b"{}")).again(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        request(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"),
        request(b"{}").replace(b"X-Who: me", b"Connection: close"),
        request(b"{}").replace(b"X-Who: me", b"Expect: 100-continue"),
        request(b"{}").replace(b"Content-Length: 2", b"Content-Length:2"),
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_some_heads_are_not_kept(data: bytes) -> None:
    assert learnt(data).again(data) is None


@pytest.mark.parametrize("beginning", [b"POST /other HTTP/1.1\r\nX: ", request(b"{}") + b"POST /other HTTP/1.1\r\nX: "])
def test_a_request_within_a_head_is_none(beginning: bytes) -> None:
    heads = learnt(request(b"{}"))
    heads.parsed(beginning, None)
    assert heads.again(request(b"{}")) is None


def test_a_body_that_looks_like_a_request_is_none() -> None:
    heads, inner = learnt(request(b"{}")), request(b"{}")
    whole = request(inner)
    heads.parsed(whole[: -len(inner)], parsed(whole[: -len(inner)]))
    assert heads.again(inner) is None
    heads.parsed(inner, None)
    assert heads.again(inner) is not None  # now it is one


def test_a_client_whose_heads_always_differ_costs_nothing_more_after_some() -> None:
    heads = Heads()
    for number in range(9):
        data = request(b"{}").replace(b"me", b"%d" % number)
        heads.parsed(data, parsed(data))
    assert heads.again(request(b"{}").replace(b"me", b"8")) is None
    assert heads.again(request(b"{}").replace(b"me", b"3")) is not None


async def test_a_whole_body_reads_as_any_other() -> None:
    protocol = Mock(_loop=asyncio.get_running_loop(), _reading_paused=False)
    for slot in StreamReader.__slots__:
        getattr(WholeBody(protocol, b"abc"), slot)
    assert WholeBody(protocol, b"abc").read_nowait() == b"abc"
    assert await WholeBody(protocol, b"abc").readany() == b"abc"
    assert await WholeBody(protocol, b"abc").read() == b"abc"
    assert [part async for part in WholeBody(protocol, b"abcde").iter_chunked(2)] == [b"ab", b"cd", b"e"]
    half = WholeBody(protocol, b"abc")
    assert (half.read_nowait(2), half.read_nowait(), half.read_nowait()) == (b"ab", b"c", b"")
    assert half.at_eof()
    taken = WholeBody(protocol, b"abc")
    assert (taken.is_eof(), taken.at_eof(), taken.read_nowait(), taken.at_eof()) == (True, False, b"abc", True)
    failed = WholeBody(protocol, b"abc")
    failed.set_exception(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        failed.read_nowait()


async def seen_by(
    server: Callable[[Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]], Any], reads: Iterable[bytes]
) -> list[Seen]:
    """The requests that a server sees where its connection brings these reads."""
    seen: list[Seen] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        seen.append((request.method, request.path_qs, request.raw_headers, list(request.headers.items()), body))
        return web.Response()

    transport = Mock(is_closing=lambda: False, get_extra_info=lambda *_: None)
    connection = server(handler)()
    connection.connection_made(transport)
    for read in reads:
        connection.data_received(read)
        for _ in range(20):
            await asyncio.sleep(0)
    connection.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    return seen


ours = lambda handler: ClientServer(handler, ConnectionLimits(), access_log=None)  # noqa: E731
theirs = lambda handler: web.Server(handler, access_log=None)  # noqa: E731

KNOWN = request(b"{}")
REQUESTS = st.one_of(
    st.just(KNOWN),
    st.sampled_from([b"", b"x" * 12, KNOWN, HEAD[:20], b"\r\n\r\n"]).map(request),
    st.sampled_from(
        [
            KNOWN.replace(b": 2", b": 02"),
            KNOWN.replace(b": 2", b":2"),
            KNOWN.replace(b"Content-Length", b"content-length"),
            KNOWN.replace(b"X-Who: me", b"Expect: 100-continue"),
            KNOWN.replace(b"X-Who: me", b"Connection: keep-alive"),
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nX: ",
            b"\r\n",
            b"{}",
        ]
    ),
)
ENDS = st.sampled_from([0, 0, 0, 0, 0, 0, 5, 30, -1, -5, -90, None])
"""How far from the end of a request its read ends; None where it goes on."""


@pytest.mark.slow
@settings(unhurried, max_examples=400)
@given(requests=st.lists(st.tuples(REQUESTS, ENDS), min_size=2, max_size=8))
def test_whatever_comes_the_same_requests_are_seen(requests: list[tuple[bytes, int | None]]) -> None:
    whole, places = b"", {0}
    for one, end in [(KNOWN, 0), *requests]:
        whole += one
        if end is not None:
            places.add(max(len(whole) + end, 0))
    cuts = sorted({place for place in places if place < len(whole)} | {len(whole)})
    reads = [whole[begin:end] for begin, end in pairwise(cuts)]

    async def both() -> tuple[list[Seen], list[Seen]]:
        return await seen_by(ours, reads), await seen_by(theirs, reads)

    mine, reference = asyncio.run(both())
    assert mine == reference


async def test_requests_of_one_head_are_served_each_with_its_own_body() -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        for text in ("one", "two and three", "four"):
            body = json.dumps({"model": "qwen2.5:0.5b", "prompt": text, "stream": False}).encode()
            client.writer.write(request(body).replace(b"/api/chat", b"/api/generate"))
            assert (await client.rest(await client.head())).status == 200
            assert json.loads(line.got("/api/generate")[-1].body)["prompt"] == text
        server = line.gate.entrance._server
        assert server is not None
        [connection] = server.connections
        assert isinstance(connection, ClientConnection)
        assert connection._heads._unlike == 0  # the last one's head was known
