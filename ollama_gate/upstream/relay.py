"""Handing an answer of Ollama's on to the client, byte for byte or translated, as it comes.

Every way out runs the same cleanup: the connection to Ollama is given back when its answer was read to the end, and cut
otherwise, so that Ollama stops working when nobody listens any more. A stream that Ollama breaks off is broken off for
the client too: an end that looks clean would be a lie.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import web

from ollama_gate.errors import GateError, UpstreamBroken, UpstreamTimeout
from ollama_gate.tasks import spawn
from ollama_gate.upstream.headers import for_client

NO_BODY: Final = frozenset({204, 304})
SERVER: Final = "ollama-gate"


class ClientGone(GateError):
    """The client closed its connection before its answer was whole."""


class Observer(Protocol):
    """Looks at the bytes of an answer while they pass."""

    def feed(self, data: bytes) -> None:
        """See one run of bytes, as one read brought it."""
        ...


class Translator(Protocol):
    """Turns runs of native bytes into a dialect's bytes."""

    def feed(self, data: bytes) -> bytes:
        """What the client gets for this run; may be empty."""
        ...

    def end(self) -> bytes | None:
        """What closes the stream; None when the answer was not whole, and the client must see that."""
        ...

    def broken(self, message: str) -> bytes:
        """An error in the dialect's form, for a stream that has begun."""
        ...

    def alive(self) -> bytes:
        """A sign of life; empty when the dialect has none."""
        ...


@dataclass(slots=True)
class Passage:
    """What happened while an answer was handed on; filled in as it goes, and read by whoever settles the request."""

    first_byte_at: float | None = None
    """When the first byte of the body was there, in the clock's seconds."""
    bytes: int = 0
    whole: bool = False
    """Whether Ollama's answer was read to its proper end."""


async def relay(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    *,
    extra: Mapping[str, str],
    observer: Observer,
    passage: Passage,
    clock: Callable[[], float],
) -> web.StreamResponse:
    """Hand an answer on unchanged: status, reason phrase, headers and bytes.

    Args:
        request: the client's request.
        answer: Ollama's answer; its status line and headers are here already.
        extra: the gate's own headers.
        observer: sees what passes.
        passage: is filled in.
        clock: steady seconds.

    Raises:
        ClientGone: the client left.
        UpstreamBroken: Ollama's answer ended early; the client's connection has been aborted.
        UpstreamTimeout: Ollama was silent for too long in mid-answer; likewise.
    """
    headers = for_client(answer.headers)
    headers["Server"] = SERVER
    headers.update(extra)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    bodiless = request.method == "HEAD" or answer.status in NO_BODY
    if "Content-Length" not in headers and not bodiless and request.version >= (1, 1):
        response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        if not bodiless:
            await _pump(request, answer, response, observer, passage, clock)
        passage.whole = True
        await response.write_eof()
    except ConnectionError as gone:
        raise ClientGone from gone
    finally:
        give_back(answer, whole=passage.whole)
    return response


async def _pump(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    observer: Observer,
    passage: Passage,
    clock: Callable[[], float],
) -> None:
    read, write, look = answer.content.readany, response.write, observer.feed
    while True:
        data = await read_some(request, read)
        if not data:
            return
        if passage.first_byte_at is None:
            passage.first_byte_at = clock()
        passage.bytes += len(data)
        look(data)
        await write(data)


async def read_some(request: web.BaseRequest, read: Callable[[], Any]) -> bytes:
    """The next run of bytes from Ollama, empty at the end; on a failure the client's connection is aborted."""
    try:
        data: bytes = await read()
    except (aiohttp.SocketTimeoutError, aiohttp.ServerTimeoutError) as failure:
        abort(request)
        raise UpstreamTimeout("Ollama was silent for longer than the idle timeout, in mid-answer") from failure
    except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError) as failure:
        abort(request)
        raise UpstreamBroken(str(failure) or type(failure).__name__) from failure
    return data


def abort(request: web.BaseRequest) -> None:
    """Cut the client's connection, so that it cannot take what it has for a whole answer."""
    if request.transport is not None:
        request.transport.abort()


def give_back(answer: aiohttp.ClientResponse, *, whole: bool) -> None:
    """Return the connection to the pool, or cut it: Ollama stops its work when its caller is gone."""
    if whole:
        answer.release()
    else:
        answer.close()


class Lifeline:
    """Writes a sign of life into an open stream whenever nothing was written for a while.

    One timer for each stream, which is pushed back by looking at the last write, not by being set anew for each token.
    """

    def __init__(self, response: web.StreamResponse, sign: bytes, every: float) -> None:
        """Start watching; `sign` is written after each `every` seconds of silence."""
        self._response = response
        self._sign = sign
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(every, self._look)

    def touched(self) -> None:
        """Note that something was written just now."""
        self._written = self._loop.time()

    def stop(self) -> None:
        """Write nothing more."""
        self._timer.cancel()

    def _look(self) -> None:
        idle = self._loop.time() - self._written
        if idle >= self._every:
            self._task = spawn(self._response.write(self._sign), name="sign of life", quiet=True)
            self._written = self._loop.time()
            idle = 0.0
        self._timer = self._loop.call_later(max(self._every - idle, 0.05), self._look)


async def translate(
    request: web.BaseRequest,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    *,
    translator: Translator,
    observer: Observer,
    passage: Passage,
    clock: Callable[[], float],
    lifeline: Lifeline | None = None,
) -> None:
    """Hand a stream on in another dialect; `response` is prepared already.

    Raises:
        ClientGone: the client left.
        UpstreamBroken: Ollama's answer ended early. The client got the dialect's error and then a cut connection.
        UpstreamTimeout: likewise, after too long a silence.
    """
    read, write = answer.content.readany, response.write
    try:
        while True:
            try:
                data: bytes = await read()
            except (aiohttp.SocketTimeoutError, aiohttp.ServerTimeoutError) as failure:
                await _say_broken(request, response, translator, "the model was silent for too long")
                raise UpstreamTimeout("Ollama was silent for longer than the idle timeout, in mid-answer") from failure
            except (aiohttp.ClientError, aiohttp.http.HttpProcessingError) as failure:
                await _say_broken(request, response, translator, "the connection to the model was lost")
                raise UpstreamBroken(str(failure) or type(failure).__name__) from failure
            if not data:
                break
            if passage.first_byte_at is None:
                passage.first_byte_at = clock()
            passage.bytes += len(data)
            observer.feed(data)
            out = translator.feed(data)
            if out:
                await write(out)
                if lifeline is not None:
                    lifeline.touched()
        passage.whole = True
        last = translator.end()
        if last is None:
            await _say_broken(request, response, translator, "the model's answer ended without its end mark")
            raise UpstreamBroken("the answer ended without done:true")
        if last:
            await write(last)
        await response.write_eof()
    except ConnectionError as gone:
        raise ClientGone from gone
    finally:
        if lifeline is not None:
            lifeline.stop()
        give_back(answer, whole=passage.whole)


async def _say_broken(
    request: web.BaseRequest, response: web.StreamResponse, translator: Translator, message: str
) -> None:
    error = translator.broken(message)
    if error:
        await response.write(error)
    if request.transport is not None:
        # close() sends what is buffered and then ends the connection without the last chunk: the client sees the
        # error and knows that the answer is not whole.
        request.transport.close()
