"""Empty messages load a model and keep_alive 0 unloads it; proxies call them invalid (ollamaMQ, ollama-python#673)."""

import asyncio

import pytest

from ollama_gate.rehearsal import Fault
from support.cases import case, front
from support.waiting import until

CASES = case("12-load-unload")["cases"]
LOADS = [one for one in CASES if "input" not in one["body"] and "keep_alive" not in one["body"]]
UNLOADS = [one for one in CASES if "keep_alive" in one["body"]]
LLAMA = {"num_ctx": 8192}


@pytest.mark.parametrize("one", LOADS, ids=lambda one: one["path"])
async def test_a_load_goes_through_and_carries_the_window_so_that_the_first_chat_reloads_nothing(one: dict) -> None:  # type: ignore[type-arg]
    async with front() as line:
        reply = await line.ask(one["path"], one["body"])
        chat = await line.ask("/api/chat", {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "hi"}]})
        first = line.got()[0]
        loads = line.ollama.loads("llama3.2:1b")
    assert (reply.status, reply.json["done_reason"]) == (200, "load")
    assert reply.gate("verdict") == "control"
    assert reply.gate("prompt-tokens") is None
    assert first.json() == {**one["body"], "truncate": False, "shift": False, "options": LLAMA}
    assert chat.status == 200
    assert loads == 1


@pytest.mark.parametrize("one", UNLOADS, ids=lambda one: f"{one['path']}-{one['body']['keep_alive']}")
async def test_an_unload_goes_through_and_frees_the_memory_that_was_booked(one: dict) -> None:  # type: ignore[type-arg]
    async with front() as line:
        await line.ask("/api/chat", LOADS[0]["body"])
        ledger = line.gate.wiring.admission.gatekeeper.scheduler.ledger
        assert ledger.held > 0
        reply = await line.ask(one["path"], one["body"])
        await until(lambda: ledger.held == 0)
    assert reply.status == 200
    assert reply.gate("verdict") == "control"


async def test_an_unload_is_not_held_up_by_a_full_queue() -> None:
    chat = {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "hi"}]}
    stuck = Fault("hang", path="/api/chat", at="start", times=1)
    async with front(faults=(stuck,), queue={"depth": 0}) as line, asyncio.TaskGroup() as group:
        running = group.create_task(line.ask("/api/chat", chat))
        await line.ollama.journal.until(lambda journal: journal.to("/api/chat"))
        full = await line.ask("/api/chat", chat)
        unload = await line.ask("/api/generate", {"model": "llama3.2:1b", "keep_alive": 0})
        running.cancel()
    assert (full.status, full.json["code"]) == (503, "queue_full")
    assert (unload.status, unload.json["done_reason"]) == (200, "unload")


async def test_an_empty_list_of_inputs_gives_an_empty_200() -> None:
    one = CASES[-1]
    async with front() as line:
        reply = await line.ask(one["path"], one["body"])
    assert reply.status == 200
    assert reply.json["embeddings"] == []


async def test_without_messages_v1_is_refused_as_ollama_refuses_it() -> None:
    body = {"model": "llama3.2:1b", "messages": []}
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", body)
        straight = await line.straight("/v1/chat/completions", body)
    assert reply.status == straight.status == 400
    assert reply.json == straight.json
