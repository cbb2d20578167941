"""The upstream of every measurement: a pretended Ollama that only does what a script in the prompt says, very fast.

    python -m bench.upstream --port 12345 [--vocabulary FILE.gguf]

It tells of one model with the rehearsal's small vocabulary, and of a second one with a real vocabulary where a GGUF
file is named. Prompt counts are true, so a proxy that checks them finds nothing to complain about: each distinct body
is rendered and tokenized once, the first time it is seen. Each streamed token's text is the clock at which it was
written (nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share).
"""

import asyncio
import sys
from dataclasses import replace
from time import monotonic_ns
from typing import Any, Final, cast

import click
import orjson
import uvloop

from bench.script import Script, script_of
from ollama_gate.rehearsal import library
from ollama_gate.rehearsal.models import Model, full_name
from ollama_gate.rehearsal.prompting import conversation
from ollama_gate.rehearsal.rendering import STYLES, Conversation
from ollama_gate.rehearsal.service import Service, Settings
from ollama_gate.rehearsal.tools import tool

MODEL: Final = "bench:latest"
REAL: Final = "bench-real:latest"
"""The model with a real vocabulary."""
VERSION: Final = "0.33.0"
_STAMP: Final = b"2026-11-30T08:15:48.246013314Z"
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nDate: Mon, 30 Nov 2026 08:15:48 GMT\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_JSON: Final = (
    b"HTTP/1.1 %d %b\r\nContent-Type: application/json; charset=utf-8\r\nDate: Mon, 30 Nov 2026 08:15:48 GMT\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)
_MESSAGE: Final = b'{"model":"%b","created_at":"%b","message":{"role":"assistant","content":"%b"},"done":'
_ENDING: Final = (
    b'true,"done_reason":"stop","total_duration":116502482,"load_duration":2340588,%b'
    b'"prompt_eval_duration":27432000,"eval_count":%d,"eval_duration":84245000}'
)


class Library:
    """What the upstream says about its models, made once; and the counts of the prompts that it has seen."""

    def __init__(self, vocabulary: str | None) -> None:
        """Describe the models."""
        models = [Model(MODEL, capabilities=("completion", "tools"), context_length=131_072)]
        if vocabulary is not None:
            models.append(replace(models[0], name=REAL, gguf=vocabulary))
        self._service = Service(Settings(models=tuple(models), version=VERSION))
        self._shows: dict[tuple[str, bool], bytes] = {
            (model.name, verbose): orjson.dumps(library.show(self._service, {"model": model.name, "verbose": verbose}))
            for model in models
            for verbose in (False, True)
        }
        self.fixed: dict[bytes, bytes] = {
            b"GET /": b"Ollama is running",
            b"GET /api/version": orjson.dumps({"version": VERSION}),
            b"GET /api/tags": orjson.dumps(library.tags(self._service)),
            b"GET /api/ps": orjson.dumps({"models": [_loaded(model) for model in models]}),
        }
        self._counts: dict[bytes, bytes] = {}

    def show(self, body: bytes) -> bytes | None:
        """The answer of /api/show."""
        asked = orjson.loads(body)
        name = full_name(str(asked.get("model") or asked.get("name")))
        return self._shows.get((name, bool(asked.get("verbose"))))

    def count(self, body: bytes) -> bytes:
        """`"prompt_eval_count":N,` for a body; empty for the real vocabulary, which is not built here."""
        found = self._counts.get(body)
        if found is None:
            asked = orjson.loads(body)
            model = self._service.find_or_404(asked["model"])
            if model.gguf:
                found = b""
            else:
                found = b'"prompt_eval_count":%d,' % len(model.vocabulary.encode(self.rendered(asked)))
            self._counts[body] = found
        return found

    def rendered(self, asked: dict[str, Any]) -> str:
        """The prompt of a chat request."""
        model = self._service.find_or_404(asked["model"])
        told = [tool(one) for one in asked.get("tools") or ()]
        return STYLES[model.text].write(Conversation(conversation(model, asked["messages"]), told))

    def render_only(self, body: bytes) -> bytes:
        """The answer to `_debug_render_only`."""
        asked = orjson.loads(body)
        return orjson.dumps(
            {
                "model": asked["model"],
                "created_at": _STAMP.decode(),
                "message": {"role": "", "content": ""},
                "done": False,
                "_debug_info": {"rendered_template": self.rendered(asked)},
            }
        )


def _loaded(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "size": model.size,
        "digest": model.digest,
        "details": model.details,
        "expires_at": "2026-11-30T08:53:25.234463747Z",
        "size_vram": 0,
        "context_length": 8192,
    }


class Connection(asyncio.Protocol):
    """One client; requests come one after another, never two at once."""

    __slots__ = (
        "_body_at",
        "_ends_at",
        "_held",
        "_left",
        "_library",
        "_loop",
        "_next",
        "_script",
        "_timer",
        "_transport",
    )

    def __init__(self, told: Library) -> None:
        """Know what to answer."""
        self._library = told
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._held = bytearray()
        self._body_at = 0
        self._ends_at = 0
        self._script = Script()
        self._left = 0
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to write to."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def connection_lost(self, _: Exception | None) -> None:
        """Stop a stream that nobody reads."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Collect one request and answer it."""
        held = self._held
        held += data
        while held:
            if not self._ends_at:
                end = held.find(b"\r\n\r\n")
                if end < 0:
                    return
                self._body_at = end + 4
                self._ends_at = self._body_at + _length(bytes(held[:end]).lower())
            if len(held) < self._ends_at:
                return
            line, body = bytes(held[: held.find(b" HTTP/")]), bytes(held[self._body_at : self._ends_at])
            del held[: self._ends_at]
            self._ends_at = 0
            self._answer(line, body)

    def _answer(self, line: bytes, body: bytes) -> None:
        if line == b"POST /api/chat":
            if b'"_debug_render_only":true' in body:
                self._json(200, self._library.render_only(body))
            elif b'"stream":false' in body:
                self._whole(body)
            else:
                self._stream(body)
        elif line == b"POST /api/show":
            answer = self._library.show(body)
            self._json(404, b'{"error":"model not found"}') if answer is None else self._json(200, answer)
        elif (fixed := self._library.fixed.get(line)) is not None:
            self._json(200, fixed)
        else:
            self._json(404, b'{"error":"not part of this measurement"}')

    def _json(self, status: int, body: bytes) -> None:
        if self._transport is not None:
            reason = b"OK" if status == 200 else b"Not Found"
            self._transport.write(_JSON % (status, reason, len(body), body))

    def _whole(self, body: bytes) -> None:
        said = _MESSAGE % (MODEL.encode(), _STAMP, b"Yes.")
        self._json(200, said + _ENDING % (self._library.count(body), 2))

    def _stream(self, body: bytes) -> None:
        script = self._script = script_of(body)
        self._left = script.tokens
        ending = _MESSAGE % (MODEL.encode(), _STAMP, b"") + _ENDING % (self._library.count(body), script.tokens) + b"\n"
        last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(ending), ending)
        if self._transport is None:
            return
        if not script.gap and not script.first:
            self._transport.write(_STREAM + b"".join(_token() for _ in range(script.tokens)))
            self._transport.write(last)
            return
        self._next = self._loop.time() + script.first / 1e6
        self._timer = self._loop.call_at(self._next, self._tick, _STREAM, last)

    def _tick(self, head: bytes, last: bytes) -> None:
        if self._transport is None:
            return
        self._transport.write(head + _token())
        self._left -= 1
        self._next += self._script.gap / 1e6
        if self._left:
            self._timer = self._loop.call_at(self._next, self._tick, b"", last)
        else:
            self._timer = None
            self._transport.write(last)


def _token() -> bytes:
    line = _MESSAGE % (MODEL.encode(), _STAMP, b"%d" % monotonic_ns()) + b"false}\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def _length(head: bytes) -> int:
    at = head.find(b"\r\ncontent-length:")
    return int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


async def _serve(port: int, vocabulary: str | None) -> None:
    told = Library(vocabulary)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(told), "127.0.0.1", port, backlog=1024)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--vocabulary", type=click.Path(exists=True, dir_okay=False))
def main(port: int, vocabulary: str | None) -> None:
    """Serve until the process is ended."""
    uvloop.run(_serve(port, vocabulary))


if __name__ == "__main__":
    main()
