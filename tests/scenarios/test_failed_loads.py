"""What is booked for a load after Ollama failed: freed when nothing was loaded, kept while nobody can know."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ollama_gate.admission.holdings import Holding
from ollama_gate.app import Gate
from support.gate import running_gate
from support.http import Reply, ask
from support.scripted import Got, ScriptedOllama, whole
from support.waiting import until

MODEL = "llama3.2:latest"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": False}
EXCEEDED = '{"error":{"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}'
Script = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


async def silent(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def closes(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cannot_load(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(whole({"error": "model requires more system memory"}, 500, "Internal Server Error"))


async def too_long(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(whole({"error": EXCEEDED}, 500, "Internal Server Error"))


def holdings(gate: Gate) -> list[Holding]:
    return list(gate.wiring.admission.gatekeeper.scheduler.ledger)


async def after(script: Script) -> tuple[Reply, list[Holding]]:
    """One request for a cold model, and what is booked when it is over."""
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, upstream={"idle_timeout": 0.3}) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
        await until(lambda: not gate.turns)
        assert all(not queue.running for queue in gate.wiring.admission.gatekeeper.scheduler.queues.values())
        return reply, holdings(gate)


@pytest.mark.parametrize(("script", "status"), [(silent, 504), (closes, 502)])
async def test_a_load_that_may_still_be_under_way_keeps_its_memory(script: Script, status: int) -> None:
    reply, [left] = await after(script)
    assert reply.status == status
    assert left.booked > 0
    assert left.users == 0
    assert left.abandoned_at is not None


async def test_a_load_that_failed_takes_no_memory_once_ollama_does_not_list_it() -> None:
    async with ScriptedOllama(cannot_load) as ollama, running_gate(ollama.url) as gate:
        assert (await ask(gate.address, "POST", "/api/chat", CHAT)).status == 500
        await until(lambda: holdings(gate) == [])


async def test_a_model_that_says_a_prompt_is_too_long_is_loaded() -> None:
    reply, [left] = await after(too_long)
    assert reply.status == 400
    assert left.abandoned_at is None
    assert left.stage.value == "resident"


async def test_a_request_that_never_left_takes_no_memory() -> None:
    async with ScriptedOllama(cannot_load) as ollama, running_gate(ollama.url) as gate:
        await ask(gate.address, "POST", "/gate/count?route=/api/chat", CHAT)  # the card is at hand from here on
        await ollama.__aexit__(None, None, None)
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
        assert reply.status == 503
        assert holdings(gate) == []
