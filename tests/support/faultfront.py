"""A gate in front of a fault proxy in front of a rehearsal, and what has to be true once a fault is over."""

import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings
from support.dialects import events
from support.faultproxy import FaultProxy
from support.gate import running_gate
from support.http import Reply, ask
from support.waiting import until

MODEL = "rehearsal-go"
EMBEDDER = "rehearsal-embed"
TALK = [{"role": "user", "content": "Say hello."}]
END_MARKS = (b"[DONE]", b"message_stop", b"response.completed", b'"done":true')
"""What tells a client, in one dialect or another, that a stream is whole."""


@dataclass(frozen=True, slots=True)
class Way:
    """One guarded route."""

    path: str
    asked: Mapping[str, Any]
    native: str
    """The route on which Ollama is asked."""

    def body(self, *, stream: bool = True) -> dict[str, Any]:
        """A request for a stream, or for an answer in one piece."""
        return {"model": MODEL, "stream": stream, **self.asked}

    def error(self, reply: Reply) -> Mapping[str, Any]:
        """The error of an answer that is one: its message as `message`, the gate's code as `code` where it has one."""
        told = reply.json
        if isinstance(told["error"], str):
            return {**told, "message": told["error"]}
        error: Mapping[str, Any] = told["error"]
        return error

    def error_event(self, reply: Reply) -> Any:
        """The error with which a stream that has begun is broken off; None on the native routes, which have none."""
        if self.path.startswith("/api/"):
            return None
        for name, data in events(reply.body.decode()):
            if name == "response.failed":
                return data["response"]["error"]
            if isinstance(data, dict) and name in ("", "error") and "error" in data:
                return data["error"]
            if name == "error":
                return data
        return None


WAYS = {
    "chat": Way("/api/chat", {"messages": TALK}, "/api/chat"),
    "generate": Way("/api/generate", {"prompt": "Say hello."}, "/api/generate"),
    "openai": Way("/v1/chat/completions", {"messages": TALK}, "/api/chat"),
    "completions": Way("/v1/completions", {"prompt": "Say hello."}, "/api/generate"),
    "responses": Way("/v1/responses", {"input": "Say hello."}, "/api/chat"),
    "anthropic": Way("/v1/messages", {"messages": TALK, "max_tokens": 50}, "/api/chat"),
}


@dataclass(slots=True)
class Behind:
    """A gate whose Ollama can be broken."""

    gate: Gate
    proxy: FaultProxy
    ollama: Rehearsal
    log: io.StringIO
    asked: int = field(default=0, init=False)
    """Inference requests that were made."""

    async def ask(self, way: Way, *, stream: bool = True) -> Reply:
        """One request of a client, and its whole answer."""
        return await self.post(way.path, way.body(stream=stream))

    async def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """The same with a body of the test's."""
        self.asked += 1
        return await ask(self.gate.address, "POST", path, body)

    @contextmanager
    def impatient(self, seconds: float = 0.1) -> Iterator[None]:
        """Wait no longer than this for Ollama as long as the block runs."""
        upstream = self.gate.wiring.upstream
        before = upstream.settings
        upstream.settings = replace(before, idle_timeout=seconds)
        for kept in tuple(upstream._idle):
            kept.abort()
        yield
        upstream.settings = before
        for connection in upstream._all:
            connection._idle_timeout = before.idle_timeout

    def told(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of one kind."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    async def rid_of_it(self) -> None:
        """The request is over: it holds no slot, no memory and no connection, and has its one line in the log."""
        await until(lambda: not self.gate.turns)
        self.gate.wiring.settler.catch_up()
        scheduler = self.gate.wiring.admission.gatekeeper.scheduler
        assert [(queue.running, queue.waiting) for queue in scheduler.queues.values()] in ([], [(0, 0)])
        upstream, counter = self.gate.wiring.upstream, self.gate.wiring.counter
        # Comparisons that it has set off ask Ollama too, and would meet the next fault.
        await until(lambda: not counter._samples and not any(known.checking for known in counter._models.values()))
        await until(lambda: upstream._all <= set(upstream._idle))
        assert len(self.told("request")) == self.asked
        assert not self.told("internal error")
        assert not self.told("background task failed")

    async def serves(self, way: Way) -> None:
        """The next request of the same kind is answered whole."""
        reply = await self.ask(way)
        assert (reply.status, reply.complete) == (200, True), reply.body
        assert any(mark in reply.body for mark in END_MARKS)
        await self.rid_of_it()


@asynccontextmanager
async def behind(log: io.StringIO, /, **sections: Any) -> AsyncIterator[Behind]:
    """A gate that has met its models, so that a fault meets nothing but the request that a test makes."""
    async with (
        Rehearsal(Settings()) as ollama,
        FaultProxy(("127.0.0.1", ollama.port)) as proxy,
        running_gate(proxy.url, **sections) as gate,
    ):
        for model in (MODEL, EMBEDDER):
            await gate.wiring.catalog.card(model)
        await until(lambda: gate.wiring.up)
        yield Behind(gate, proxy, ollama, log)


def never_ends_cleanly(reply: Reply) -> None:
    """Nobody can take this stream for whole."""
    assert not reply.complete
    for mark in END_MARKS:
        assert mark not in reply.body
