"""A scripted Ollama: it describes a few models, and answers inference with exactly the bytes that a test gives it.

For what the rehearsal upstream would not do: recorded exchanges, odd framing, connections cut at a chosen byte.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Got:
    """One request that Ollama got."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


Script = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def whole(
    body: Any, status: int = 200, reason: str = "OK", content_type: str = "application/json; charset=utf-8"
) -> bytes:
    """An answer with a length, as bytes on the wire."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def chunk(data: bytes | str) -> bytes:
    """One HTTP chunk."""
    raw = data.encode() if isinstance(data, str) else data
    return b"%x\r\n%s\r\n" % (len(raw), raw)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def model(name: str, **show: Any) -> dict[str, Any]:
    """A model's /api/show, small: a Go template, no vocabulary, a trained length of 32768."""
    return {
        "modelfile": f"FROM {name}\n",
        "template": "{{ range .Messages }}<|{{ .Role }}|>{{ .Content }}\n{{ end }}",
        "details": {"format": "gguf", "family": "llama", "families": ["llama"]},
        "model_info": {"general.architecture": "llama", "llama.context_length": 32768, "tokenizer.ggml.model": "gpt2"},
        "capabilities": ["completion"],
        **show,
    }


@dataclass(slots=True)
class ScriptedOllama:
    """The server. `script` answers whatever is not a question about models; `got` holds every such request."""

    script: Script
    models: dict[str, dict[str, Any]] = field(default_factory=lambda: {"llama3.2:latest": model("llama3.2")})
    version: str = "0.33.0-rc2"
    tags: bytes | None = None
    """What it says of its models instead of the truth."""
    loaded: list[dict[str, Any]] = field(default_factory=list)
    """What /api/ps lists."""
    got: list[Got] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gate closes a connection while a script still runs."""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return "http://{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**27)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also for a task that is cancelled before it began.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (got := await _read(reader)) is not None:
                answer = self._describe(got)
                if answer is not None:
                    writer.write(answer)
                    continue
                self.got.append(got)
                await self._play(got, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return

    async def _play(self, got: Got, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        playing = asyncio.ensure_future(self.script(got, writer))
        watching = asyncio.ensure_future(_until_closed(reader))
        try:
            await asyncio.wait({playing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                self.left.set()
                raise ConnectionResetError
            playing.result()
        finally:
            for task in (playing, watching):
                task.cancel()
            await asyncio.gather(playing, watching, return_exceptions=True)

    def _describe(self, got: Got) -> bytes | None:
        path = got.target.partition("?")[0]
        if path == "/api/version":
            return whole({"version": self.version})
        if path == "/api/tags":
            if self.tags is not None:
                return whole(self.tags)
            rows = [{"name": name, "model": name, "digest": f"{name}-digest", "size": 1000} for name in self.models]
            return whole({"models": rows})
        if path == "/api/ps":
            return whole({"models": self.loaded})
        if path == "/api/show":
            show = self.models.get(got.json.get("model", ""))
            return whole(show) if show is not None else whole({"error": "not found"}, 404, "Not Found")
        return None


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():
        # The next request on this connection comes only after the answer, so anything else is the end.
        if reader._buffer:  # type: ignore[attr-defined]
            await asyncio.Event().wait()
        await reader._wait_for_data("watch")  # type: ignore[attr-defined]


async def _read(reader: asyncio.StreamReader) -> Got | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rows = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows if row)}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Got(method, target, headers, body)
