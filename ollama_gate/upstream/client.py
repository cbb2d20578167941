"""The one client towards Ollama: connections that are kept and used again, and the requests that go over them."""

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import orjson

from ollama_gate.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from ollama_gate.upstream.connection import Answer, Connection
from ollama_gate.wire.http1 import request_head

_KEPT_IDLE: Final = 30.0
"""Seconds that an unused connection is kept."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose request may be sent a second time when a kept connection turns out to be dead."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """Where Ollama is and how patient the gate is with it; times in seconds."""

    url: str = "http://127.0.0.1:11434"
    connect_timeout: float = 5.0
    idle_timeout: float = 600.0
    """Longest silence of Ollama, before the first byte or between two. A model load is silent for minutes."""
    forward_authorization: bool = False
    max_connections: int = 0
    """Most connections at one time; 0 is no limit."""


class Upstream:
    """Requests to one Ollama over pooled connections.

    There is no total timeout and no retry: an answer may take hours, and a POST that may have arrived is never sent
    again.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        """Keep the settings; connections are opened when they are needed."""
        self.settings = settings
        parts = urlsplit(settings.url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if secure else 80)
        self._prefix = parts.path.rstrip("/")
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._named = shown if self._port == (443 if secure else 80) else f"{shown}:{self._port}"
        self._tls = ssl.create_default_context() if secure else None
        self._open = False
        self._idle: list[Connection] = []
        """Kept connections, the one used last at the end."""
        self._all: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._places = asyncio.Semaphore(settings.max_connections) if settings.max_connections else None

    async def __aenter__(self) -> Self:
        """Take requests from here on."""
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        self._open = False
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in tuple(self._all):
            connection.abort()
        self._idle.clear()
        self._all.clear()
        await asyncio.sleep(0)  # their transports close in the loop's next turn

    async def send(
        self,
        method: str,
        target: str,
        lines: list[bytes],
        body: bytes | AsyncIterable[bytes] | None,
        *,
        meanwhile: Callable[[], None] | None = None,
    ) -> Answer:
        """Send one request and return when its status line and headers are there; the body is read by the caller.

        Args:
            method: any HTTP method.
            target: raw path and query, as they stand in the request line.
            lines: the headers that go upstream. Host is set here, and what frames the body: Content-Length of a whole
                one, Transfer-Encoding of pieces whose length they do not say.
            body: whole, or pieces that are sent as they come.
            meanwhile: is called once the request is on its way, for what can be done while nothing else can.

        Raises:
            UpstreamUnreachable: nothing was sent.
            UpstreamTimeout: no headers within the idle timeout.
            UpstreamBroken: the connection ended before the headers were whole.
        """
        if not self._open:
            raise UpstreamUnreachable("the gate is not started")
        if isinstance(body, bytes):
            lines = [*lines, b"Content-Length: %d" % len(body)]
        elif body is not None and not any(map(says_length, lines)):
            lines = [*lines, b"Transfer-Encoding: chunked"]
            body = _chunked(body)
        elif body is None and method not in _SAFE and not any(map(says_length, lines)):
            lines = [*lines, b"Content-Length: 0"]
        try:
            head = request_head(method, self._prefix + target, self._named, lines)
        except ValueError as bad:
            raise UpstreamUnreachable(str(bad)) from bad
        if self._places is not None:
            await self._places.acquire()
        connection: Connection | None = None
        try:
            while True:
                kept = self._kept()
                connection = kept if kept is not None else await self._connect()
                try:
                    connection.start(head, body, bodiless=method == "HEAD")
                    if meanwhile is not None:
                        meanwhile()
                    while (answer := connection.reader.head) is None:
                        await connection.changed()
                except UpstreamBroken:
                    if kept is None or kept.heard or body is not None or method not in _SAFE:
                        raise
                    self._forget(kept)  # closed by the other side just before it was used again
                    continue
                return Answer(answer, connection, self._given_back)
        except BaseException:
            if connection is not None:
                connection.abort()
                self._forget(connection)
            if self._places is not None:
                self._places.release()
            raise

    def _kept(self) -> Connection | None:
        """The connection that was used last, if it is still good."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
            self._all.discard(connection)
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: Connection(self.settings.idle_timeout), self._host, self._port, ssl=self._tls
                )
        except TimeoutError as failure:
            raise UpstreamUnreachable("no connection within the connect timeout") from failure
        except OSError as failure:  # refused, unknown name, TLS
            raise UpstreamUnreachable(str(failure) or type(failure).__name__) from failure
        self._all.add(connection)
        return connection

    def _given_back(self, connection: Connection) -> None:
        if connection.reusable() and self._open:
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            self._idle.append(connection)
            if self._sweep is None:
                self._sweep = loop.call_later(_KEPT_IDLE, self._drop_old)
        else:
            connection.abort()
            self._forget(connection)
        if self._places is not None:
            self._places.release()

    def _drop_old(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEPT_IDLE
        for connection in [one for one in self._idle if one.closed or one.idle_since <= oldest]:
            connection.abort()
            self._forget(connection)
        self._sweep = loop.call_later(_KEPT_IDLE, self._drop_old) if self._idle else None

    def _forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def get_json(self, path: str, *, within: float = 10.0) -> Any:
        """Read a small JSON document of Ollama's; None when it answers with an error."""
        return await self._json("GET", path, None, within)

    async def post_json(self, path: str, payload: Mapping[str, Any], *, within: float = 30.0) -> Any:
        """Ask Ollama for a JSON document; None when it answers with an error."""
        return await self._json("POST", path, payload, within)

    async def _json(self, method: str, path: str, payload: Mapping[str, Any] | None, within: float) -> Any:
        status, raw = await self.exchange(method, path, payload, within=within)
        if status != 200:
            return None
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as bad:
            raise UpstreamBroken(f"Ollama's answer to {path} is not JSON") from bad

    async def exchange(
        self, method: str, path: str, payload: Mapping[str, Any] | None, *, within: float
    ) -> tuple[int, bytes]:
        """Send a small request of the gate's own and read the whole answer.

        Raises:
            UpstreamError: there was no whole answer within so many seconds.
        """
        lines = [b"Content-Type: application/json"] if payload is not None else []
        body = orjson.dumps(payload) if payload is not None else None
        try:
            async with asyncio.timeout(within):
                answer = await self.send(method, path, lines, body)
                whole = False
                try:
                    raw = await answer.read()
                    whole = True
                finally:
                    if whole:
                        answer.release()
                    else:
                        answer.close()
        except TimeoutError as slow:
            raise UpstreamTimeout(f"Ollama did not answer {path} within {within:g} seconds") from slow
        return answer.status, raw


def answer_of(raw: bytes) -> dict[str, Any]:
    """The JSON object that Ollama answered.

    Raises:
        UpstreamBroken: it is none.
    """
    try:
        tree = orjson.loads(raw)
    except orjson.JSONDecodeError:
        tree = None
    if not isinstance(tree, dict):
        raise UpstreamBroken("its answer is no JSON object")
    return tree


def says_length(line: bytes) -> bool:
    """Whether this header is the length of a body."""
    return line[:15].lower() == b"content-length:"


async def _chunked(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a body of unknown length, framed."""
    async for piece in pieces:
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"
