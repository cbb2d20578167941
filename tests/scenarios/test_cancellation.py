"""A client that leaves, by FIN or by RST, in every phase: Ollama's work ends, the slot is free, and it is no error."""

import asyncio
import io
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiohttp import web

from ollama_gate.app import Gate
from ollama_gate.dialects.lane import Lane
from ollama_gate.errors import Refusal, Refused
from ollama_gate.rehearsal import Rehearsal, Settings
from ollama_gate.rehearsal.journal import Entry
from ollama_gate.requests import AnswerWriter
from ollama_gate.turn import Turn
from support.gate import metric, running_gate
from support.http import Client, ask
from support.scripted import Got, ScriptedOllama
from support.waiting import until

SOON = 1.0
"""Seconds within which Ollama must be rid of the request."""
MODEL = "rehearsal-go"
QUESTION = [{"role": "user", "content": "Speak."}]
CHAT = {"model": MODEL, "messages": QUESTION}
NATIVE: dict[str, tuple[str, dict[str, Any]]] = {
    "/api/chat": ("/api/chat", CHAT),
    "/api/generate": ("/api/generate", {"model": MODEL, "prompt": "Speak."}),
}
TRANSLATED: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/chat/completions": ("/api/chat", CHAT),
    "/v1/completions": ("/api/generate", {"model": MODEL, "prompt": "Speak."}),
    "/v1/messages": ("/api/chat", {**CHAT, "max_tokens": 50}),
    "/v1/responses": ("/api/chat", {"model": MODEL, "input": "Speak."}),
}
LANES = NATIVE | TRANSLATED
ways = pytest.mark.parametrize("how", ["FIN", "RST"])


async def leave(client: Client, how: str) -> None:
    if how == "RST":
        client.reset()
    else:
        await client.close()


@dataclass(frozen=True, slots=True)
class Line:
    """A gate with one slot for each model, in front of a rehearsal."""

    gate: Gate
    ollama: Rehearsal
    log: io.StringIO
    clients: list[Client] = field(default_factory=list)

    async def client(self, path: str, body: Any, **headers: str) -> Client:
        client = await Client.connect(self.gate.address)
        self.clients.append(client)
        await client.send("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return client

    async def reached(self, path: str, number: int = 1) -> Entry:
        """Wait until Ollama has got so many requests for a path."""
        await self.ollama.journal.until(lambda journal: len(journal.to(path)) >= number)
        return self.ollama.journal.to(path)[number - 1]

    async def rid_of(self, entry: Entry) -> None:
        """Wait until Ollama has seen that nobody listens any more."""
        await self.ollama.journal.until(lambda _: entry.client_left, within=SOON)

    async def settled(self, route: str, phase: str) -> None:
        """The request is over, holds nothing, and is told as what it is."""
        await until(lambda: not self.gate.turns, within=SOON)
        scheduler = self.gate.wiring.admission.gatekeeper.scheduler
        assert [queue.running + queue.waiting for queue in scheduler.queues.values()] in ([], [0])
        assert metric(self.gate, "client_gone_total", phase=phase) == 1
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        assert [line for line in lines if line["level"] in ("error", "warning")] == []
        [told] = [line for line in lines if line["event"] == "request" and line["route"] == route]
        assert told["client_gone"] == phase

    async def serves(self) -> None:
        """The one slot is free: the next request is answered."""
        self.ollama.service.faults.active.clear()
        async with asyncio.timeout(10):
            assert (await ask(self.gate.address, "POST", "/api/chat", CHAT)).status == 200


@pytest.fixture
def cache() -> Path:
    """Where built tokenizers are kept; the same for all tests here, so that only the first one builds."""
    return Path(tempfile.gettempdir()) / "ollama-gate-tests"


@pytest.fixture
async def line(written_log: io.StringIO, cache: Path) -> AsyncIterator[Line]:
    counting = {"cache_dir": str(cache)}
    async with Rehearsal(Settings()) as rehearsal, running_gate(rehearsal.url, counting=counting) as gate:
        made = Line(gate, rehearsal, written_log)
        yield made
        for client in made.clients:
            client.reset()


@ways
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages"])
async def test_while_the_body_is_coming(line: Line, path: str, how: str) -> None:
    client = await line.client(path, b'{"model":', Content_Length="500")
    await until(lambda: line.gate.turns)
    await leave(client, how)
    await line.settled(path, "reading")
    assert not line.ollama.journal.to("/api/chat")


@ways
class TestWithAnEmptyCache:
    @pytest.fixture
    def cache(self, tmp_path: Path) -> Path:
        return tmp_path

    async def test_while_the_gate_waits_for_the_vocabulary(self, line: Line, how: str) -> None:
        await line.gate.wiring.catalog.card(MODEL)
        described = len(line.ollama.journal.to("/api/show"))
        line.ollama.fault("hang", path="/api/show")
        client = await line.client(
            "/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "word " * 3000}]}
        )
        await line.reached("/api/show", described + 1)
        await leave(client, how)
        await line.settled("/api/chat", "counting")
        assert not line.ollama.journal.to("/api/chat")

    async def test_while_a_stream_waits_for_the_count_it_begins_with(self, line: Line, how: str) -> None:
        await line.gate.wiring.catalog.card(MODEL)
        line.ollama.fault("hang", path="/api/show")
        line.ollama.fault("hang", path="/api/chat", at="stream", after=1)
        client = await line.client("/v1/messages", {**CHAT, "max_tokens": 50, "stream": True})
        entry = await line.reached("/api/chat")
        await line.ollama.journal.until(lambda _: entry.generated > 0)
        await leave(client, how)
        await line.rid_of(entry)
        await line.settled("/v1/messages", "first byte")


@ways
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_while_ollama_is_asked_for_a_rendering(line: Line, path: str, how: str) -> None:
    line.ollama.fault("hang", path="/api/chat")
    long = {"model": "rehearsal-renderer", "messages": [{"role": "user", "content": "word " * 3000}]}
    client = await line.client(path, long)
    entry = await line.reached("/api/chat")
    assert entry.json()["_debug_render_only"] is True
    await leave(client, how)
    await line.rid_of(entry)
    await line.settled(path, "counting")


@ways
async def test_while_the_count_is_made_that_a_stream_begins_with(line: Line, how: str) -> None:
    """Ollama is asked twice then, for the answer and for the text to be counted; it has to be rid of both."""
    line.ollama.fault("hang", path="/api/chat")
    asked = {"model": "rehearsal-renderer", "messages": QUESTION, "max_tokens": 50, "stream": True}
    client = await line.client("/v1/messages", asked)
    await line.reached("/api/chat", 2)
    entries = line.ollama.journal.to("/api/chat")
    assert sorted("_debug_render_only" in entry.json() for entry in entries) == [False, True]
    await leave(client, how)
    for entry in entries:
        await line.rid_of(entry)
    await line.settled("/v1/messages", "first byte")


@ways
@pytest.mark.parametrize("path", LANES)
async def test_while_it_waits_for_a_slot(line: Line, path: str, how: str) -> None:
    line.ollama.fault("hang", path="/api/chat", times=1)
    first = await line.client("/api/chat", CHAT)
    running = await line.reached("/api/chat")
    waiting = await line.client(path, LANES[path][1])
    await until(lambda: [turn for turn in line.gate.turns.values() if turn.phase == "queued"])
    await leave(waiting, how)
    await until(lambda: len(line.gate.turns) == 1, within=SOON)
    assert metric(line.gate, "client_gone_total", phase="queued") == 1
    await leave(first, how)
    await line.rid_of(running)
    await until(lambda: not line.gate.turns, within=SOON)
    await line.serves()
    # What waited never went to Ollama: only the first request and the last one did.
    assert [entry.path for entry in line.ollama.journal if entry.path in ("/api/chat", "/api/generate")] == [
        "/api/chat",
        "/api/chat",
    ]


@ways
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", LANES)
async def test_before_the_first_byte(line: Line, path: str, stream: object, how: str) -> None:
    native, body = LANES[path]
    line.ollama.fault("hang", path=native)
    client = await line.client(path, {**body, "stream": stream})
    entry = await line.reached(native)
    await leave(client, how)
    await line.rid_of(entry)
    await line.settled(path, "first byte")
    await line.serves()


@ways
@pytest.mark.parametrize("path", LANES)
async def test_in_the_middle_of_a_stream(line: Line, path: str, how: str) -> None:
    native, body = LANES[path]
    line.ollama.fault("hang", path=native, at="stream", after=3)
    client = await line.client(path, {**body, "stream": True})
    reply = await client.head()
    assert await client.next_chunk(reply)
    entry = await line.reached(native)
    await leave(client, how)
    await line.rid_of(entry)
    await line.settled(path, "streaming")
    await line.serves()


@ways
async def test_in_the_middle_of_an_answer_that_is_not_streamed(line: Line, how: str) -> None:
    line.ollama.fault("hang", path="/api/embed", at="stream")
    client = await line.client("/api/embed", {"model": "rehearsal-embed", "input": "Speak."})
    entry = await line.reached("/api/embed")
    await until(lambda: entry.status == 200 or entry.ended is None)
    await leave(client, how)
    await line.rid_of(entry)
    await until(lambda: not line.gate.turns, within=SOON)
    gone = sum(metric(line.gate, "client_gone_total", phase=phase) for phase in ("first byte", "streaming"))
    assert gone == 1


@ways
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_in_the_middle_of_an_error_of_ollamas(path: str, how: str) -> None:
    begun = asyncio.Event()

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 400 Bad Request\r\nContent-Length: 500\r\n\r\n{"error":"the context')
        await writer.drain()
        begun.set()
        await asyncio.Event().wait()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        async with await Client.connect(gate.address) as client:
            await client.send("POST", path, {"model": "llama3.2", "messages": QUESTION, "stream": True})
            await begun.wait()
            await leave(client, how)
        async with asyncio.timeout(SOON):
            await ollama.left.wait()
        await until(lambda: not gate.turns)


@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages"])
async def test_while_it_is_being_refused(line: Line, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is going already, but the request is not cancelled yet: the write of the refusal meets it."""

    def gone(request: web.BaseRequest, lane: Lane, turn: Turn) -> NoReturn:
        assert request.transport is not None
        request.transport.close()
        raise Refused(Refusal(400, "bad_request", "no"))

    monkeypatch.setattr(line.gate.wiring.pipeline, "_at_hand", gone)
    await line.client(path, LANES[path][1])
    await until(lambda: '"client_gone"' in line.log.getvalue())
    await line.settled(path, "reading")


@pytest.mark.parametrize("path", TRANSLATED)
async def test_at_the_head_of_a_stream(line: Line, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, and it is the head of the stream, which goes out with the first of its body, that meets it."""
    pipeline = line.gate.wiring.pipeline
    writer, read = pipeline._writer, pipeline._at_hand
    transports: list[asyncio.BaseTransport | None] = []

    def seen(request: web.BaseRequest, lane: Lane, turn: Turn) -> Any:
        transports.append(request.transport)
        return read(request, lane, turn)

    def gone(*given: Any) -> Callable[[], Awaitable[AnswerWriter]]:
        make = writer(*given)

        async def made() -> AnswerWriter:
            it = await make()
            [transport] = transports
            assert transport is not None
            transport.close()
            return it

        return made

    monkeypatch.setattr(pipeline, "_at_hand", seen)
    monkeypatch.setattr(pipeline, "_writer", gone)
    native, body = TRANSLATED[path]
    line.ollama.fault("hang", path=native, at="stream", after=3)
    await line.client(path, {**body, "stream": True})
    entry = await line.reached(native)
    await until(lambda: '"client_gone"' in line.log.getvalue())
    await line.settled(path, "streaming")
    await line.rid_of(entry)
    await line.serves()


@ways
@pytest.mark.parametrize("path", ["/api/pull", "/v1/models", "/api/nowhere"])
async def test_while_something_is_passed_through(line: Line, path: str, how: str) -> None:
    line.ollama.fault("hang", path=path, at="start")
    client = await line.client(path, {"model": MODEL})
    entry = await line.reached(path)
    await leave(client, how)
    await line.rid_of(entry)
    await until(lambda: not line.gate.turns, within=SOON)
    assert '"level":"error"' not in line.log.getvalue()


@ways
async def test_while_a_blob_is_coming(line: Line, how: str) -> None:
    path = "/api/blobs/sha256:" + "0" * 64
    client = await line.client(path, b"x" * 100_000, Content_Length="10000000")
    entry = await line.reached(path)
    await until(lambda: entry.size > 0)
    await leave(client, how)
    await line.rid_of(entry)
    await until(lambda: not line.gate.turns, within=SOON)
    assert '"level":"error"' not in line.log.getvalue()


async def test_fifty_clients_that_leave_at_once_leave_nothing_behind(line: Line) -> None:
    line.ollama.fault("hang", path="/api/chat")
    clients = [await line.client("/api/chat", CHAT) for _ in range(50)]
    await until(lambda: len(line.gate.turns) == 50)
    entry = await line.reached("/api/chat")
    for client in clients:
        client.reset()
    await line.rid_of(entry)
    await until(lambda: not line.gate.turns, within=5.0)
    [queue] = line.gate.wiring.admission.gatekeeper.scheduler.queues.values()
    assert (queue.running, queue.waiting) == (0, 0)
    gone = {phase: metric(line.gate, "client_gone_total", phase=phase) for phase in ("queued", "first byte")}
    assert sum(gone.values()) == 50
    await line.serves()
