"""A tokenizer that is unloaded, or whose process dies, costs a moment and never a request."""

import pytest

from ollama_gate.counting.channel import Operation
from ollama_gate.counting.remote import RemoteTokenizer, WorkerGone
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import running_gate
from support.http import Reply, ask

CHAT = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "word " * 4000}], "stream": False}
EMBED = {"model": "rehearsal-embed", "input": "word " * 400}


def _numbers(reply: Reply) -> tuple[int, object, object]:
    return reply.status, reply.json["tokens"], reply.json["rung"]


@pytest.mark.slow
async def test_a_tokenizer_that_was_unloaded_is_made_again() -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        for path, body in (("/api/chat", CHAT), ("/api/embed", EMBED)):
            assert (await ask(gate.address, "POST", path, body)).status == 200
        before = [_numbers(await ask(gate.address, "POST", "/gate/count", body)) for body in (CHAT, EMBED)]
        for entry in gate.wiring._store._entries.values():
            await gate.wiring._store._unload(entry)
        gate.wiring.counter._counts = type(gate.wiring.counter._counts)()
        after = [_numbers(await ask(gate.address, "POST", "/gate/count", body)) for body in (CHAT, EMBED)]
    assert before == after
    assert [rung for _, _, rung in before] == ["exact", "exact"]


@pytest.mark.slow
async def test_without_any_tokenizer_bytes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: RemoteTokenizer, operation: Operation, texts: object) -> bytes:
        raise WorkerGone("the tokenizer's process ended")

    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        assert (await ask(gate.address, "POST", "/gate/count", CHAT)).status == 200
        monkeypatch.setattr(RemoteTokenizer, "_ask", gone)
        gate.wiring.counter._counts = type(gate.wiring.counter._counts)()
        chat = await ask(gate.address, "POST", "/gate/count", CHAT)
        embed = await ask(gate.address, "POST", "/gate/count", EMBED)
        # Another text: the pieces of the first one are remembered, and need no tokenizer any more.
        other = {**CHAT, "messages": [{"role": "user", "content": "other " * 4000}]}
        refused = await ask(gate.address, "POST", "/api/chat", other)
    assert (chat.status, chat.json["rung"]) == (200, "bound")
    assert chat.json["why"] == "the tokenizer's process ended"
    assert chat.json["tokens"] > 4 * 4000
    assert (embed.status, embed.json["rung"]) == (200, "bound")
    assert (refused.status, refused.json["code"]) == (400, "context_length_exceeded")


async def test_looking_at_the_status_builds_no_tokenizer() -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        for name in ("rehearsal-go", "rehearsal-tools"):
            await ask(gate.address, "POST", "/api/show", {"model": name})
            await gate.wiring.catalog.card(name)
        status = await ask(gate.address, "GET", "/gate/status")
        started = dict(gate.wiring._store._entries)
    told = {model["name"]: model["tokenizer"] for model in status.json["models"]}
    assert told["rehearsal-tools:latest"] == "not needed yet"
    assert not started
