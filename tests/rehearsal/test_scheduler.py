"""Loads, reloads, queues, slots and the prompt cache."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.rehearsal import Rehearsal, Settings
from ollama_gate.tasks import spawn
from support.rawhttp import RawAnswer, exchange
from support.recorded import recording


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    async with Rehearsal() as rehearsal:
        yield rehearsal


async def post(upstream: Rehearsal, path: str, **body: Any) -> RawAnswer:
    return await exchange(upstream.url, "POST", path, body=json.dumps(body).encode())


async def chat(upstream: Rehearsal, model: str = "rehearsal", text: str = "hi", **fields: Any) -> dict[str, Any]:
    answer = await post(
        upstream, "/api/chat", model=model, stream=False, messages=[{"role": "user", "content": text}], **fields
    )
    decoded: dict[str, Any] = json.loads(answer.body)
    return decoded


@pytest.mark.parametrize(
    ("first", "second", "loads"),
    [
        ({}, {}, 1),
        ({}, {"options": {"temperature": 0, "num_predict": 3, "seed": 1, "stop": ["x"]}}, 1),
        ({}, {"options": {"num_ctx": 4096}}, 1),  # the default, said aloud
        ({}, {"options": {"num_ctx": 2048}}, 2),
        ({}, {"options": {"num_ctx": None}}, 1),
        ({"options": {"num_ctx": 2048}}, {}, 2),
        ({"options": {"num_ctx": 9000}}, {"options": {"num_ctx": 8192}}, 1),  # both are cut to the trained length
        ({}, {"shift": True}, 1),
        ({}, {"shift": False}, 2),
        ({"shift": False}, {"shift": False}, 1),
        ({}, {"truncate": False}, 1),
        ({}, {"options": {"num_batch": 256}}, 2),
        ({}, {"options": {"num_gpu": -1}}, 1),
        ({}, {"options": {"num_gpu": 0}}, 2),
        ({}, {"options": {"use_mmap": True}}, 2),
    ],
)
async def test_what_reloads(upstream: Rehearsal, first: dict[str, Any], second: dict[str, Any], loads: int) -> None:
    await chat(upstream, **first)
    await chat(upstream, **second)
    assert upstream.loads("rehearsal") == loads
    assert upstream.journal[-1].notes.count("reload") == loads - 1


async def test_the_default_shift_of_deepseek2_is_off(upstream: Rehearsal) -> None:
    await chat(upstream, "rehearsal-deepseek2")
    await chat(upstream, "rehearsal-deepseek2", shift=False)
    assert upstream.loads("rehearsal-deepseek2") == 1


async def test_an_embedding_of_a_chat_model_reloads_it_for_nothing(upstream: Rehearsal) -> None:
    await chat(upstream, options={"num_ctx": 2048}, shift=False)
    answer = await post(upstream, "/api/embed", model="rehearsal", input="x")
    assert answer.status == 501
    assert upstream.loads("rehearsal") == 2


async def test_names_over_one_blob_share_a_runner(upstream: Rehearsal) -> None:
    await chat(upstream, "rehearsal-go")
    await chat(upstream, "rehearsal-go-system")
    listed = json.loads((await exchange(upstream.url, "GET", "/api/ps")).body)
    assert [model["name"] for model in listed["models"]] == ["rehearsal-go:latest"]


async def test_only_so_many_models_stay() -> None:
    async with Rehearsal(Settings(max_loaded_models=2)) as upstream:
        for model in ("rehearsal", "rehearsal-go", "rehearsal-tools"):
            await chat(upstream, model)
        listed = json.loads((await exchange(upstream.url, "GET", "/api/ps")).body)
    assert [model["name"] for model in listed["models"]] == ["rehearsal-tools:latest", "rehearsal-go:latest"]


async def test_keep_alive_zero_unloads_at_once_and_after_an_answer(upstream: Rehearsal) -> None:
    await chat(upstream)
    unloaded = json.loads((await post(upstream, "/api/generate", model="rehearsal", keep_alive=0)).body)
    assert unloaded["done_reason"] == "unload"
    await chat(upstream, keep_alive=0)
    assert json.loads((await exchange(upstream.url, "GET", "/api/ps")).body) == {"models": []}
    assert upstream.loads("rehearsal") == 2


async def test_keep_alive_expires(upstream: Rehearsal) -> None:
    await chat(upstream, keep_alive="1ms")
    await upstream.journal.until(lambda _: not upstream.service.scheduler.runners)


async def test_a_request_without_keep_alive_leaves_what_the_one_before_has_said(upstream: Rehearsal) -> None:
    for said, stays in (("1h", 3600.0), (None, 3600.0), (60, 60.0), (None, 60.0)):
        await chat(upstream, keep_alive=said)
        [runner] = upstream.service.scheduler.loaded()
        assert runner.keep_alive == stays
    await post(upstream, "/api/generate", model="rehearsal", keep_alive=0)
    await chat(upstream)
    [runner] = upstream.service.scheduler.loaded()
    assert runner.keep_alive == upstream.service.settings.keep_alive, "a new load begins with the server's own"


async def test_too_many_waiting_loads_are_refused() -> None:
    recorded = recording("busy-native-chat")
    async with Rehearsal(Settings(max_queue=1, load_seconds=0.05)) as upstream:
        answers = await asyncio.gather(
            *(
                post(upstream, "/api/chat", model="rehearsal", messages=[{"role": "user", "content": "say exactly: x"}])
                for _ in range(6)
            )
        )
    assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503, 503]
    assert {answer.body.decode() for answer in answers if answer.status == 503} == set(recorded.chunks)


async def test_a_loaded_model_never_refuses_it_waits(upstream: Rehearsal) -> None:
    await chat(upstream)
    upstream.service.scheduler.max_queue = 0
    answers = await asyncio.gather(*(chat(upstream) for _ in range(20)))
    assert all(answer["done"] for answer in answers)


async def test_a_reload_waits_for_the_running_answer(upstream: Rehearsal) -> None:
    running = spawn(chat(upstream, options={"rehearsal_rate": 100, "rehearsal_tokens": 20}), name="chat")
    await upstream.journal.until(lambda journal: len(journal) and journal[0].generated > 0)
    await chat(upstream, shift=False)
    assert running.done()
    assert (await running)["eval_count"] == 20


async def test_slots_answer_side_by_side() -> None:
    most = 0
    async with Rehearsal(Settings(num_parallel=3)) as upstream:
        await chat(upstream)
        (runner,) = upstream.service.scheduler.runners.values()
        work = [
            spawn(chat(upstream, options={"rehearsal_rate": 200, "rehearsal_tokens": 20}), name="chat")
            for _ in range(5)
        ]

        def watch(_: object) -> bool:
            nonlocal most
            most = max(most, sum(slot.busy for slot in runner.slots))
            return most >= 3 or all(one.done() for one in work)

        await upstream.journal.until(watch)
        await asyncio.gather(*work)
        assert json.loads((await exchange(upstream.url, "GET", "/rehearsal/state")).body)["runners"][0]["parallel"] == 3
    assert most == 3


async def test_a_cached_beginning_is_not_evaluated_again(upstream: Rehearsal) -> None:
    talk = [{"role": "user", "content": "word " * 300}]
    durations = []
    for more in ("one", "two"):
        body = {
            "model": "rehearsal-go",
            "stream": False,
            "messages": [*talk, {"role": "assistant", "content": "ok"}, {"role": "user", "content": more}],
        }
        answer = json.loads((await post(upstream, "/api/chat", **body)).body)
        assert answer["prompt_eval_count"] > 300
        durations.append(answer["prompt_eval_duration"])
    assert durations[1] < durations[0] / 10


async def test_a_client_that_leaves_frees_the_slot_and_the_load() -> None:
    async with Rehearsal(Settings(load_seconds=30)) as upstream:
        _, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        body = b'{"model":"rehearsal","messages":[{"role":"user","content":"hi"}]}'
        writer.write(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await upstream.journal.until(lambda journal: len(journal) and "load" in journal[0].notes)
        writer.transport.abort()
        await upstream.journal.until(lambda journal: journal[0].client_left)
        assert not upstream.service.scheduler.runners
        assert upstream.loads("rehearsal") == 0


async def test_a_client_that_leaves_stops_the_generation(upstream: Rehearsal) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
    body = json.dumps(
        {
            "model": "rehearsal",
            "messages": [{"role": "user", "content": "write 100000 tokens"}],
            "options": {"rehearsal_rate": 1000},
        }
    ).encode()
    writer.write(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await reader.readuntil(b'"done":false')
    writer.transport.abort()
    await upstream.journal.until(lambda journal: journal[0].client_left)
    assert upstream.journal[0].generated < 5000
    (runner,) = upstream.service.scheduler.runners.values()
    assert not any(slot.busy for slot in runner.slots)
    assert (await chat(upstream))["done"]
