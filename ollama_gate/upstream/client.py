"""The one client towards Ollama: connections, timeouts, and foreign errors turned into the gate's own."""

import asyncio
import io
from collections.abc import AsyncIterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from ollama_gate.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable

_READ_BUFFER: Final = 256 * 1024
_LONGEST_HEADER: Final = 64 * 1024
_IN_PIECES: Final = 1 << 20
"""From how many bytes on a body is sent in pieces: aiohttp writes a `bytes` in one go, whoever waits meanwhile."""


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
        self._base = URL(settings.url)
        self._prefix = self._base.raw_path.rstrip("/")
        self._origin = self._base.origin()
        self._session: aiohttp.ClientSession | None = None
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=settings.connect_timeout, sock_read=settings.idle_timeout
        )

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        connector = aiohttp.TCPConnector(limit=self.settings.max_connections, ttl_dns_cache=60, keepalive_timeout=30)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_READ_BUFFER,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(
        self,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterable[bytes] | None,
    ) -> aiohttp.ClientResponse:
        """Send one request and return when its status line and headers are there; the body is read by the caller.

        Args:
            method: any HTTP method.
            target: raw path and query, as they stand in the request line.
            headers: what goes upstream; Host is set here.
            body: whole, or pieces that are sent as they come.

        Raises:
            UpstreamUnreachable: nothing was sent.
            UpstreamTimeout: no headers within the idle timeout.
            UpstreamBroken: the connection ended before the headers were whole.
        """
        session = self._session
        if session is None:
            raise UpstreamUnreachable("the gate is not started")
        url = self._origin.join(URL(self._prefix + target, encoded=True))
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) >= _IN_PIECES else body
        with foreign_errors():
            return await session._request(  # noqa: SLF001 - what session.request() awaits, without its wrapper object
                method, url, headers=headers, data=data, allow_redirects=False
            )

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
        headers: CIMultiDict[str] = CIMultiDict({"Content-Type": "application/json"} if payload is not None else {})
        body = orjson.dumps(payload) if payload is not None else None
        try:
            async with asyncio.timeout(within):
                answer = await self.send(method, path, headers, body)
                whole = False
                try:
                    with foreign_errors():
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


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Turn aiohttp's and the system's errors into the gate's own."""
    try:
        yield
    except aiohttp.ClientConnectorError as failure:
        raise UpstreamUnreachable(str(failure.os_error) or str(failure)) from failure
    except aiohttp.ConnectionTimeoutError as failure:
        raise UpstreamUnreachable("no connection within the connect timeout") from failure
    except (aiohttp.SocketTimeoutError, aiohttp.ServerTimeoutError) as failure:
        raise UpstreamTimeout("Ollama sent nothing within the idle timeout") from failure
    except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError) as failure:
        raise UpstreamBroken(str(failure) or type(failure).__name__) from failure
