"""One connection to Ollama: a request goes out, an answer comes in, and its body waits for whoever reads it.

Written for a relay: the body is handed over as the reads brought it, nothing is parsed twice, and there is no object
between the socket and the reader but this one. A reader that is slow makes the socket wait, not the memory grow.
"""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from typing import Final, cast

from ollama_gate.errors import UpstreamBroken, UpstreamError, UpstreamTimeout
from ollama_gate.tasks import spawn
from ollama_gate.wire.http1 import AnswerHead, AnswerReader, Field

_MOST_WAITING: Final = 512 * 1024
"""Bytes of a body that may wait for their reader; beyond that nothing is read from the socket."""
_JOINED: Final = 64 * 1024
"""Longest request body that is copied behind its head, to go out in one write."""

Sink = Callable[[bytes], Awaitable[None] | None]
"""Takes a run of bytes as one read brought it; gives what to wait for before it can take more, or None."""


class Connection(asyncio.Protocol):
    """One connection, used for one exchange at a time."""

    __slots__ = (
        "_body_task",
        "_drained",
        "_failure",
        "_heard_at",
        "_idle_timeout",
        "_loop",
        "_paused",
        "_poured",
        "_sink",
        "_timer",
        "_transport",
        "_waiter",
        "_waiting",
        "closed",
        "heard",
        "idle_since",
        "parts",
        "reader",
    )

    def __init__(self, idle_timeout: float) -> None:
        """Start unconnected.

        Args:
            idle_timeout: seconds of silence, while something is awaited, after which the exchange has failed.
        """
        self._loop = asyncio.get_running_loop()
        self._idle_timeout = idle_timeout
        self.reader = AnswerReader()
        """Reads what comes; its head is there once the answer has begun."""
        self._transport: asyncio.Transport | None = None
        self.parts: list[bytes] = []
        """What of the body has come and was not taken yet."""
        self._waiting = 0
        """Bytes in `parts`."""
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        """Who gets the body as it comes, while `parts` is empty."""
        self._poured: Awaitable[None] | Exception | None = None
        """What became of it, where it takes no more: what to wait for, or how it failed."""
        self._failure: UpstreamError | None = None
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        """Pending while Ollama does not take the request's body as fast as it comes."""
        self._body_task: asyncio.Task[None] | None = None
        self.closed = False
        self.heard = False
        """Whether any byte of the answer has come."""
        self.idle_since = 0.0
        """When its last exchange ended, in the loop's seconds; for the pool."""

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to write to."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """Undo the framing and keep what is the body's."""
        self._heard_at = self._loop.time()
        self.heard = True
        reader = self.reader
        try:
            body = reader.feed(data)
        except UpstreamError as failure:
            self._fail(failure)
            return
        if body:
            if self._sink is not None and not reader.done:
                self._pour(self._sink, body)
                return
            self.parts.append(body)
            self._waiting += len(body)
            if self._waiting > _MOST_WAITING and not self._paused and self._transport is not None:
                self._transport.pause_reading()
                self._paused = True
        elif not reader.done and reader.head is None:
            return
        if reader.excess:
            self.abort()
        self._wake()

    def eof_received(self) -> bool:
        """Let the transport close itself."""
        return False

    def connection_lost(self, failure: Exception | None) -> None:
        """Whatever is still awaited does not come any more."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._body_task is not None:
            self._body_task.cancel()
        try:
            if failure is not None and not self.reader.done:
                raise UpstreamBroken(str(failure) or type(failure).__name__)
            self.reader.end()
        except UpstreamError as broken:
            self._fail(broken)
        self._wake()
        self._transport = None

    def pause_writing(self) -> None:
        """Ollama does not read as fast as the body comes."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """It does again."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # What the client calls.

    def start(self, head: bytes, body: bytes | AsyncIterable[bytes] | None, *, bodiless: bool) -> None:
        """Send a request; `reader.head` is there once its answer has begun.

        Args:
            head: the request's head, with Content-Length, or with Transfer-Encoding where the body is framed already.
            body: the bytes behind it, whole or in pieces.
            bodiless: the answer has no body whatever it says.

        Raises:
            UpstreamBroken: the connection has ended.
        """
        transport = self._transport
        if transport is None or self.closed:
            raise UpstreamBroken("Ollama closed the connection")
        self.reader.begin(bodiless=bodiless)
        self.heard = False
        if isinstance(body, bytes):
            if len(body) <= _JOINED:
                transport.write(head + body)
            else:
                transport.write(head)
                transport.write(body)
        else:
            transport.write(head)
            if body is not None:
                self._body_task = spawn(self._send(body), name="request body", quiet=True)
        self._watch()

    def changed(self) -> Awaitable[None]:
        """Wait until something has come or ended.

        Raises:
            UpstreamTimeout: silence for longer than the idle timeout.
            UpstreamBroken: the connection ended, or what came is not HTTP. All of these are raised at once, before
                there is anything to wait for.
        """
        if self._failure is not None:
            raise self._failure.anew()
        if self.closed:
            raise UpstreamBroken("the connection to Ollama is closed")
        waiter = self._waiter = self._loop.create_future()
        return waiter

    async def pour(self, sink: Sink) -> Awaitable[None] | None:
        """Give what comes to `sink` at once, in the read that brings it, until there is something to wait for.

        A token so goes on its way without a turn of the loop and a task's waking.

        Returns:
            What to wait for before the sink can take more; None where the answer has come to its end, whose last bytes
            are to be taken.

        Raises:
            UpstreamError: as by `changed`.
            Exception: what the sink has raised.
        """
        self._sink = sink
        try:
            await self.changed()
        except BaseException:
            if isinstance(self._poured, Coroutine):
                self._poured.close()  # nobody waits for it any more
            self._poured = None
            raise
        finally:
            self._sink = None
        poured, self._poured = self._poured, None
        if isinstance(poured, Exception):
            raise poured
        return poured

    def take(self) -> bytes:
        """The bytes of the body that are there; empty when there are none."""
        parts = self.parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._waiting = 0
        if self._paused:
            self._paused = False
            self._heard_at = self._loop.time()
            if self._transport is not None:
                self._transport.resume_reading()
        return data

    def reusable(self) -> bool:
        """Whether another exchange may follow: this one went to its end on both sides."""
        sent = self._body_task is None or self._body_task.done()
        return self.reader.done and self.reader.keep_alive and not self.closed and sent and not self.parts

    def abort(self) -> None:
        """End the connection now."""
        self.closed = True
        if self._body_task is not None:
            self._body_task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _pour(self, sink: Sink, body: bytes) -> None:
        try:
            self._poured = sink(body)
        except Exception as failure:  # noqa: BLE001 - raised where it is poured from
            self._poured = failure
        if self._poured is not None:
            self._sink = None
            self._wake()

    def _fail(self, failure: UpstreamError) -> None:
        if self._failure is None:
            self._failure = failure.anew()
        self.abort()
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _send(self, body: AsyncIterable[bytes]) -> None:
        try:
            async for piece in body:
                if self._transport is None:
                    return
                self._transport.write(piece)
                self._heard_at = self._loop.time()
                if self._drained is not None:
                    await self._drained
        except asyncio.CancelledError:
            raise
        except Exception as failure:  # noqa: BLE001 - whoever sends the body may fail in any way
            self._fail(UpstreamBroken(f"the request's body ended early: {failure}"))

    def _watch(self) -> None:
        """Keep one timer for the connection's life; it looks at the clock of the last byte, and is not set anew."""
        self._heard_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_timeout, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.reader.done:
            return  # the next exchange sets it again
        silent = self._loop.time() - self._heard_at
        if silent >= self._idle_timeout and not self._paused:
            phase = "before its answer began" if self.reader.head is None else "in mid-answer"
            self._fail(UpstreamTimeout(f"Ollama was silent for longer than the idle timeout, {phase}"))
            return
        left = self._idle_timeout - silent if silent < self._idle_timeout else self._idle_timeout
        self._timer = self._loop.call_later(left, self._look)


class Answer:
    """Ollama's answer to one request. Give it back with `release` in any case, or cut it with `close`."""

    __slots__ = ("_connection", "_give_back", "_kept", "fields", "length", "reason", "status")

    def __init__(self, head: AnswerHead, connection: Connection, give_back: Callable[[Connection], None]) -> None:
        """Take over a connection whose answer has begun.

        Args:
            head: the answer's head.
            connection: where its body comes from.
            give_back: takes the connection when the body was read, or was cut.
        """
        self.status: int = head.status
        self.reason: bytes = head.reason
        self.fields: tuple[Field, ...] = head.fields
        """Its headers as they came."""
        self.length: int | None = head.length
        """Bytes of the body where the head says it."""
        self._connection: Connection | None = connection
        self._give_back = give_back
        self._kept: bytes | None = None

    async def readany(self) -> bytes:
        """The bytes of the body that are there, waiting for some; empty at its end.

        Raises:
            UpstreamError: the answer breaks off.
        """
        while not (data := self.take()) and not self.done:
            await self.changed()
        return data

    def take(self) -> bytes:
        """The bytes of the body that are there; empty when there are none."""
        if self._kept is not None:
            data, self._kept = self._kept, b""
            return data
        return b"" if self._connection is None else self._connection.take()

    def changed(self) -> Awaitable[None]:
        """Wait until there is more of the body, or it has ended.

        Raises:
            UpstreamError: the answer breaks off, which is raised at once.
        """
        return self._flow().changed()

    async def pour(self, sink: Sink) -> bytes:
        """Give the body to `sink` as it comes, all but the last run of bytes, which is returned: an end belongs to it.

        Raises:
            UpstreamError: the answer breaks off.
            Exception: what the sink raises.
        """
        data = self.take()
        while not self.done:
            slow = sink(data) if data else await self._flow().pour(sink)
            if slow is not None:
                await slow
            data = self.take()
        return data

    def _flow(self) -> Connection:
        if self._connection is None:
            raise UpstreamBroken("the answer was given back")
        return self._connection

    @property
    def silent(self) -> bool:
        """Whether nothing of the body is there, yet or any more."""
        return not self._kept and (self._connection is None or not self._connection.parts)

    @property
    def complete(self) -> bool:
        """Whether all of the body has come, to its proper end."""
        return self._connection is None or self._connection.reader.done

    @property
    def done(self) -> bool:
        """Whether all of the body has come and was taken."""
        connection = self._connection
        return not self._kept and (connection is None or (connection.reader.done and not connection.parts))

    async def read(self) -> bytes:
        """The whole body. Reading takes nothing away: it can be read again, and `readany` gives it once more.

        Raises:
            UpstreamError: the answer breaks off.
        """
        if self._kept is None:
            first = await self.readany()
            parts = [first]
            while data := await self.readany():
                parts.append(data)
            self._kept = first if len(parts) == 1 else b"".join(parts)
        return self._kept

    async def read_at_most(self, most: int) -> bytes | None:
        """The whole body, as by `read`, if it has no more than so many bytes; else None, and none of it is taken away.

        Raises:
            UpstreamError: the answer breaks off before it is whole or too long.
        """
        parts: list[bytes] = []
        size = 0
        while data := await self.readany():
            parts.append(data)
            size += len(data)
            if size > most:
                if self._connection is not None:
                    self._connection.parts[:0] = parts
                return None
        self._kept = b"".join(parts)
        return self._kept

    def release(self) -> None:
        """Let the connection be used again if the answer went to its end; cut it otherwise."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._give_back(connection)

    def close(self) -> None:
        """Cut the connection: Ollama stops its work when its caller is gone."""
        if self._connection is not None:
            self._connection.abort()
            self.release()
