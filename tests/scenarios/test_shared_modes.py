"""Two names over one GGUF in different modes: the count is that of the prompt that really runs, whoever loaded it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from ollama_gate.tasks import spawn
from support.cases import Front
from support.gate import running_gate
from support.http import Reply, ask
from support.waiting import until

NATIVE, RENDERED = "rehearsal-shared-jinja", "rehearsal-shared-go"
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def chat(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Say hi."}], "stream": False, **more}


@asynccontextmanager
async def front(parallel: int = 1, rate: float = 0.0, **sections: Any) -> AsyncIterator[Front]:
    settings = Settings(num_parallel=parallel, rate=rate)
    upstream = {"num_parallel": parallel}
    async with Rehearsal(settings) as ollama, running_gate(ollama.url, upstream=upstream, **sections) as gate:
        yield Front(gate, ollama)


async def exactly(line: Front, body: dict[str, Any]) -> dict[str, Any]:
    """Send it and check its count, which is exact, against what ran."""
    reply = await line.ask("/api/chat", body)
    assert reply.status == 200, reply.body
    counted: dict[str, Any] = (await line.ask("/gate/count", body)).json
    assert (counted["rung"], counted["tokens"]) == ("exact", reply.json["prompt_eval_count"])
    return counted


async def test_without_the_gate_a_native_name_runs_in_the_others_mode() -> None:
    """What this is all about: the same request is another prompt, and with tools an error."""
    async with front() as line:
        quick = chat(NATIVE, think=False)
        alone = (await line.straight("/api/chat", quick)).json["prompt_eval_count"]
        line.ollama.service.scheduler.clear()
        await line.straight("/api/chat", chat(RENDERED))
        assert (await line.straight("/api/chat", quick)).json["prompt_eval_count"] != alone
        assert (await line.straight("/api/chat", chat(NATIVE, tools=[TOOL]))).status == 500


@pytest.mark.parametrize("order", [(RENDERED, NATIVE), (NATIVE, RENDERED), (RENDERED, NATIVE, RENDERED, NATIVE)])
async def test_every_count_is_exact_whoever_came_first(order: tuple[str, ...]) -> None:
    async with front() as line:
        for model in order:
            await exactly(line, chat(model))
            if model == NATIVE:
                await exactly(line, chat(model, think=False))
                await exactly(line, chat(model, tools=[TOOL]))
        loads = line.ollama.service.scheduler.loads
        assert sum(loads.values()) == (2 if order[0] == RENDERED else 1)


async def test_a_runner_that_was_loaded_past_the_gate_is_unloaded_too() -> None:
    async with front() as line:
        await line.straight("/api/chat", chat(RENDERED, options={"num_ctx": 8192}, shift=False, truncate=False))
        line.gate.wiring.admission.gatekeeper.look()
        await until(lambda: line.gate.wiring.catalog.last_known(RENDERED))
        await exactly(line, chat(NATIVE, tools=[TOOL]))


async def test_who_runs_is_not_disturbed_and_all_are_served_in_their_own_mode() -> None:
    async with front(parallel=3, rate=200.0) as line:
        await exactly(line, chat(RENDERED))
        await line.ask("/gate/count", chat(NATIVE))

        async def go(number: int) -> Reply:
            model = NATIVE if number % 2 else RENDERED
            body = chat(model, options={"num_predict": 10 + number}, tools=[TOOL] if number % 2 else [])
            return await ask(line.gate.address, "POST", "/api/chat", body)

        replies = await asyncio.gather(*(go(number) for number in range(8)))
        assert [reply.status for reply in replies] == [200] * 8
        natives = {reply.json["prompt_eval_count"] for reply in replies[1::2]}
        counted = (await line.ask("/gate/count", chat(NATIVE, tools=[TOOL]))).json
        assert natives == {counted["tokens"]}


async def test_a_client_that_leaves_while_the_runner_is_made_free_holds_nobody_up() -> None:
    async with front(parallel=2, rate=20.0) as line:
        await exactly(line, chat(RENDERED, options={"num_predict": 1}))
        await line.ask("/gate/count", chat(NATIVE))
        running = spawn(line.ask("/api/chat", chat(RENDERED, options={"num_predict": 40})), name="it runs")
        admission = line.gate.wiring.admission
        await until(lambda: admission._running(_runner(line)) == 1)
        waiting = spawn(line.ask("/api/chat", chat(NATIVE)), name="it waits")
        await until(lambda: admission._shared._changes)
        waiting.cancel()
        after = await line.ask("/api/chat", chat(RENDERED, options={"num_predict": 2}))
        assert (after.status, (await running).status) == (200, 200)
        assert not admission._shared._changes
        await exactly(line, chat(NATIVE, options={"num_predict": 1}))


def _runner(line: Front) -> str:
    card = line.gate.wiring.catalog.last_known(RENDERED)
    assert card is not None
    return card.runner


def test_the_two_names_share_one_file_in_two_modes() -> None:
    """The rehearsal's models are what these tests take them for."""
    models = {model.name: model for model in Settings().models}
    native, rendered = (models[f"{name}:latest"] for name in (NATIVE, RENDERED))
    assert isinstance(native, Model)
    assert native.blob_digest == rendered.blob_digest
    assert (native.mode, rendered.mode) == (Mode.JINJA, Mode.GO)


async def test_nobody_waits_longer_for_a_runner_in_its_own_mode_than_for_a_slot() -> None:
    async with front(parallel=3, queue={"deadline": 0.3}) as line:
        await exactly(line, chat(RENDERED))
        line.ollama.fault("hang", path="/api/chat", times=1)
        seen = len(line.ollama.journal.to("/api/chat"))
        running = spawn(line.ask("/api/chat", chat(RENDERED)), name="running")
        await line.ollama.journal.until(lambda journal: len(journal.to("/api/chat")) > seen)
        async with asyncio.timeout(30):
            makes_free, held_back = await asyncio.gather(
                line.ask("/api/chat", chat(NATIVE)), line.ask("/api/chat", chat(NATIVE, think=False))
            )
        for late in (makes_free, held_back):
            assert (late.status, late.json["code"]) == (503, "queue_timeout")
            assert int(late.header("Retry-After") or 0) >= 1
        running.cancel()
        queues = line.gate.wiring.admission.gatekeeper.scheduler.queues
        await until(lambda: not any(queue.running for queue in queues.values()))
        await exactly(line, chat(NATIVE))
