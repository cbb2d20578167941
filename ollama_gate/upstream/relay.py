"""Handing an answer of Ollama's on to the client, byte for byte or translated, as it comes.

Every way out runs the same cleanup: the connection to Ollama is given back when its answer was read to the end, and cut
otherwise, so that Ollama stops working when nobody listens any more. A stream that Ollama breaks off is broken off for
the client too: an end that looks clean would be a lie. Ollama itself tells that lie where a model repeats one token
over and over (`llm/llama_server.go:Completion`, v0.33: no error, and no last line).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import orjson
from aiohttp import web

from ollama_gate.errors import UpstreamBroken, UpstreamError
from ollama_gate.turn import Phase, Turn
from ollama_gate.upstream.connection import Answer
from ollama_gate.upstream.outlet import NOTHING_LEFT, Outlet, opened
from ollama_gate.window import ending
from ollama_gate.wire.ndjson import StreamEnd, end_of

_STREAMING, _OVER = Phase.STREAMING, Phase.DONE  # an enum's members are slow to get (Python 3.11)
_WHOLE: Final = 1 << 20
"""Longest answer, in bytes, that is handed on in one piece."""

NO_END_MARK: Final = (
    "the answer ended without its end mark, as Ollama's do when a model repeats one token over and over"
)


class Observer(Protocol):
    """Looks at the bytes of an answer while they pass."""

    def feed(self, data: bytes) -> None:
        """See one run of bytes, as one read brought it."""
        ...

    def end(self) -> StreamEnd:
        """What the end of the answer said."""
        ...


@dataclass(slots=True)
class Passage:
    """What happened while an answer was handed on; filled in as it goes, and read by whoever settles the request."""

    first_byte_at: float | None = None
    """When the first byte of the body was there, in the clock's seconds."""
    bytes: int = 0
    whole: bool = False
    """Whether Ollama's answer was read to its proper end."""
    told: StreamEnd | None = None
    """What the end of the answer said, once it was looked for."""

    def end(self, observer: Observer) -> StreamEnd:
        """What the end of the answer said; looked for once, after the last byte has passed."""
        if self.told is None:
            self.told = observer.end()
        return self.told


async def relay(
    request: web.BaseRequest,
    answer: Answer,
    *,
    turn: Turn,
    observer: Observer,
    passage: Passage,
    clock: Callable[[], float],
    marked: bool = False,
) -> web.StreamResponse:
    """Hand an answer on unchanged: status, reason phrase, headers and bytes.

    A client that leaves is noted in the turn; an answer that Ollama breaks off is noted there too, and the client's
    connection is aborted, or ended behind an error line where Ollama ended the answer without saying that it is whole.

    Args:
        request: the client's request.
        answer: Ollama's answer; its status line and headers are here already.
        turn: gives the gate's own headers.
        observer: sees what passes.
        passage: is filled in.
        clock: steady seconds.
        marked: whether it is a stream whose last line says that it is whole (`done`), or what failed.
    """
    response = NOTHING_LEFT
    try:
        outlet = opened(request, answer, turn)
        response = outlet.response
        turn.phase, turn.status = _STREAMING, answer.status

        def hand_on(data: bytes) -> Awaitable[None] | None:
            if passage.first_byte_at is None:
                passage.first_byte_at = clock()
            passage.bytes += len(data)
            slow = outlet.write(data)
            observer.feed(data)  # while it is on its way
            return slow

        if answer.silent and (slow := outlet.flush()) is not None:
            await slow
        data = await answer.pour(hand_on)
        if data:
            if passage.first_byte_at is None:
                passage.first_byte_at = clock()
            passage.bytes += len(data)
            observer.feed(data)
        passage.whole = True
        if marked and answer.length is None and not (end := passage.end(observer)).done and end.error is None:
            await _break_off(request, outlet, data, turn)
            return response
        if (slow := outlet.end(data)) is not None:
            await slow
        turn.phase = _OVER
    except UpstreamError as failure:
        turn.failed(failure)
        abort(request)
    except ConnectionError:
        turn.left = True
    finally:
        give_back(answer, whole=passage.whole)
    return response


relay_marked: Final = partial(relay, marked=True)
"""The same for a stream of Ollama's inference: its last line says that it is whole, or what failed."""


async def relay_whole(
    request: web.BaseRequest,
    answer: Answer,
    *,
    turn: Turn,
    observer: Observer,
    passage: Passage,
    clock: Callable[[], float],
) -> web.StreamResponse:
    """Hand an answer that is not streamed on in one piece, so that a header can say why it ended.

    A long one is handed on as a stream. Go's server tells the length of short answers only (up to 2 KB); others
    show it when so much of them has come.

    Raises:
        UpstreamError: Ollama's answer ended early; nothing has been sent to the client.
    """
    body: bytes | None = None
    if answer.length is None or answer.length <= _WHOLE:
        try:
            body = answer.take() if answer.complete else await answer.read_at_most(_WHOLE)
            passage.whole = body is not None
        except BaseException:
            give_back(answer, whole=False)
            raise
    if body is None:
        return await relay(request, answer, turn=turn, observer=observer, passage=passage, clock=clock)
    give_back(answer, whole=True)
    passage.first_byte_at, passage.bytes = clock(), len(body)
    end = passage.told = end_of(body)
    ended = ending(end.done_reason, eval_count=end.eval_count, limit=turn.limit) if end.done else None
    turn.phase, turn.status = _STREAMING, answer.status
    outlet = opened(request, answer, turn, ended)
    try:
        if (slow := outlet.end(body)) is not None:
            await slow
        turn.phase = _OVER
    except ConnectionError:
        turn.left = True
    return outlet.response


async def _break_off(request: web.BaseRequest, outlet: Outlet, before: bytes, turn: Turn) -> None:
    """Send an error line, in Ollama's own form, and end the connection without the last chunk."""
    failure = UpstreamBroken(NO_END_MARK)
    turn.failed(failure)
    line = orjson.dumps({"error": f"the model's answer broke off: {failure}"}) + b"\n"
    if (slow := outlet.write(before + line)) is not None:
        await slow
    if request.transport is not None:
        request.transport.close()  # what is buffered is sent first


def abort(request: web.BaseRequest) -> None:
    """Cut the client's connection, so that it cannot take what it has for a whole answer."""
    if request.transport is not None:
        request.transport.abort()


def give_back(answer: Answer, *, whole: bool) -> None:
    """Return the connection to the pool, or cut it: Ollama stops its work when its caller is gone."""
    if whole:
        answer.release()
    else:
        answer.close()
