"""The client towards Ollama, over real sockets: what is kept, what is cut, what is said of each failure."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from ollama_gate.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from ollama_gate.tasks import spawn
from ollama_gate.upstream.client import Upstream, UpstreamSettings
from support.waiting import until

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(slots=True)
class Peer:
    """One connection as the other side sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> tuple[bytes, bytes]:
        """Head and body of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        return head, await self.reader.readexactly(length)

    async def closed(self) -> bytes:
        """Wait until the client hangs up; what came before."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


Play = Callable[[Peer], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """Plays one part for each connection, in turn; the last one again and again."""

    parts: list[Play]
    port: int = 0
    connections: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


@asynccontextmanager
async def played(*parts: Play, **settings: float) -> AsyncIterator[tuple[Upstream, Server]]:
    server = Server(list(parts))

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        part = server.parts[min(server.connections, len(server.parts) - 1)]
        server.connections += 1
        try:
            await part(Peer(reader, writer))
        finally:
            writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    options = UpstreamSettings(url=f"http://127.0.0.1:{server.port}", **settings)  # type: ignore[arg-type]
    try:
        async with Upstream(options) as upstream, asyncio.timeout(20):
            yield upstream, server
    finally:
        listener.close()
        await listener.wait_closed()


async def twice(peer: Peer) -> None:
    for _ in range(2):
        await peer.request()
        peer.writer.write(WHOLE)
    await peer.closed()


async def get(upstream: Upstream, method: str = "GET", body: bytes | None = None) -> bytes:
    answer = await upstream.send(method, "/x", [], body)
    try:
        return await answer.read()
    finally:
        answer.release()


async def test_a_connection_is_used_again() -> None:
    async with played(twice) as (upstream, server):
        assert await get(upstream) == b"hi"
        assert await get(upstream, "POST", b"{}") == b"hi"
        assert server.connections == 1


async def test_a_request_says_host_and_length_and_nothing_of_its_own() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def part(peer: Peer) -> None:
        seen.append(await peer.request())
        peer.writer.write(WHOLE)
        await peer.closed()

    async with played(part) as (upstream, server):
        answer = await upstream.send("POST", "/api/chat?a=%2F", [b"X-A: b"], b'{"a":1}')
        await answer.read()
        answer.release()
    host = f"127.0.0.1:{server.port}".encode()
    assert seen == [
        (b"POST /api/chat?a=%2F HTTP/1.1\r\nHost: " + host + b"\r\nX-A: b\r\nContent-Length: 7\r\n\r\n", b'{"a":1}')
    ]


async def test_tokens_are_there_as_they_come() -> None:
    go_on = asyncio.Event()

    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(STREAM + b"3\r\none\r\n")
        await go_on.wait()
        peer.writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.closed()

    async with played(part) as (upstream, _):
        answer = await upstream.send("POST", "/", [], b"{}")
        assert (answer.status, answer.reason, answer.length) == (200, b"OK", None)
        assert await answer.readany() == b"one"
        go_on.set()
        assert await answer.readany() == b"two"
        assert await answer.readany() == b""
        answer.release()


async def test_an_answer_that_was_read_can_be_handed_on_once_more() -> None:
    async with played(twice) as (upstream, _):
        answer = await upstream.send("GET", "/", [], None)
        assert await answer.read() == b"hi"
        assert await answer.read() == b"hi"
        assert await answer.readany() == b"hi"
        assert await answer.readany() == b""
        answer.release()


@pytest.mark.parametrize("cut_after", [b"", b"HTTP/1.1 200 OK\r\n", STREAM, STREAM + b"3\r\non"])
async def test_an_answer_that_breaks_off_is_broken(cut_after: bytes) -> None:
    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(cut_after)

    async with played(part) as (upstream, server):
        with pytest.raises(UpstreamBroken, match="closed the connection"):
            await get(upstream, "POST", b"{}")
        assert server.connections == 1  # a POST is never sent again


async def test_what_came_before_the_break_is_still_handed_on() -> None:
    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(STREAM + b"3\r\none\r\n")

    async with played(part) as (upstream, _):
        answer = await upstream.send("POST", "/", [], b"{}")
        assert await answer.readany() == b"one"
        with pytest.raises(UpstreamBroken):
            await answer.readany()
        answer.close()


async def dies_idle(peer: Peer) -> None:
    await peer.request()
    peer.writer.write(WHOLE)
    await peer.request()  # and hangs up instead of answering


async def test_a_kept_connection_that_dies_is_replaced_for_a_request_that_changes_nothing() -> None:
    async with played(dies_idle, twice) as (upstream, server):
        assert await get(upstream) == b"hi"
        assert await get(upstream) == b"hi"
        assert server.connections == 2


async def test_a_post_on_a_kept_connection_that_dies_is_not_sent_again() -> None:
    async with played(dies_idle, twice) as (upstream, server):
        assert await get(upstream) == b"hi"
        with pytest.raises(UpstreamBroken):
            await get(upstream, "POST", b"{}")
        assert server.connections == 1


async def test_a_connection_that_was_closed_while_idle_is_not_used() -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(WHOLE)

    async with played(once, twice) as (upstream, server):
        await get(upstream)
        await until(lambda: all(one.closed for one in upstream._idle))
        assert await get(upstream, "POST", b"{}") == b"hi"
        assert server.connections == 2


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(WHOLE + WHOLE)
        await peer.closed()

    async with played(part, twice) as (upstream, server):
        assert await get(upstream) == b"hi"
        assert await get(upstream) == b"hi"
        assert server.connections == 2


async def test_silence_before_the_answer_is_a_timeout() -> None:
    async def part(peer: Peer) -> None:
        await peer.closed()

    async with played(part, idle_timeout=0.05) as (upstream, _):
        with pytest.raises(UpstreamTimeout, match="before its answer began"):
            await get(upstream, "POST", b"{}")


async def test_silence_in_mid_answer_is_a_timeout() -> None:
    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(STREAM + b"3\r\none\r\n")
        await peer.closed()

    async with played(part, idle_timeout=0.05) as (upstream, _):
        answer = await upstream.send("POST", "/", [], b"{}")
        assert await answer.readany() == b"one"
        with pytest.raises(UpstreamTimeout, match="mid-answer"):
            await answer.readany()
        answer.close()


async def test_where_nobody_listens_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with Upstream(UpstreamSettings(url=url)) as upstream:
            with pytest.raises(UpstreamUnreachable):
                await get(upstream)


async def test_before_the_start_nothing_is_sent() -> None:
    with pytest.raises(UpstreamUnreachable):
        await get(Upstream(UpstreamSettings()))


async def test_a_caller_that_gives_up_cuts_the_connection() -> None:
    began, gone = asyncio.Event(), asyncio.Event()

    async def part(peer: Peer) -> None:
        await peer.request()
        began.set()
        await peer.closed()
        gone.set()

    async with played(part) as (upstream, _):
        task = spawn(get(upstream, "POST", b"{}"), name="caller", quiet=True)
        await began.wait()
        task.cancel()
        await gone.wait()


async def test_an_answer_that_is_closed_early_cuts_the_connection() -> None:
    gone = asyncio.Event()

    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(STREAM + b"3\r\none\r\n")
        await peer.closed()
        gone.set()

    async with played(part) as (upstream, _):
        answer = await upstream.send("POST", "/", [], b"{}")
        answer.close()
        await gone.wait()
        assert not upstream._all


async def test_a_reader_that_waits_makes_ollama_wait() -> None:
    size = 32 << 20
    sent = 0

    async def part(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        peer.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            peer.writer.write(bytes(65536))
            await peer.writer.drain()
            sent += 65536
        await peer.closed()

    async with played(part) as (upstream, _):
        answer = await upstream.send("GET", "/", [], None)
        before = -1
        while before != sent:  # until the other side can send no more
            before = sent
            for _ in range(2000):
                await asyncio.sleep(0)
        assert sent < size // 2
        got = 0
        while data := await answer.readany():
            got += len(data)
        assert got == size
        answer.release()


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_body_of_unknown_length_is_chunked() -> None:
    seen = bytearray()

    async def part(peer: Peer) -> None:
        seen.extend(await peer.reader.readuntil(b"\r\n0\r\n\r\n"))
        peer.writer.write(WHOLE)
        await peer.closed()

    async with played(part) as (upstream, _):
        answer = await upstream.send("POST", "/", [], pieces(b"one", b"", b"and two"))
        assert await answer.read() == b"hi"
        answer.release()
    head, _, body = bytes(seen).partition(b"\r\n\r\n")
    assert b"\r\nTransfer-Encoding: chunked" in head
    assert body == b"3\r\none\r\n7\r\nand two\r\n0\r\n\r\n"


async def test_a_body_of_known_length_is_sent_as_it_is() -> None:
    async def part(peer: Peer) -> None:
        _, body = await peer.request()
        peer.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await peer.closed()

    async with played(part) as (upstream, _):
        answer = await upstream.send("PUT", "/", [b"Content-Length: 6"], pieces(b"one", b"two"))
        assert await answer.read() == b"onetwo"
        answer.release()


async def test_an_answer_may_come_before_the_body_is_out() -> None:
    never = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"begun"
        await never.wait()

    async def part(peer: Peer) -> None:
        await peer.reader.readuntil(b"begun")
        peer.writer.write(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
        await peer.closed()

    async with played(part) as (upstream, _):
        answer = await upstream.send("POST", "/", [], slow())
        assert (answer.status, await answer.read()) == (413, b"no")
        answer.release()
        assert not upstream._idle  # half a request is still in this connection


async def test_a_body_that_fails_fails_the_request() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"begun"
        raise OSError("the client left")

    async def part(peer: Peer) -> None:
        await peer.closed()

    async with played(part) as (upstream, _):
        with pytest.raises(UpstreamBroken, match="the client left"):
            await upstream.send("POST", "/", [], failing())


async def test_no_more_connections_than_allowed() -> None:
    async with played(twice, max_connections=1) as (upstream, server):
        first = await upstream.send("GET", "/", [], None)
        second = spawn(get(upstream), name="second")
        for _ in range(50):
            await asyncio.sleep(0)
        assert server.connections == 1
        await first.read()
        first.release()
        assert await second == b"hi"
        assert server.connections == 1


async def test_a_small_document_is_read() -> None:
    async def part(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}')
        await peer.request()
        peer.writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
        await peer.request()
        peer.writer.write(WHOLE)
        await peer.closed()

    async with played(part) as (upstream, _):
        assert await upstream.get_json("/a") == {"a": 1}
        assert await upstream.post_json("/b", {}) is None
        with pytest.raises(UpstreamBroken, match="not JSON"):
            await upstream.get_json("/c")


async def test_a_small_document_that_does_not_come_is_a_timeout() -> None:
    async def part(peer: Peer) -> None:
        await peer.closed()

    async with played(part) as (upstream, _):
        with pytest.raises(UpstreamTimeout):
            await upstream.exchange("GET", "/", None, within=0.05)
