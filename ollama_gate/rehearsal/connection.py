"""An HTTP/1.1 server small enough to misbehave on purpose: every byte it sends is decided here.

It frames as Go's net/http does: a body of up to 2048 bytes that is known when the handler ends has a Content-Length,
anything else is chunked, one chunk a write.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

_HEAD_LIMIT = 1 << 20
_BODY_WINDOW = 1 << 18
"""Bytes of a request body that are held before the client is told to wait; also what is read of an unread body."""
_SMALL = 2048
"""Go's buffer: a longer body is sent chunked."""
_NO_BODY = {204, 304}
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
)
_CHUNK_SIZE, _CHUNK_END = -1, -2
"""In a chunked request body: the next thing is a chunk's size line, or the line end after its bytes."""

Headers = Sequence[tuple[str, str]]
Handler = Callable[["Request", "Reply"], Awaitable[None]]

log = logging.getLogger("ollama_gate.rehearsal")


class Request:
    """One request; its body arrives while it is handled."""

    def __init__(self, method: str, target: str, headers: Headers, connection: "Connection") -> None:
        """Take what stood in the head."""
        self.method = method
        self.target = target
        """Path and query as sent."""
        self.path = unquote(target.partition("?")[0])
        self.headers = headers
        self._connection = connection
        self._pieces: list[bytes] = []
        self._held = 0
        self._news = asyncio.Event()
        self.whole = False
        """The last byte of the body is here."""

    def header(self, name: str) -> str:
        """The first header of that name, any case; empty when there is none."""
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), "")

    def feed(self, piece: bytes, *, last: bool) -> None:
        """Take body bytes from the connection."""
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)
            if self._held > _BODY_WINDOW:
                self._connection.pause_reading()
        self.whole = last
        self._news.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        self._connection.send_continue()
        while True:
            self._news.clear()
            held, self._pieces, self._held = self._pieces, [], 0
            self._connection.resume_reading()
            for piece in held:
                yield piece
            if self.whole and not self._pieces:
                return
            if not self._pieces:
                await self._news.wait()

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])


class Reply:
    """One answer: either `send` once, or `start`, any number of `write`, and `end`."""

    def __init__(self, request: Request, connection: "Connection", *, keep_alive: bool) -> None:
        """Answer `request` on `connection`."""
        self._request = request
        self._connection = connection
        self._chunked = False
        self.keep_alive = keep_alive
        self.status = 0
        """Sent status; 0 before."""
        self.ended = False
        self.extra: Headers = ()
        """Headers that every answer to this request carries."""

    async def send(
        self, status: int, headers: Headers, body: bytes = b"", *, flushed: bool = False, claimed: int | None = None
    ) -> None:
        """Send a whole answer.

        Args:
            status: of the answer.
            headers: without those of framing.
            body: all of it.
            flushed: frame it as a handler does that flushes before it ends.
            claimed: a Content-Length that is not the body's; the connection is closed afterwards.
        """
        if claimed is not None:
            self.keep_alive = False
            self._put(self._head(status, headers, [("Content-Length", str(claimed))]) + body)
            self.ended = True
            return
        if flushed or len(body) > _SMALL:
            await self.start(status, headers)
            await self.write(body)
            await self.end()
            return
        length = [] if status in _NO_BODY else [("Content-Length", str(len(body)))]
        shown = b"" if self._request.method == "HEAD" or status in _NO_BODY else body
        self._put(self._head(status, headers, length) + shown)
        self.ended = True
        await self._connection.drain()

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of an answer whose length is not known."""
        self._chunked = True
        self._put(self._head(status, headers, [("Transfer-Encoding", "chunked")]))

    async def write(self, chunk: bytes) -> None:
        """Send one chunk."""
        if self._request.method != "HEAD":
            self._put(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await self._connection.drain()

    async def end(self) -> None:
        """Send the last chunk."""
        if self._chunked and self._request.method != "HEAD":
            self._put(b"0\r\n\r\n")
        self.ended = True
        await self._connection.drain()

    def raw(self, data: bytes) -> None:
        """Send bytes that need not be HTTP; the connection is not used again."""
        self.keep_alive = False
        self._put(data)

    def break_off(self, *, reset: bool) -> None:
        """End the connection now: with a reset, or after what was written with a plain close."""
        self.keep_alive = False
        self.ended = True
        self._connection.break_off(reset=reset)

    def _head(self, status: int, headers: Headers, framing: Headers) -> bytes:
        self.status = status
        closing = [] if self.keep_alive else [("Connection", "close")]
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        own = sorted((*headers, *self.extra), key=lambda header: header[0])  # as Go writes them
        lines += [f"{n}: {v}" for n, v in (*own, ("Date", formatdate(usegmt=True)), *framing, *closing)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _put(self, data: bytes) -> None:
        self._connection.put(data)


class _Malformed(Exception):
    """The bytes are not an HTTP/1.1 request."""


class Connection(asyncio.Protocol):
    """One client's connection. A client that leaves cancels the handler, as Go cancels the request's context."""

    def __init__(self, handler: Handler, open_connections: set["Connection"]) -> None:
        """Serve requests with `handler`; stand in `open_connections` while open."""
        self._handler = handler
        self._open = open_connections
        self._buffer = bytearray()
        self._request: Request | None = None
        self._left = 0
        """Body bytes still to come, of the body or of one chunk; or one of the two below."""
        self._chunked = False
        self._expects = False
        self._keep_alive = True
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The client is gone: so is the work done for it."""
        self._open.discard(self)
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        """Parse what can be parsed."""
        self._buffer += data
        self._advance()
        if len(self._buffer) > _HEAD_LIMIT:
            self.pause_reading()

    def put(self, data: bytes) -> None:
        """Write now."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken enough."""
        if not self._can_write.is_set():
            await self._can_write.wait()

    def pause_reading(self) -> None:
        """Let the client wait."""
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let the client go on."""
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def send_continue(self) -> None:
        """Answer `Expect: 100-continue` once somebody wants the body."""
        if self._expects:
            self._expects = False
            self.put(b"HTTP/1.1 100 Continue\r\n\r\n")

    def break_off(self, *, reset: bool) -> None:
        """Close without finishing an answer."""
        if reset:
            self._transport.abort()
        else:
            self._transport.close()

    async def close(self) -> None:
        """Stop the handler and close."""
        task = self._task
        self._transport.abort()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _advance(self) -> None:
        try:
            if self._task is None:
                self._read_head()
            if self._request is not None and not self._request.whole:
                self._read_body(self._request)
        except _Malformed:
            self.put(_BAD_REQUEST)
            self._transport.close()

    def _read_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise _Malformed
            return
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        try:
            method, target, version = lines[0].split(" ")
        except ValueError:
            raise _Malformed from None
        headers = [_header(line) for line in lines[1:]]
        request = Request(method, target, headers, self)
        self._keep_alive = version == "HTTP/1.1" and request.header("Connection").lower() != "close"
        self._expects = request.header("Expect").lower() == "100-continue"
        self._chunked = request.header("Transfer-Encoding").lower() == "chunked"
        length = request.header("Content-Length") or "0"
        if not length.isdecimal() or not version.startswith("HTTP/1."):
            raise _Malformed
        self._left = _CHUNK_SIZE if self._chunked else int(length)
        request.whole = self._left == 0
        self._request = request
        self._task = asyncio.get_running_loop().create_task(self._serve(request))

    def _read_body(self, request: Request) -> None:
        while True:
            if self._left == _CHUNK_END:
                if len(self._buffer) < 2:
                    return
                self._end_chunk()
            if self._left == _CHUNK_SIZE:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    return
                size = _chunk_size(bytes(self._buffer[:end]))
                if size == 0:
                    if not self._buffer.startswith(b"\r\n", end + 2):
                        return  # trailers are not expected; wait for the empty line
                    del self._buffer[: end + 4]
                    request.feed(b"", last=True)
                    return
                del self._buffer[: end + 2]
                self._left = size
            piece = bytes(self._buffer[: self._left])
            if not piece and self._left:
                return
            del self._buffer[: len(piece)]
            self._left -= len(piece)
            if not self._chunked:
                request.feed(piece, last=self._left == 0)
                return
            request.feed(piece, last=False)
            if self._left == 0:
                self._left = _CHUNK_END

    def _end_chunk(self) -> None:
        if not self._buffer.startswith(b"\r\n"):
            raise _Malformed
        del self._buffer[:2]
        self._left = _CHUNK_SIZE

    async def _serve(self, request: Request) -> None:
        reply = Reply(request, self, keep_alive=self._keep_alive)
        try:
            await self._handler(request, reply)
            await self._discard(request, reply)
        except asyncio.CancelledError:
            self._transport.abort()
            return
        except Exception:
            log.exception("the rehearsal failed on %s %s", request.method, request.target)
            self._transport.abort()
            return
        self._task = None
        self._request = None
        if not reply.keep_alive or not reply.ended:
            self._transport.close()
            return
        self.resume_reading()
        self._advance()

    async def _discard(self, request: Request, reply: Reply) -> None:
        """Read away a little of a body that nobody wanted, as Go does; close when there is more."""
        if request.whole or not reply.keep_alive:
            return
        self._expects = False
        size = 0
        async for piece in request.pieces():
            size += len(piece)
            if size > _BODY_WINDOW:
                reply.keep_alive = False
                return


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise _Malformed
    return name, value.strip(" \t")


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise _Malformed from None
