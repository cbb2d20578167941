"""Handing an answer on in another dialect.

A stream is opened when Ollama's first byte is there, so that an error before it keeps its status. Only where Ollama is
silent for long (a model loads, a long prompt is evaluated) is it opened earlier, and kept open with signs of life that
the dialect's clients ignore; an error after that is an event of the dialect, without an end mark.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web

from ollama_gate.errors import Refused, UpstreamBroken, UpstreamError
from ollama_gate.requests import AnswerWriter
from ollama_gate.tasks import spawn
from ollama_gate.turn import Phase, Turn
from ollama_gate.upstream.connection import Answer
from ollama_gate.upstream.outlet import SERVER, Outlet, begun
from ollama_gate.upstream.relay import NO_END_MARK, Observer, Passage, give_back
from ollama_gate.window import ending
from ollama_gate.wire.ndjson import LineSplitter, error_text

SIGNS_EVERY: Final = 15.0
"""Seconds of silence after which a sign of life is sent; agents give up after 300."""

_TOO_DEEP: Final = "Ollama's answer is nested too deeply"
_ERROR_HEADERS: Final[Mapping[str, str]] = {"Content-Type": "application/json"}
MakeWriter = Callable[[], Awaitable[AnswerWriter]]


class Lifeline:
    """Writes a sign of life into an open stream whenever nothing was written for a while.

    One timer for each stream, which is pushed back by looking at the last write, not by being set anew for each token.
    """

    def __init__(self, outlet: Outlet, writer: AnswerWriter, every: float) -> None:
        """Start watching; a sign is written after each `every` seconds of silence."""
        self._outlet = outlet
        self._writer = writer
        self._every = every
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.time()
        self._timer = self._loop.call_later(every, self._look)

    def touched(self) -> None:
        """Note that something was written just now."""
        self._written = self._loop.time()

    def stop(self) -> None:
        """Write nothing more."""
        self._stopped = True
        self._timer.cancel()

    async def sign(self) -> None:
        """Write a sign of life now, and with the first one the head of the stream.

        It is made and written in one step of the event loop: a token that came in between would overtake it.
        """
        if self._stopped:
            return
        self.touched()
        sign = self._writer.keep_alive()
        if (slow := self._outlet.write(sign) if sign else self._outlet.flush()) is not None:
            await slow

    def _look(self) -> None:
        idle = self._loop.time() - self._written
        if idle >= self._every:
            # Its failure is the client's leaving, which the stream's own next write or cancellation tells of.
            spawn(self.sign(), name="sign of life", quiet=True)
            idle = 0.0
        self._timer = self._loop.call_later(max(self._every - idle, 0.01), self._look)


class Translation:
    """One answer on its way into another dialect."""

    def __init__(
        self,
        request: web.BaseRequest,
        *,
        make_writer: MakeWriter,
        turn: Turn,
        observer: Observer,
        passage: Passage,
        clock: Callable[[], float],
        signs_every: float = SIGNS_EVERY,
    ) -> None:
        """Prepare for the answer to one request.

        Args:
            request: the client's request.
            make_writer: makes the dialect's writer; called once, when the first bytes are due.
            turn: the request's record.
            observer: sees Ollama's bytes.
            passage: is filled in.
            clock: steady seconds.
            signs_every: seconds of silence after which a sign of life is sent.
        """
        self._request = request
        self._make_writer = make_writer
        self._turn = turn
        self._observer = observer
        self._passage = passage
        self._clock = clock
        self._signs_every = signs_every
        self._opened: _Opened | None = None

    async def stream(self, sending: Awaitable[Answer]) -> web.StreamResponse:
        """Wait for Ollama's answer and hand it on as a stream.

        Args:
            sending: gives Ollama's answer; what it raises before the stream is open is raised here.

        Raises:
            Refused: from `sending`, before anything was sent to the client.
            UpstreamError: likewise.
        """
        task = asyncio.ensure_future(sending)  # noqa: TID251 - ended below in every case
        answer: Answer | None = None
        try:
            if not (await asyncio.wait({task}, timeout=self._signs_every))[0]:
                await self._sign(await self._open())
            try:
                answer = await task
            except UpstreamError as failure:
                if self._opened is None:
                    raise
                self._turn.failed(failure)
                return await self._break_off(self._opened, 503, str(failure))
            except Refused as no:
                if self._opened is None:
                    raise
                self._turn.code = no.refusal.code
                return await self._break_off(self._opened, no.refusal.status, no.refusal.message, no.refusal.code)
            if answer.status != 200:
                return await self._failed(answer)
            opened = await self._open()
            await self._pump(answer, opened)
            return opened.outlet.response
        finally:
            if self._opened is not None:
                self._opened.lifeline.stop()
            if answer is not None:
                give_back(answer, whole=self._passage.whole)
            elif not task.cancel() and not task.cancelled() and task.exception() is None:
                task.result().close()  # the client left at the very moment of the answer
            del task  # its failure knows this frame, and would keep a body with it until Python looks for cycles

    async def whole(self, answer: Answer, *, marked: bool) -> web.StreamResponse:
        """Hand an answer that is not streamed on.

        Args:
            answer: Ollama's answer.
            marked: whether a whole answer says that it is whole (`done`); embeddings do not.

        Raises:
            UpstreamError: it ended early, or is not what Ollama sends; nothing was sent to the client.
        """
        if answer.status != 200:
            return await self._failed(answer)
        body = await self._read(answer)
        try:
            native = orjson.loads(body)
        except orjson.JSONDecodeError as bad:
            raise UpstreamBroken("Ollama's answer is not JSON") from bad
        if not isinstance(native, dict):
            raise UpstreamBroken("Ollama's answer is not a JSON object")
        if marked and native.get("done") is not True:
            raise UpstreamBroken(error_text(native.get("error")) or NO_END_MARK)
        writer = await self._make_writer()
        try:
            written = writer.whole(native)
        except RecursionError as deep:
            raise UpstreamBroken(_TOO_DEEP) from deep
        own, end = writer.whole_headers, self._passage.end(self._observer)
        if end.done:
            ended = ending(end.done_reason, eval_count=end.eval_count, limit=self._turn.limit)
            own = {**own, "x-ollama-gate-ended": str(ended)}
        return await self._answer(answer.status, written, own)

    async def _failed(self, answer: Answer) -> web.StreamResponse:
        """Hand an error of Ollama's on, in the dialect's shape and with its own status."""
        message = _message(await self._read(answer), answer)
        if self._opened is not None:
            return await self._break_off(self._opened, answer.status, message)
        writer = await self._make_writer()
        return await self._answer(answer.status, writer.failed(answer.status, message), _ERROR_HEADERS)

    async def _read(self, answer: Answer) -> bytes:
        try:
            body = await answer.read()
            self._passage.whole = True
        finally:
            give_back(answer, whole=self._passage.whole)
        self._passage.first_byte_at = self._clock()
        self._passage.bytes = len(body)
        self._observer.feed(body)
        return body

    async def _answer(self, status: int, body: bytes, own: Mapping[str, str]) -> web.StreamResponse:
        headers = {"Server": SERVER, **own, **self._turn.headers()}
        response = web.Response(status=status, body=body, headers=headers)
        self._turn.phase, self._turn.status = Phase.STREAMING, status
        try:
            await response.prepare(self._request)
            await response.write_eof()
            self._turn.phase = Phase.DONE
        except ConnectionError:
            self._turn.left = True
        return response

    async def _open(self) -> "_Opened":
        """Open the client's stream, once."""
        if self._opened is not None:
            return self._opened
        writer = await self._make_writer()
        outlet = begun(self._request, writer.stream_headers, self._turn)
        self._turn.phase, self._turn.status = Phase.STREAMING, 200
        self._opened = _Opened(outlet, writer, Lifeline(outlet, writer, self._signs_every))
        return self._opened

    async def _sign(self, opened: "_Opened") -> None:
        """Let the client have the head of its stream, and a first sign of life."""
        try:
            await opened.lifeline.sign()
        except ConnectionError:
            self._turn.left = True

    async def _pump(self, answer: Answer, opened: "_Opened") -> None:
        passage, outlet, touched = self._passage, opened.outlet, opened.lifeline.touched
        lines, look, translate = LineSplitter(), self._observer.feed, opened.writer.feed
        out: list[bytes] = []

        def translated(data: bytes) -> bytes:
            if passage.first_byte_at is None:
                passage.first_byte_at = self._clock()
            passage.bytes += len(data)
            look(data)
            for line in lines.feed(data):
                out.append(translate(_chunk(line)))  # noqa: PERF401 - what came before a broken line is kept
            written = b"".join(out)
            out.clear()
            return written

        def hand_on(data: bytes) -> Awaitable[None] | None:
            written = translated(data)
            if not written:
                return None
            touched()
            return outlet.write(written)

        try:
            if data := await answer.pour(hand_on):
                out.append(translated(data))
            rest = lines.end()
            if rest:
                out.append(translate(_chunk(rest)))
            end = opened.writer.finish()
            if end is None:
                raise UpstreamBroken(NO_END_MARK)
            passage.whole = True
            opened.lifeline.stop()
            out.append(end)
            if (slow := outlet.end(b"".join(out))) is not None:
                await slow
            self._turn.phase = Phase.DONE
        except (UpstreamError, RecursionError) as broken:
            await self._broke(opened, broken, b"".join(out))
        except ConnectionError:
            self._turn.left = True

    async def _broke(self, opened: "_Opened", broken: UpstreamError | RecursionError, before: bytes) -> None:
        failure = broken if isinstance(broken, UpstreamError) else UpstreamBroken(_TOO_DEEP)
        self._turn.failed(failure)
        await self._break_off(opened, 502, f"the model's answer broke off: {failure}", failure.code, before=before)

    async def _break_off(
        self, opened: "_Opened", status: int, message: str, code: str | None = None, *, before: bytes = b""
    ) -> web.StreamResponse:
        """Send the dialect's error event and cut the connection, so that nobody takes the stream for whole."""
        opened.lifeline.stop()
        try:
            last = before + opened.writer.error(status, message, code)
            if last and (slow := opened.outlet.write(last)) is not None:
                await slow
        except ConnectionError:
            self._turn.left = True
        if self._request.transport is not None:
            # close() sends what is buffered and ends the connection without the last chunk.
            self._request.transport.close()
        return opened.outlet.response


@dataclass(frozen=True, slots=True)
class _Opened:
    """A stream that has begun; its head goes out with the first of it."""

    outlet: Outlet
    writer: AnswerWriter
    lifeline: Lifeline


def _chunk(line: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(line)
    except orjson.JSONDecodeError as bad:
        raise UpstreamBroken("a line of Ollama's answer is not JSON") from bad
    if not isinstance(chunk, dict):
        raise UpstreamBroken("a line of Ollama's answer is not a JSON object")
    return chunk


def _message(body: bytes, answer: Answer) -> str:
    """Ollama's error text, whatever shape it came in."""
    try:
        said = error_text(orjson.loads(body).get("error"))
    except (orjson.JSONDecodeError, AttributeError):
        said = None
    return said or body.decode("utf-8", "replace")[:1000] or f"{answer.status} {answer.reason.decode('latin-1')}"
