"""Connections from clients: how many one client may hold, how slowly it may send, and how its mistakes are answered.

aiohttp reads the requests; what is added here costs a request nothing but a comparison for each read, and spares it a
task of its own, and the parsing of a head that was read before. Once a second all connections are looked through for
those that send a head or a body more slowly than anybody honest does (slowloris).
"""

import asyncio
import ipaddress
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import orjson
from aiohttp import EMPTY_PAYLOAD, HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ollama_gate.access.again import Heads, WholeBody
from ollama_gate.access.hosts import is_loopback

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at all connections."""
RATE_OVER: Final = 30.0
"""Seconds over which the rate of a body is measured."""
_TOO_MANY: Final = orjson.dumps(
    {
        "error": "too many connections from this address (server.connections_per_client): close some",
        "code": "too_many_connections",
        "type": "overloaded_error",
    }
)
_REFUSED: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\nServer: ollama-gate\r\n"
    b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_TOO_MANY), _TOO_MANY)
)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection, and one client, may take; times in seconds."""

    header_timeout: float = 30.0
    body_rate: int = 1024
    """Bytes a second; 0 is no limit."""
    send_timeout: float = 600.0
    """Longest time that an answer waits for its client to take more of it."""
    per_client: int = 512
    """Connections; 0 is no limit."""


class TooSlow(HttpProcessingError):
    """A client sends its body more slowly than `ConnectionLimits.body_rate` allows; it is answered with 408."""

    def __init__(self, rate: int) -> None:
        """Say how slow is too slow."""
        super().__init__(code=408, message=f"the body comes more slowly than {rate} bytes a second", headers=None)


class _InPlace:
    """The event loop as aiohttp sees it while it serves one connection: a request is handled in the connection's task.

    aiohttp makes a task of every request and waits for it at once: two more turns of the loop, one of them before the
    gate has seen anything. From Python 3.12 on it begins such a task eagerly by itself, and needs none of this. A
    request behind which others wait already gets its task all the same, so that a client which sends many at once gives
    way to others between any two.
    """

    __slots__ = ("_behind", "_create_task", "call_at", "create_future", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop, behind: Sized) -> None:
        """Stand for this loop; `behind` are the requests of the connection that were read and wait for their turn."""
        self._behind = behind
        self._create_task = loop.create_task
        self.call_at = loop.call_at
        self.create_future = loop.create_future
        self.time = loop.time

    def create_task(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        """What aiohttp waits for until a request is handled."""
        return self._create_task(work) if self._behind else work


class ClientRequest(web.BaseRequest):
    """A request that has at hand what the gate asks of each, where aiohttp works it out in properties.

    That spares each request 6,000 instructions: a property is an expensive call (Python 3.11).
    """

    # Plain values in the place of aiohttp's properties.
    method = ""
    headers: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()
    rel_url = URL()
    version = HttpVersion11
    keep_alive = False
    content: StreamReader = EMPTY_PAYLOAD

    def __init__(self, message: RawRequestMessage, payload: StreamReader, *rest: Any) -> None:
        """Take over what was read of a request, as aiohttp gives it."""
        super().__init__(message, payload, *rest)
        self.method = message.method
        self.headers = message.headers
        self.raw_headers = message.raw_headers
        self.rel_url = self._rel_url
        self.version = message.version
        self.keep_alive = not message.should_close
        self.content = payload


class ClientConnection(web.RequestHandler):
    """One connection from a client."""

    __slots__ = ("_client", "_heads", "_received", "_seen", "_server", "_since", "_slow_since", "_stuck_since")

    def __init__(self, server: "ClientServer", **how: Any) -> None:
        """Belong to a server."""
        super().__init__(server, **how)
        self._server = server
        self._client = ""
        self._heads = Heads()
        self._since = 0.0
        """The loop's time when a request head began of which only a part has come; 0 when there is none."""
        self._received = 0
        """Bytes, over all requests."""
        self._seen = 0
        """`_received` when the rate of the body under way was looked at last."""
        self._slow_since = 0.0
        """The loop's time when the rate of the body under way was looked at last; 0 when no body is."""
        self._stuck_since = 0.0
        """The loop's time when it was first seen that the client does not take its answer; 0 while it does."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the client's connections, and close one that is too many."""
        peer = transport.get_extra_info("peername")
        client = client_address(peer[0]) if isinstance(peer, tuple) else ""
        most = self._server.limits.per_client
        if most and client and self._server.open_by[client] >= most:
            cast("asyncio.Transport", transport).write(_REFUSED)  # uvloop's is none by name
            transport.close()
            self._force_close = True
            self._manager = None  # so that its end is not one of a connection that began
            return
        self._client = client
        if client:
            self._server.open_by[client] += 1
        self._since = self._loop.time()
        super().connection_made(transport)
        if sys.version_info < (3, 12):
            self._loop = cast("asyncio.AbstractEventLoop", _InPlace(self._loop, self._messages))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count one connection less for its client."""
        if self._client:
            left = self._server.open_by[self._client] - 1
            if left > 0:
                self._server.open_by[self._client] = left
            else:
                del self._server.open_by[self._client]
            self._client = ""
        super().connection_lost(exc)

    def resume_reading(self, *how: bool, **named: bool) -> None:
        """Read on where reading was stopped. aiohttp asks for it twice in every request, mostly for nothing."""
        # aiohttp 3.14.0 knows no buffer that it pauses for.
        if self._reading_paused or self._upgraded or getattr(self, "_buffer_paused", False):
            super().resume_reading(*how, **named)

    def resume_writing(self) -> None:
        """The client takes its answer again."""
        self._stuck_since = 0.0
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and note whether they are part of a head that is not whole yet."""
        self._received += len(data)
        waiter = self._waiter
        if waiter is not None and not waiter.done() and not self._close:
            again = self._heads.again(data)
            if again is not None:
                message, body = again
                self._since = 0.0
                self._request_count += 1
                self._messages.append((message, WholeBody(self, body)))
                waiter.set_result(None)
                return
        requests, under_way = self._request_count, self._current_request
        super().data_received(data)
        begun = self._request_count - requests
        last = self._messages[-1][0] if begun == 1 else None
        self._heads.parsed(data, last if isinstance(last, RawRequestMessage) else None)
        if begun:
            self._since = 0.0
            if under_way is not None:
                self._fail_body(under_way)
        elif not self._since and (waiter := self._waiter) is not None and not waiter.done():
            self._since = self._loop.time()

    def _fail_body(self, under_way: web.BaseRequest) -> None:
        """Let a body that is no HTTP fail now: aiohttp tells of it only behind the request that waits for it."""
        message, _ = self._messages[-1]
        error = getattr(message, "exc", None)
        body = self._messages[-2][1] if len(self._messages) > 1 else under_way.content
        if error is not None and not body.is_eof():
            self._messages.pop()
            body.set_exception(error)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Do what is left to do for an answer; nothing is where the gate has written it itself."""
        if resp is self._server.written and not self._upgraded:
            request._finish()  # noqa: SLF001 - as the one that is spared does
            return resp, False
        return await super().finish_response(request, resp, start_time)

    def look(self, now: float, limits: ConnectionLimits) -> None:
        """Cut the connection, or fail the body under way, where the client is too slow.

        Args:
            now: the loop's time.
            limits: what is too slow.
        """
        if self._paused:
            if not self._stuck_since:
                self._stuck_since = now
            elif now - self._stuck_since >= limits.send_timeout and self.transport is not None:
                self.transport.abort()  # closing would wait for the client to take the rest
                return
        if self._since:
            if now - self._since >= limits.header_timeout:
                self.force_close()
            return
        request = self._current_request
        # A body that waits for the gate, or for Ollama to take it, is not slow.
        if request is None or request.content.is_eof() or self._reading_paused or not limits.body_rate:
            self._slow_since = 0.0
            return
        if not self._slow_since:
            self._slow_since, self._seen = now, self._received
        elif now - self._slow_since >= RATE_OVER:
            if self._received - self._seen < limits.body_rate * (now - self._slow_since):
                request.content.set_exception(TooSlow(limits.body_rate))
                self._slow_since = 0.0
                return
            self._slow_since, self._seen = now, self._received

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is not HTTP, or failed before the gate had it; in Ollama's shape, for the route is not known."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: it cannot become an error")
        # The first sentence says what is wrong; what follows shows what was sent.
        why = (message or type(exc).__name__).split("\n")[0].split(" when reading")[0].rstrip(": .")[:200]
        if "HTTPS traffic" in why:
            why = "this port speaks HTTP, not HTTPS; the operator can change that (server.tls_cert)"
        elif "PRI/Upgrade" in why:
            why = "this port does not speak HTTP/2"
        told = {"error": f"the request breaks the rules of HTTP: {why}", "code": "invalid_http"}
        if status >= 500:
            told = {"error": "the gate failed on this request", "code": "internal_error"}
        kind = "api_error" if status >= 500 else "invalid_request_error"
        response = web.Response(
            status=status,
            body=orjson.dumps({**told, "type": kind}),
            headers={"Content-Type": "application/json; charset=utf-8", "Server": "ollama-gate"},
        )
        response.force_close()
        return response


class ClientServer(web.Server):
    """aiohttp's server, with limits on its connections."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: ConnectionLimits,
        written: web.StreamResponse | None = None,
        **how: Any,
    ) -> None:
        """Take requests with this handler; `how` is aiohttp's.

        Args:
            handler: answers a request.
            limits: on each connection.
            written: what the handler gives for an answer that it has written itself.
            how: aiohttp's own.
        """
        super().__init__(handler, **how)
        self.written = written
        self._how = {name: value for name, value in how.items() if name != "handler_cancellation"}
        self.limits = limits
        self.open_by: Counter[str] = Counter()
        """Connections by client address; this machine's own are not counted."""

    def __call__(self) -> web.RequestHandler:
        """Make the protocol of one more connection."""
        return ClientConnection(self, loop=asyncio.get_running_loop(), **self._how)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> ClientRequest:
        """Make the request that the handler gets."""
        return ClientRequest(message, payload, protocol, writer, task, self._loop)

    def configure(self, limits: ConnectionLimits, how: Mapping[str, Any]) -> None:
        """Take other limits; what is aiohttp's (`how`) holds for connections that are made from here on."""
        self.limits = limits
        self._how |= how

    async def watch(self) -> None:
        """Look through all connections for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look(loop.time())

    def look(self, now: float) -> None:
        """Look through all connections once."""
        for connection in self.connections:
            if isinstance(connection, ClientConnection):
                connection.look(now, self.limits)


@lru_cache(maxsize=4096)
def client_address(peer: str) -> str:
    """What the connections of a client are counted by: its address, of IPv6 the /64; empty for this machine's own."""
    if is_loopback(peer):
        return ""
    try:
        ip = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False).network_address)
    return str(ip)
