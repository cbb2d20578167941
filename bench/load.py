"""The load: small requests at a given concurrency, first bytes one by one, paced streams with a clock in each token."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic_ns, perf_counter
from typing import Final, Protocol, Self, cast

from bench.http11 import AnswerReader, get

PATIENCE: Final = 60.0
"""Seconds after which a load that does not end is given up."""


class LoadError(RuntimeError):
    """The load did not get the answers it must get; there is nothing to measure."""


class Sink(Protocol):
    """Where an answer goes."""

    def body(self, data: bytes) -> None:
        """Some bytes of the body are there."""
        ...

    def end(self, status: int) -> None:
        """The answer is whole."""
        ...


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, failed: asyncio.Future[None]) -> None:
        """Start unconnected; `failed` is told of a connection that breaks under an answer."""
        self._failed = failed
        self._reader = AnswerReader()
        self._sink: Sink | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to write to."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def send(self, request: bytes, sink: Sink) -> None:
        """Send one request; its answer goes to the sink."""
        if self.transport is None:
            raise LoadError("the connection is closed")
        self._sink = sink
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Hand on what is there."""
        sink, reader = self._sink, self._reader
        if sink is None:
            return
        try:
            body = reader.feed(data)
        except ValueError as wrong:
            self._fail(str(wrong))
            return
        if body:
            sink.body(body)
        if reader.done:
            self._sink = None
            sink.end(reader.status)

    def connection_lost(self, _: Exception | None) -> None:
        """An answer that was not whole is a failure of the whole measurement."""
        self.transport = None
        if self._sink is not None:
            self._fail("a connection was cut in the middle of an answer")

    def _fail(self, why: str) -> None:
        if not self._failed.done():
            self._failed.set_exception(LoadError(why))


class Pool:
    """Connections to one port, open while the block runs."""

    def __init__(self, port: int, size: int) -> None:
        """Open nothing yet."""
        self._port = port
        self._size = size
        self.connections: list[Connection] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        """Connect."""
        loop = asyncio.get_running_loop()
        for _ in range(self._size):
            _, one = await loop.create_connection(lambda: Connection(self.failed), "127.0.0.1", self._port)
            self.connections.append(one)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all."""
        for one in self.connections:
            if one.transport is not None:
                one.transport.abort()
        if self.failed.done() and not self.failed.cancelled():
            self.failed.exception()  # told by `finished` already, if anybody waited
        self.failed.cancel()
        await asyncio.sleep(0)

    async def finished(self, done: asyncio.Future[None]) -> None:
        """Wait for the end of a load.

        Raises:
            LoadError: something went wrong, or it took too long.
        """
        await asyncio.wait((done, self.failed), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            self.failed.result()
        if not done.done():
            raise LoadError(f"no end after {PATIENCE:g} seconds")
        done.result()


@dataclass(slots=True)
class Whole:
    """A sink that keeps one whole answer."""

    done: asyncio.Future[None]
    status: int = 0
    parts: list[bytes] = field(default_factory=list)
    first_at: float = 0.0

    def body(self, data: bytes) -> None:
        """Keep it, and when the first of it came."""
        if not self.parts:
            self.first_at = perf_counter()
        self.parts.append(data)

    def end(self, status: int) -> None:
        """Tell who waits."""
        self.status = status
        self.done.set_result(None)


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body."""
    async with Pool(port, 1) as pool:
        sink = Whole(asyncio.get_running_loop().create_future())
        pool.connections[0].send(request, sink)
        await pool.finished(sink.done)
        return sink.status, b"".join(sink.parts)


async def first_bytes(pool: Pool, request: bytes, count: int) -> list[float]:
    """Seconds from a request to the first byte of its answer's body, one request after another.

    What the upstream says that it paused before its first token is taken off, request by request.
    """
    loop = asyncio.get_running_loop()
    connection = pool.connections[0]
    waits = []
    for _ in range(count):
        sink = Whole(loop.create_future())
        sent_at = perf_counter()
        connection.send(request, sink)
        await pool.finished(sink.done)
        answer = b"".join(sink.parts)
        _expect(sink.status, answer)
        paused = _PAUSED.search(answer)
        waits.append(sink.first_at - sent_at - (int(paused[1]) / 1e9 if paused else 0.0))
    return waits


_PAUSED: Final = re.compile(rb'"total_duration":(\d+)')


@dataclass(slots=True)
class _Stepped:
    """A sink that asks the upstream for the next token as soon as it has the one before."""

    upstream: Connection
    left: int
    done: asyncio.Future[None]

    def body(self, data: bytes) -> None:  # noqa: ARG002 - only that it came
        """Ask for one more."""
        if self.left:
            self.left -= 1
            self.upstream.send(_NEXT, _Ignored())

    def end(self, status: int) -> None:
        """The stream is over."""
        _expect(status, b"")
        self.done.set_result(None)


class _Ignored:
    """A sink for what says nothing."""

    def body(self, data: bytes) -> None:
        """Nothing is kept."""

    def end(self, status: int) -> None:
        """Nobody waits for it."""


_NEXT: Final = get("/next")


async def stepped(pool: Pool, request: bytes, tokens: int, upstream: int) -> None:
    """One stream whose tokens are sent one by one, each when the one before has come (`script.WHEN_ASKED`).

    However slow a proxy is, no two tokens come to it in one read.

    Args:
        pool: connections to the proxy.
        request: a whole request.
        tokens: how many it is answered with.
        upstream: the upstream's own port.
    """
    async with Pool(upstream, 1) as asked:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pool.connections[0].send(request, _Stepped(asked.connections[0], tokens - 1, done))
        await pool.finished(done)


@dataclass(slots=True)
class _Repeated:
    """A sink that sends the next request as soon as an answer is whole, as long as there are any left to send."""

    connection: Connection
    request: bytes
    shared: "_Shared"

    def body(self, data: bytes) -> None:
        """Nothing is kept."""

    def end(self, status: int) -> None:
        """Count, and go on."""
        shared = self.shared
        if status != 200:
            shared.bad = status
        shared.answered += 1
        if shared.left > 0:
            shared.left -= 1
            self.connection.send(self.request, self)
        elif shared.answered == shared.wanted and not shared.done.done():
            shared.done.set_result(None)


@dataclass(slots=True)
class _Shared:
    done: asyncio.Future[None]
    wanted: int
    left: int
    answered: int = 0
    bad: int = 0


async def small_requests(pool: Pool, request: bytes, count: int) -> float:
    """Send `count` requests over all connections of the pool at once; returns the seconds it took."""
    shared = _Shared(asyncio.get_running_loop().create_future(), count, count)
    began = perf_counter()
    for connection in pool.connections[:count]:
        shared.left -= 1
        connection.send(request, _Repeated(connection, request, shared))
    await pool.finished(shared.done)
    _expect(shared.bad or 200, b"")
    return perf_counter() - began


@dataclass(slots=True)
class Streams:
    """What came of paced streams; times in seconds."""

    late: list[float] = field(default_factory=list)
    """How long each token was under way."""
    late_first: list[float] = field(default_factory=list)
    """The same of each stream's first token."""


@dataclass(slots=True)
class _Stream:
    """A sink that reads the clock out of each token; `marker` is what stands before it."""

    seen: Streams
    open: list[int]
    done: asyncio.Future[None]
    marker: bytes
    held: bytes = b""
    first: bool = True

    def body(self, data: bytes) -> None:
        """Read the clocks in these bytes."""
        now = monotonic_ns()
        if self.held:
            data = self.held + data
        *lines, self.held = data.split(b"\n")
        for line in lines:
            at = line.find(self.marker)
            if at < 0:
                continue
            stamp = line[at + len(self.marker) : line.find(b'"', at + len(self.marker))]
            if not stamp.isdigit():
                continue
            late = (now - int(stamp)) / 1e9
            self.seen.late.append(late)
            if self.first:
                self.first = False
                self.seen.late_first.append(late)

    def end(self, status: int) -> None:
        """One stream less."""
        _expect(status, self.held)
        self.open[0] -= 1
        if not self.open[0] and not self.done.done():
            self.done.set_result(None)


async def streams(pool: Pool, requests: Sequence[bytes], tokens: int, marker: bytes = b'"content":"') -> Streams:
    """Send one streaming request over each connection at once, and time every token.

    Args:
        pool: as many connections as requests.
        requests: whole requests.
        tokens: how many each of them is answered with.
        marker: what stands before the clock in a line of the answer.

    Raises:
        LoadError: a token is missing.
    """
    seen, counted = Streams(), [len(requests)]
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for connection, request in zip(pool.connections, requests, strict=True):
        connection.send(request, _Stream(seen, counted, done, marker))
    await pool.finished(done)
    if len(seen.late) != tokens * len(requests):
        raise LoadError(f"{len(seen.late)} tokens came of {tokens * len(requests)}")
    return seen


def _expect(status: int, body: bytes) -> None:
    if status != 200:
        raise LoadError(f"an answer with status {status}: {body[:300]!r}")
