"""The way of an answer to the client: head and body as HTTP/1.1 wants them, in as few writes as they can go out in.

aiohttp's response objects work out anew what an answer of Ollama's says already, and send its head by itself. They
still serve what is rare: HTTP/1.0, connections that are to be closed, and answers without a body.
"""

from collections.abc import Awaitable, Mapping, Sequence
from email.utils import formatdate
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from ollama_gate.turn import Turn
from ollama_gate.upstream.connection import Answer
from ollama_gate.upstream.headers import for_client
from ollama_gate.window import Ending
from ollama_gate.wire.http1 import answer_head

NO_BODY: Final = frozenset({204, 304})
SERVER: Final = "ollama-gate"
_SERVER_LINE: Final = f"Server: {SERVER}"
_UNBUFFERED: Final = "X-Accel-Buffering: no"
"""Tells nginx, which otherwise keeps a stream back until it is over, to pass it on as it comes."""
_MOST_WAITING: Final = 64 * 1024
"""Bytes that may wait for a slow client before more are read from Ollama; the transport's own mark."""


class Outlet:
    """One answer on its way out. `write` as often as there is something, then `end`.

    Each of them gives what to wait for before the next one, as where the client is slow, or None; and raises
    ConnectionError, at once or when waited for, when the client has gone.
    """

    __slots__ = ("_chunked", "_head", "_request", "_transport", "response")

    def __init__(self, request: web.BaseRequest, head: bytes, *, chunked: bool) -> None:
        """Prepare an answer; its head goes out with the first of its body, or with `flush`.

        Args:
            request: what is answered; see `opened` for which requests can be answered so.
            head: the whole head, Transfer-Encoding included where the body is chunked.
            chunked: whether it is.
        """
        self._request = request
        self._transport = request.transport
        self._head = head
        self._chunked = chunked
        self.response: web.StreamResponse = NOTHING_LEFT
        """What the server is told of it."""

    def flush(self) -> Awaitable[None] | None:
        """Send the head now: nobody knows when there will be something of the body."""
        head, self._head = self._head, b""
        return self._send(head)

    def write(self, data: bytes) -> Awaitable[None] | None:
        """Send some of the body."""
        head, self._head = self._head, b""
        return self._send(b"%b%x\r\n%b\r\n" % (head, len(data), data) if self._chunked else head + data)

    def end(self, data: bytes = b"") -> Awaitable[None] | None:
        """Send the last of the body, or what is left to say when that is out already."""
        head, self._head = self._head, b""
        if self._chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        return self._send(head + data)

    def _send(self, data: bytes) -> Awaitable[None] | None:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if data:
            transport.write(data)
        return self._request.writer.drain() if transport.get_write_buffer_size() > _MOST_WAITING else None


class _ServedOutlet(Outlet):
    """The same by means of the server's own response."""

    __slots__ = ()

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        self._request = request
        self.response = response

    async def flush(self) -> None:
        await self.response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        await self.response.prepare(self._request)
        await self.response.write(data)

    async def end(self, data: bytes = b"") -> None:
        await self.response.prepare(self._request)
        await self.response.write_eof(data)


class _Written(web.StreamResponse):
    """Stands for an answer with which the server has nothing to do."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Do nothing."""
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing."""

    @property
    def keep_alive(self) -> bool | None:
        """Whether another request may follow on the connection: only those are answered this way."""
        return True


NOTHING_LEFT: Final[web.StreamResponse] = _Written()
"""What the server gets for an answer that is out already, or that nobody waits for."""


def opened(request: web.BaseRequest, answer: Answer, turn: Turn, ended: Ending | None = None) -> Outlet:
    """The outlet for an answer of Ollama's; nothing is sent yet.

    Args:
        request: what is answered.
        answer: its status, headers and length are handed on.
        turn: gives the gate's own headers, which replace Ollama's of the same names.
        ended: why the answer ends, where that is known before it begins.
    """
    lines, chunked = for_client(answer.fields, turn.cors), answer.length is None
    own = [*turn.lines(), _SERVER_LINE]
    if ended is not None:
        own.append(f"x-ollama-gate-ended: {ended!s}")
    return _outlet(request, answer.status, answer.reason, lines, own, chunked=chunked)


def begun(request: web.BaseRequest, headers: Mapping[str, str], turn: Turn) -> Outlet:
    """The outlet for a stream that the gate writes itself; nothing is sent yet.

    Args:
        request: what is answered.
        headers: the stream's own.
        turn: gives the gate's.
    """
    own = [f"Date: {formatdate(usegmt=True)}", *map(": ".join, headers.items()), *turn.lines(), _SERVER_LINE]
    return _outlet(request, 200, b"OK", (), own, chunked=True)


def _outlet(
    request: web.BaseRequest, status: int, reason: bytes, lines: Sequence[bytes], own: list[str], *, chunked: bool
) -> Outlet:
    bodiless = request.method == "HEAD" or status in NO_BODY
    if chunked:
        own.append(_UNBUFFERED)
    if request.version == HttpVersion11 and request.keep_alive and not bodiless:
        if chunked:
            own.append("Transfer-Encoding: chunked")
        return Outlet(request, answer_head(status, reason, lines, own), chunked=chunked)
    pairs = [line.partition(":") for line in (*(line.decode("utf-8", "surrogateescape") for line in lines), *own)]
    headers = CIMultiDict([(name, value.strip(" \t")) for name, _, value in pairs])
    response = web.StreamResponse(status=status, reason=reason.decode("latin-1"), headers=headers)
    if chunked and not bodiless and request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    return _ServedOutlet(request, response)
