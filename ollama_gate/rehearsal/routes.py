"""Paths to handlers, and the framing of their answers (`server/routes.go:GenerateRoutes, streamResponse`, v0.33)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from ollama_gate.rehearsal import embedding, forms, gojson, inference, library, structs
from ollama_gate.rehearsal.connection import Reply, Request
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.faults import FaultyReply
from ollama_gate.rehearsal.gojson import JsonError
from ollama_gate.rehearsal.inference import Answer, Whole
from ollama_gate.rehearsal.service import Call, faults_of

JSON = [("Content-Type", "application/json; charset=utf-8")]
NDJSON = [("Content-Type", "application/x-ndjson")]
PLAIN_JSON = [("Content-Type", "application/json")]
TEXT = [("Content-Type", "text/plain; charset=utf-8")]
PLAIN_TEXT = [("Content-Type", "text/plain")]
_BLOBS = "/api/blobs/"

Out = Reply | FaultyReply
Route = Callable[[Call, Request, Out], Awaitable[None]]
Form = dict[str, Any]


async def read_body(call: Call, request: Request) -> bytes:
    """The whole body, noted in the journal."""
    body = await request.body()
    call.service.journal.keep(call.entry, body)
    return body


async def read_form(call: Call, request: Request, form: structs.Read, name: str) -> Form:
    """The body as one of Ollama's structs.

    Raises:
        StatusError: 400 with Go's text.
    """
    try:
        return structs.read(await read_body(call, request), form, name)
    except JsonError as wrong:
        raise StatusError(400, str(wrong)) from None


async def send_error(out: Out, wrong: StatusError) -> None:
    """An error in the native shape."""
    await out.send(wrong.status, JSON, gojson.write({"error": wrong.message}))


async def send_json(out: Out, value: Any, status: int = 200) -> None:
    """A whole JSON answer."""
    await out.send(status, JSON, value if isinstance(value, bytes) else gojson.write(value))


async def send_answers(out: Out, answers: AsyncGenerator[Answer], *, stream: bool) -> None:
    """Answers as NDJSON, one line a chunk, or merged into one object."""
    gathered: list[Answer] = []
    started = False
    async with aclosing(answers):
        try:
            async for answer in answers:
                if isinstance(answer, Whole):
                    await send_json(out, answer)
                    return
                if not stream:
                    gathered.append(answer)
                    continue
                if not started:
                    started = True
                    await out.start(200, NDJSON)
                await out.write(gojson.write(answer) + b"\n")
                if out.ended:
                    return
        except StatusError as wrong:
            # Refusals of the handler itself come before any generation; `early` tells them from the runner's.
            await _late_error(out, wrong, started=started, stream=stream)
            return
    if stream:
        if not started:
            await out.start(200, NDJSON)
        await out.end()
    elif gathered:
        await send_json(out, inference.merged(gathered))
    else:
        await out.send(200, JSON)


async def _late_error(out: Out, wrong: StatusError, *, started: bool, stream: bool) -> None:
    line = gojson.write({"error": wrong.message})
    if started:
        await out.write(line + b"\n")
        await out.end()
    elif stream and wrong.of_runner:
        await out.send(wrong.status, PLAIN_JSON, line, flushed=True)
    else:
        await send_error(out, wrong)


def _inference(form: structs.Read, name: str, run: Callable[[Call, Form], AsyncGenerator[Answer]]) -> Route:
    async def route(call: Call, request: Request, out: Out) -> None:
        asked = await read_form(call, request, form, name)
        call.faults += faults_of(asked.get("options"), "")
        await send_answers(out, run(call, asked), stream=asked.get("stream") is not False)

    return route


def _progress(form: structs.Read, name: str, run: Callable[[Any, Form], AsyncGenerator[Answer]]) -> Route:
    """pull, push, create: progress lines, or only the last one."""

    async def route(call: Call, request: Request, out: Out) -> None:
        asked = await read_form(call, request, form, name)
        lines = run(call.service, asked)
        first = await anext(lines)
        if asked.get("stream") is False:
            last = first
            async for line in lines:
                last = line
            await out.send(200, PLAIN_JSON, gojson.write(last))
            return
        await out.start(200, NDJSON)
        try:
            await out.write(gojson.write(first) + b"\n")
            async for line in lines:
                await out.write(gojson.write(line) + b"\n")
        except StatusError as wrong:
            await out.write(gojson.write({"error": wrong.message}) + b"\n")
        await out.end()

    return route


def _embedding(form: structs.Read, name: str, run: Callable[[Call, Form], Awaitable[bytes]]) -> Route:
    async def route(call: Call, request: Request, out: Out) -> None:
        asked = await read_form(call, request, form, name)
        call.faults += faults_of(asked.get("options"), "")
        await send_json(out, await run(call, asked))

    return route


def _fixed(headers: list[tuple[str, str]], body: Callable[[Call], bytes]) -> Route:
    async def route(call: Call, request: Request, out: Out) -> None:  # noqa: ARG001
        await out.send(200, headers, body(call))

    return route


async def _show(call: Call, request: Request, out: Out) -> None:
    await send_json(out, library.show(call.service, await read_form(call, request, forms.SHOW, "ShowRequest")))


async def _copy(call: Call, request: Request, out: Out) -> None:
    library.copy(call.service, await read_form(call, request, forms.COPY, "CopyRequest"))
    await out.send(200, [])


async def _delete(call: Call, request: Request, out: Out) -> None:
    library.delete(call.service, await read_form(call, request, forms.NAMED, "DeleteRequest"))
    await out.send(200, [])


async def _blob_upload(call: Call, request: Request, out: Out) -> None:
    await out.send(await library.upload(call, request, request.path.removeprefix(_BLOBS)), [])


async def _blob_there(call: Call, request: Request, out: Out) -> None:
    there = request.path.removeprefix(_BLOBS) in call.service.blobs
    await out.send(200 if there else 404, [] if there else PLAIN_TEXT, b"" if there else b"404 page not found")


_root = _fixed(TEXT, lambda _: b"Ollama is running")
_version = _fixed(JSON, lambda call: gojson.write({"version": call.service.settings.version}))
_tags = _fixed(JSON, lambda call: gojson.write(library.tags(call.service)))

ROUTES: Mapping[str, Mapping[str, Route]] = {
    "/": {"GET": _root, "HEAD": _root},
    "/api/version": {"GET": _version, "HEAD": _version},
    "/api/status": {"GET": _fixed(JSON, lambda _: b'{"cloud":{"disabled":true,"source":"env"}}')},
    "/api/tags": {"GET": _tags, "HEAD": _tags},
    "/api/ps": {"GET": _fixed(JSON, lambda call: gojson.write(library.ps(call.service)))},
    "/api/show": {"POST": _show},
    "/api/chat": {"POST": _inference(forms.CHAT, "ChatRequest", inference.chat)},
    "/api/generate": {"POST": _inference(forms.GENERATE, "GenerateRequest", inference.complete)},
    "/api/embed": {"POST": _embedding(forms.EMBED, "EmbedRequest", embedding.embed)},
    "/api/embeddings": {"POST": _embedding(forms.EMBEDDINGS, "EmbeddingRequest", embedding.embeddings)},
    "/api/pull": {"POST": _progress(forms.NAMED, "PullRequest", library.pull)},
    "/api/push": {"POST": _progress(forms.NAMED, "PushRequest", library.push)},
    "/api/create": {"POST": _progress(forms.CREATE, "CreateRequest", library.create)},
    "/api/copy": {"POST": _copy},
    "/api/delete": {"DELETE": _delete},
}


def find(path: str) -> Mapping[str, Route] | None:
    """The handlers of a path by method."""
    if path.startswith(_BLOBS) and "/" not in path.removeprefix(_BLOBS) and path != _BLOBS:
        return {"POST": _blob_upload, "HEAD": _blob_there}
    return ROUTES.get(path)
