"""The frame of the /v1 routes: a body becomes a native request, native answers become another API's.

As in Ollama (`middleware/openai.go`, `middleware/anthropic.go`, v0.33) none of them can carry `truncate`, `shift` or
`num_ctx`, so what does not fit is cut; and an error in mid-stream is lost.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from ollama_gate.rehearsal import gojson, inference, structs
from ollama_gate.rehearsal.connection import Headers, Request
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.inference import Answer
from ollama_gate.rehearsal.routes import JSON, PLAIN_JSON, Form, Out, Route, read_form
from ollama_gate.rehearsal.service import Call
from ollama_gate.rehearsal.tools import misfit

SSE = ("Content-Type", "text/event-stream")


class Writer(Protocol):
    """Writes the native answers of one request in another API's shape."""

    headers: Headers
    """Of a stream."""

    def feed(self, answer: Answer) -> list[bytes]:
        """One HTTP chunk an item, for one native answer."""
        ...

    def lost(self) -> list[bytes]:
        """What is written where an error was lost in mid-stream."""
        ...

    def whole(self, answer: Answer) -> Any:
        """The whole answer of a request that wants no stream."""
        ...


class Dialect(Protocol):
    """One inference route under /v1."""

    def native(self, asked: Form) -> Form:
        """The native request.

        Raises:
            StatusError: for what the translation itself refuses.
        """
        ...

    def writer(self, asked: Form, call: Call) -> Writer:
        """What writes the answers to `asked`."""
        ...

    def error(self, status: int, message: str) -> Any:
        """An error in this API's shape."""
        ...


def _check_tools(tools: Sequence[Any]) -> None:
    for wrong in filter(None, map(misfit, tools)):
        raise StatusError(400, f"json: cannot unmarshal into Go struct field .{wrong}: it has another type")


def route(
    dialect: Dialect,
    form: structs.Read,
    name: str,
    run: Callable[[Call, Mapping[str, Any]], AsyncGenerator[Answer]],
) -> Route:
    """A route under /v1 that ends in /api/chat or /api/generate."""

    async def handle(call: Call, request: Request, out: Out) -> None:
        try:
            asked = await read_form(call, request, form, name)
            native = dialect.native(asked)
            _check_tools(native.get("tools") or ())
        except StatusError as refused:  # the middleware's own refusals
            await out.send(refused.status, JSON, gojson.write(dialect.error(refused.status, refused.message)))
            return
        writer = dialect.writer(asked, call)
        await _answer(out, dialect, writer, run(call, native), stream=bool(asked.get("stream")))

    return handle


async def _answer(out: Out, dialect: Dialect, writer: Writer, answers: AsyncGenerator[Answer], *, stream: bool) -> None:
    gathered: list[Answer] = []
    started = False
    async with aclosing(answers):
        try:
            async for answer in answers:
                if not stream:
                    gathered.append(answer)
                    continue
                if not started:
                    started = True
                    await out.start(200, writer.headers)
                for chunk in writer.feed(answer):
                    await out.write(chunk)
                if out.ended:
                    return
        except StatusError as wrong:
            if not started:
                error = gojson.write(dialect.error(wrong.status, wrong.message)) + b"\n"
                await out.send(wrong.status, PLAIN_JSON, error)
                return
            for chunk in writer.lost():
                await out.write(chunk)
    if stream:
        if not started:
            await out.start(200, writer.headers)
        await out.end()
        return
    whole = inference.merged(gathered) if gathered else {}
    await out.send(200, PLAIN_JSON, gojson.write(writer.whole(whole)) + b"\n")


def options_of(asked: Form, names: Mapping[str, str], defaults: Mapping[str, Any]) -> Form:
    """Native options: those of `names` that were given, over `defaults`."""
    given = {native: asked[name] for name, native in names.items() if asked.get(name) is not None}
    return {**defaults, **given}


def texts(value: Any) -> Sequence[str]:
    """A text or a list of them, as `stop` may be; anything else is none, as with Ollama."""
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
