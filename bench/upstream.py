"""The upstream of every measurement: a pretended Ollama that only does what a script in the prompt says, very fast.

    python -m bench.upstream --port 12345 [--vocabulary FILE.gguf]

It tells of one model with the rehearsal's small vocabulary, and of a second one with a real vocabulary where a GGUF
file is named. Prompt counts are true, so a proxy that checks them finds nothing to complain about: a rehearsal beside
it counts each distinct body once, the first time it is seen. Each streamed token's text is the clock at which it was
written (nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share).
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from time import monotonic_ns
from typing import Final, cast

import click
import orjson
import uvloop

from bench import load
from bench.http11 import get, post
from bench.script import WHEN_ASKED, Script, script_of, without_script
from ollama_gate.rehearsal import Model, Rehearsal, Settings
from ollama_gate.tasks import spawn

MODEL: Final = "bench:latest"
REAL: Final = "bench-real:latest"
"""The model with a real vocabulary."""
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
    b'true,"done_reason":"stop","total_duration":%d,"load_duration":2340588,%b'
    b'"prompt_eval_duration":27432000,"eval_count":%d,"eval_duration":84245000}'
)


class Library:
    """What the upstream says about its models, and the prompts that it has counted; all of it from a rehearsal."""

    def __init__(self, rehearsal_port: int) -> None:
        """Know whom to ask."""
        self._port = rehearsal_port
        self._counts: dict[bytes, bytes] = {}
        self.fixed: dict[bytes, bytes] = {b"GET /": b"Ollama is running"}
        """Documents by request line."""
        self.shows: dict[tuple[str, bool], bytes] = {}
        """Answers of /api/show by model and verbosity."""
        self.go_on: Callable[[], None] | None = None
        """Sends the next token of the stream that waits to be asked for it."""

    async def read(self) -> None:
        """Read every document once, so that each can be sent at once."""
        for path in ("/api/version", "/api/tags"):
            _, self.fixed[b"GET " + path.encode()] = await load.ask(self._port, get(path))
        rows = orjson.loads(self.fixed[b"GET /api/tags"])["models"]
        more = {"expires_at": "2026-11-30T08:53:25.234463747Z", "size_vram": 0, "context_length": 8192}
        self.fixed[b"GET /api/ps"] = orjson.dumps({"models": [row | more for row in rows]})
        for row in rows:
            for verbose in (False, True):
                asked = orjson.dumps({"model": row["name"], "verbose": verbose})
                _, self.shows[row["name"], verbose] = await load.ask(self._port, post("/api/show", asked))

    def show(self, body: bytes) -> bytes | None:
        """The answer of /api/show."""
        asked = orjson.loads(body)
        return self.shows.get((str(asked.get("model") or asked.get("name")), bool(asked.get("verbose"))))

    def count_of(self, body: bytes) -> bytes | None:
        """`"prompt_eval_count":N,` for a body that was counted before."""
        return self._counts.get(without_script(body))

    async def count(self, body: bytes) -> None:
        """Count the prompt of a body; with the real vocabulary, which takes a rehearsal long to build, none is told."""
        asked = orjson.loads(body)
        found = b""
        if asked["model"] == MODEL:
            asked |= {"stream": False, "options": {"num_predict": 1}}
            status, told = await load.ask(self._port, post("/api/chat", orjson.dumps(asked)))
            if status == 200:
                found = b'"prompt_eval_count":%d,' % orjson.loads(told)["prompt_eval_count"]
        self._counts[without_script(body)] = found

    async def rehearsed(self, body: bytes) -> tuple[int, bytes]:
        """The rehearsal's own answer to a chat request."""
        return await load.ask(self._port, post("/api/chat", body))


class Connection(asyncio.Protocol):
    """One client; requests come one after another, never two at once."""

    __slots__ = (
        "_began",
        "_body_at",
        "_count",
        "_ends_at",
        "_held",
        "_left",
        "_library",
        "_loop",
        "_next",
        "_paused",
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
        self._count = b""
        self._left = 0
        self._began = self._paused = 0
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
            count = self._library.count_of(body)
            if count is None:
                spawn(self._chat_of_new(body), name="a prompt seen for the first time")
            else:
                self._chat(body, count)
        elif line == b"POST /api/show":
            answer = self._library.show(body)
            self._json(404, b'{"error":"model not found"}') if answer is None else self._json(200, answer)
        elif line == b"GET /next" and (go_on := self._library.go_on) is not None:
            go_on()
            self._json(200, b"{}")
        elif (fixed := self._library.fixed.get(line)) is not None:
            self._json(200, fixed)
        else:
            self._json(404, b'{"error":"not part of this measurement"}')

    async def _chat_of_new(self, body: bytes) -> None:
        if b'"_debug_render_only":true' in body:
            self._json(*await self._library.rehearsed(body))
            return
        await self._library.count(body)
        self._chat(body, self._library.count_of(body) or b"")

    def _chat(self, body: bytes, count: bytes) -> None:
        if b'"stream":false' in body:
            said = _MESSAGE % (MODEL.encode(), _STAMP, b"Yes.")
            self._json(200, said + _ENDING % (116_502_482, count, 2))
        else:
            self._stream(script_of(body), count)

    def _json(self, status: int, body: bytes) -> None:
        if self._transport is not None:
            reason = b"OK" if status == 200 else b"Not Found"
            self._transport.write(_JSON % (status, reason, len(body), body))

    def _stream(self, script: Script, count: bytes) -> None:
        self._script, self._left, self._count = script, script.tokens, count
        if self._transport is None:
            return
        if not script.gap and not script.first:
            self._transport.write(_STREAM + b"".join(_token() for _ in range(script.tokens)))
            self._transport.write(self._last(0))
            return
        self._began = monotonic_ns()
        self._next = self._loop.time() + script.first / 1e6
        self._timer = self._loop.call_at(self._next, self._tick, _STREAM)

    def _tick(self, head: bytes = b"") -> None:
        self._timer = None
        if self._transport is None:
            return
        if head:
            self._paused = monotonic_ns() - self._began
        self._transport.write(head + _token())
        self._left -= 1
        if not self._left:
            self._transport.write(self._last(self._paused))
        elif self._script.gap == WHEN_ASKED:
            self._library.go_on = self._tick
        else:
            self._next += self._script.gap / 1e6
            self._timer = self._loop.call_at(self._next, self._tick)

    def _last(self, paused: int) -> bytes:
        """The last line, which says as `total_duration` how many nanoseconds went by before the first token."""
        ending = _MESSAGE % (MODEL.encode(), _STAMP, b"") + _ENDING % (paused, self._count, self._script.tokens) + b"\n"
        return b"%x\r\n%b\r\n0\r\n\r\n" % (len(ending), ending)


def _token() -> bytes:
    line = _MESSAGE % (MODEL.encode(), _STAMP, b"%d" % monotonic_ns()) + b"false}\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def _length(head: bytes) -> int:
    at = head.find(b"\r\ncontent-length:")
    return int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


async def _serve(port: int, vocabulary: str | None) -> None:
    models = [Model(MODEL, capabilities=("completion", "tools"), context_length=131_072)]
    if vocabulary is not None:
        models.append(replace(models[0], name=REAL, gguf=vocabulary))
    async with Rehearsal(Settings(models=tuple(models))) as rehearsal:
        told = Library(rehearsal.port)
        await told.read()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(told), "127.0.0.1", port, backlog=1024)
        await server.serve_forever()


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--vocabulary", type=click.Path(exists=True, dir_okay=False))
def main(port: int, vocabulary: str | None) -> None:
    """Serve until the process is ended."""
    uvloop.run(_serve(port, vocabulary))


if __name__ == "__main__":
    main()
