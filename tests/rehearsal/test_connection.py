"""The rehearsal's own HTTP/1.1: what it accepts in any slicing, and how it ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ollama_gate.rehearsal.connection import Connection, Reply, Request
from support.rawhttp import exchange, read_answer, request_bytes

Serve = Callable[[Callable[[Request, Reply], Awaitable[None]]], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    connections: set[Connection] = set()
    servers: list[asyncio.Server] = []

    async def start(handler: Callable[[Request, Reply], Awaitable[None]]) -> str:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(handler, connections), "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
    for connection in tuple(connections):
        await connection.close()


async def echo(request: Request, reply: Reply) -> None:
    body = await request.body()
    await reply.send(200, [("X-Target", request.target)], body)


class _Transport(asyncio.Transport):
    """Takes what is written; nothing is ever read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    bodies=st.lists(st.binary(max_size=60), min_size=1, max_size=3),
    framing=st.integers(0, 7),
    cuts=st.lists(st.integers(1, 30), min_size=1),
)
def test_requests_are_read_the_same_in_any_slicing(bodies: list[bytes], framing: int, cuts: list[int]) -> None:
    wire = b""
    for body in bodies:
        if framing and body:
            head = request_bytes("POST", "/echo?x=1", [("Transfer-Encoding", "chunked")])
            wire += head + chunked(body, framing)
        else:
            wire += request_bytes("POST", "/echo?x=1", [("Content-Length", str(len(body)))]) + body
    seen: list[bytes] = []

    async def handler(request: Request, reply: Reply) -> None:
        seen.append(await request.body())
        await reply.send(200, [])

    async def feed() -> bytes:
        connection, transport = Connection(handler, set()), _Transport()
        connection.connection_made(transport)
        at = turn = 0
        while at < len(wire):
            size = cuts[turn % len(cuts)]
            connection.data_received(wire[at : at + size])
            at, turn = at + size, turn + 1
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        return transport.written

    written = asyncio.run(feed())
    assert seen == bodies
    assert written.count(b"HTTP/1.1 200 OK\r\n") == len(bodies)


async def test_small_answers_have_a_length_and_large_ones_are_chunked(serve: Serve) -> None:
    url = await serve(echo)
    small = await exchange(url, "POST", "/a%20b?q=%20", body=b"x" * 2048)
    large = await exchange(url, "POST", "/", body=b"x" * 2049)
    assert (small.header("Content-Length"), small.header("X-Target")) == ("2048", "/a%20b?q=%20")
    assert (large.header("Transfer-Encoding"), large.chunks) == ("chunked", [b"x" * 2049])


async def test_large_bodies_are_not_gathered(serve: Serve) -> None:
    biggest = 0

    async def measure(request: Request, reply: Reply) -> None:
        nonlocal biggest
        total = 0
        async for piece in request.pieces():
            biggest = max(biggest, len(piece))
            total += len(piece)
        await reply.send(200, [], str(total).encode())

    answer = await exchange(await serve(measure), "POST", "/", body=b"x" * 20_000_000)
    assert answer.body == b"20000000"
    assert biggest < 2_000_000


async def test_a_waiting_client_is_told_to_go_on(serve: Serve) -> None:
    url = await serve(echo)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request_bytes("POST", "/", [("Expect", "100-continue"), ("Content-Length", "2")]))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hi")
    assert (await read_answer(reader)).body == b"hi"
    writer.close()


async def test_an_unread_body_does_not_spoil_the_next_request(serve: Serve) -> None:
    async def lazy(request: Request, reply: Reply) -> None:
        await reply.send(200, [], request.target.encode())

    url = await serve(lazy)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    for path in ("/one", "/two"):
        writer.write(request_bytes("POST", path, [], b"unread" * 1000))
        assert (await read_answer(reader)).body == path.encode()
    writer.close()


@pytest.mark.parametrize(
    "wire",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"],
)
async def test_what_is_not_http_is_refused(serve: Serve, wire: bytes) -> None:
    url = await serve(echo)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(wire)
    assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    writer.close()


@pytest.mark.parametrize("how", ["half-close", "reset"])
async def test_a_client_that_leaves_ends_the_handler(serve: Serve, how: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work(request: Request, reply: Reply) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    url = await serve(work)
    _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request_bytes("POST", "/", [], b"x"))
    await started.wait()
    if how == "half-close":
        writer.write_eof()
    else:
        writer.transport.abort()
    async with asyncio.timeout(5):
        await ended.wait()
    writer.close()
