"""The process itself: stopped, reloaded and killed under load, and short of file descriptors."""

import asyncio
import resource
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from ollama_gate.rehearsal import Rehearsal, Settings
from ollama_gate.rehearsal.models import Model
from support.faultfront import MODEL, TALK, WAYS, never_ends_cleanly
from support.gateprocess import GateProcess, gate_process
from support.http import Client, Reply, ask
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

SLOTS = 4
MIB = 1024**2
CHAT = {"model": MODEL, "messages": TALK, "stream": True}


@pytest.fixture
async def ollama() -> AsyncIterator[Rehearsal]:
    """Answers of some 50 tokens, half a second long."""
    models = (*Settings().models, *(Model(f"{name}:latest", size=100 * MIB) for name in ("alpha", "beta")))
    async with Rehearsal(Settings(models=models, num_parallel=SLOTS, rate=100.0)) as rehearsal:
        yield rehearsal


@pytest.fixture
async def gate(ollama: Rehearsal, tmp_path: Path) -> AsyncIterator[GateProcess]:
    async with gate_process(
        tmp_path, ollama.url, upstream={"num_parallel": SLOTS}, server={"drain": "20s"}, defaults={"num_ctx": 4096}
    ) as process:
        yield process


def crowd(gate: GateProcess, each: int) -> "list[asyncio.Task[Reply]]":
    """So many requests on every route, half of them streams, all at once: most have to wait for a slot."""
    return [
        asyncio.ensure_future(ask(gate.address, "POST", way.path, way.body(stream=number % 2 == 0)))
        for way in WAYS.values()
        for number in range(each)
    ]


async def under_load(gate: GateProcess, requests: int) -> None:
    """Wait until all of them are in the gate, some of them streaming and some waiting."""
    phases: list[str] = []
    async with asyncio.timeout(10):
        while len(phases) < requests or not {"queued", "streaming"} <= set(phases):
            phases = [row["phase"] for row in (await gate.status())["requests"]]
            await asyncio.sleep(0.01)


async def test_sigterm_under_load_takes_nobody_new_and_finishes_everybody_else(
    gate: GateProcess, ollama: Rehearsal
) -> None:
    asked = crowd(gate, 4)
    await under_load(gate, len(asked))
    gate.signal(signal.SIGTERM)
    await gate.says("draining")
    # Not tried with a connection: by now the port may be somebody else's.
    connections = psutil.Process(gate.pid).net_connections("tcp")
    assert not [one for one in connections if one.status == psutil.CONN_LISTEN]
    replies = await asyncio.gather(*asked)
    assert [(reply.status, reply.complete) for reply in replies] == [(200, True)] * len(asked)
    assert await gate.ended() == 0
    assert gate.told("stopped")
    assert not gate.told("cut off at the end of the drain time")
    assert len([line for line in gate.told("request") if line["status"] == 200]) == len(asked)
    assert not [entry for entry in ollama.journal if entry.client_left]


async def test_no_stream_is_cut_before_the_drain_time_is_over_and_none_is_ended_after_it(
    ollama: Rehearsal, tmp_path: Path
) -> None:
    drain = 1.0
    for path in ("/api/chat", "/api/generate"):
        ollama.fault("hang", path=path, at="stream", after=2)
    async with (
        gate_process(tmp_path, ollama.url, upstream={"num_parallel": SLOTS}, server={"drain": f"{drain:g}s"}) as gate,
        AsyncExitStack() as stack,
    ):
        streams: list[tuple[Client, Reply]] = []
        for name in ("chat", "generate", "openai", "anthropic"):
            client = await stack.enter_async_context(await Client.connect(gate.address))
            await client.send("POST", WAYS[name].path, WAYS[name].body())
            reply = await client.head()
            await client.next_chunk(reply)
            streams.append((client, reply))
        stopped_at = time.monotonic()
        gate.signal(signal.SIGTERM)
        for client, reply in streams:
            await client.rest(reply)
            assert time.monotonic() - stopped_at >= drain - 0.05
            never_ends_cleanly(reply)
        assert await gate.ended() == 0
        assert gate.told("cut off at the end of the drain time")[0]["requests"] == len(streams)
        await ollama.journal.until(
            lambda journal: sum(entry.client_left for entry in journal) == len(streams), within=2.0
        )


async def test_sighup_under_load_loses_nothing(gate: GateProcess, ollama: Rehearsal) -> None:
    asked = crowd(gate, 5)
    await under_load(gate, len(asked))
    for number, window in enumerate((2048, 1024, 3072), start=1):
        gate.configure(defaults={"num_ctx": window})
        gate.signal(signal.SIGHUP)
        await gate.says("configuration reloaded", times=number)
        asked += crowd(gate, 1)
    gate.configure(nonsense={"a": 1})
    gate.signal(signal.SIGHUP)
    replies = await asyncio.gather(*asked)
    assert [(reply.status, reply.complete) for reply in replies] == [(200, True)] * len(asked)
    assert (await ask(gate.address, "POST", "/api/chat", CHAT)).gate("window") == "3072"
    status = await gate.status()
    assert status["requests"] == []
    assert {(row["slots"]["running"], row["slots"]["waiting"]) for row in status["models"]} == {(0, 0)}
    assert gate.told("configuration not reloaded: the old one stays in force")
    assert not gate.told("internal error")
    assert not gate.told("background task failed")
    gate.signal(signal.SIGTERM)
    assert await gate.ended() == 0


async def of(gate: GateProcess, model: str) -> Any:
    """What the status says of one model."""
    return next(row for row in (await gate.status())["models"] if row["name"] == f"{model}:latest")


async def looked(gate: GateProcess, model: str) -> Any:
    """The same, once the gate has met the model and asked Ollama what is loaded."""
    async with asyncio.timeout(10):
        while True:
            rows = (await gate.status())["memory"]["models"]
            if any(row["model"] == f"{model}:latest" and row["stage"] == "resident" for row in rows):
                return await of(gate, model)
            await asyncio.sleep(0.02)


async def test_kill_9_leaves_no_lie_in_the_ledger_of_the_next(ollama: Rehearsal, tmp_path: Path) -> None:
    ollama.fault("hang", path="/api/chat", at="stream", after=2, times=2)
    body = {**CHAT, "model": "alpha"}
    async with (
        gate_process(tmp_path, ollama.url, upstream={"num_parallel": SLOTS}, defaults={"num_ctx": 4096}) as gate,
        await Client.connect(gate.address) as client,
        await Client.connect(("127.0.0.1", ollama.port)) as past,
    ):
        # One generation that is not the gate's and runs on, and one that goes with the gate.
        await past.send("POST", "/api/chat", {**body, "shift": False, "options": {"num_ctx": 4096}})
        await past.next_chunk(await past.head())
        await client.send("POST", "/api/chat", body)
        reply = await client.head()
        await client.next_chunk(reply)
        booked = (await of(gate, "alpha"))["memory"]["booked"]
        processes = psutil.Process(gate.pid).children(recursive=True)
        gate.signal(signal.SIGKILL)
        assert await gate.ended() == -signal.SIGKILL
        await client.rest(reply)
        never_ends_cleanly(reply)
        await ollama.journal.until(lambda journal: sum(entry.client_left for entry in journal) == 1, within=2.0)
        await until(lambda: not any(process.is_running() for process in processes))

        limit = booked * 3 // 2  # room for one of the two models
        gate.configure(memory={"limit": limit})
        await gate.start()
        found = await looked(gate, "alpha")
        assert found["memory"]["booked"] == booked > 0
        assert (found["slots"]["running"], found["slots"]["waiting"]) == (0, 0)
        overview = (await gate.status())["memory"]
        assert (overview["held"], overview["free"]) == (booked, limit - booked)
        await past.close()

        # The resident model is served as it is, and is known to be in the way of another one.
        assert (await ask(gate.address, "POST", "/api/chat", body)).complete
        assert ollama.loads("alpha") == 1
        assert (await ask(gate.address, "POST", "/api/chat", {**body, "model": "beta"})).complete
        assert [row["model"] for row in (await gate.status())["memory"]["models"]] == ["beta:latest"]
        assert [row["model"] for row in (await ask(gate.address, "GET", "/api/ps")).json["models"]] == ["beta:latest"]


async def test_the_first_request_after_a_start_waits_until_it_is_known_what_is_loaded(
    ollama: Rehearsal, tmp_path: Path
) -> None:
    ollama.fault("slow", path="/api/ps", seconds=0.5)
    chat = {**CHAT, "shift": False, "options": {"num_ctx": 4096}}
    assert (await ask(("127.0.0.1", ollama.port), "POST", "/api/chat", {**chat, "model": "alpha"})).complete
    memory = {"limit": 12 * 1024 * MIB}  # room for one of the two models
    async with gate_process(
        tmp_path, ollama.url, memory=memory, upstream={"num_parallel": SLOTS}, defaults={"num_ctx": 4096}
    ) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", {**CHAT, "model": "beta"})
        assert (reply.status, reply.complete) == (200, True)
        rows = (await ask(gate.address, "GET", "/api/ps")).json["models"]
        assert [row["model"] for row in rows] == ["beta:latest"]


async def test_without_free_descriptors_clients_are_turned_away_without_effort_and_served_afterwards(
    gate: GateProcess, ollama: Rehearsal
) -> None:
    assert (await ask(gate.address, "POST", "/api/chat", CHAT)).complete
    most = gate.descriptors() + 24
    psutil.Process(gate.pid).rlimit(resource.RLIMIT_NOFILE, (most, most))
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await Client.connect(gate.address)) for _ in range(most)]
        await until(lambda: gate.descriptors() >= most - 1)
        before = gate.cpu_seconds()
        await asyncio.sleep(2)  # what is measured is that nothing happens
        assert gate.cpu_seconds() - before < 0.5
        # Those that are in are served over the connection to Ollama that there is, and told where one more is wanted.
        inside: list[Client] = []
        for client in clients:
            if not client.reader.at_eof():
                await client.send("POST", "/api/chat", CHAT)
                inside.append(client)
        replies = [await client.rest(await client.head()) for client in inside]
        statuses = {reply.status for reply in replies}
        assert 200 in statuses
        assert statuses <= {200, 503}
        for reply in replies:
            assert reply.complete
            if reply.status == 503:
                assert "Too many open files" in reply.json["error"]
        for client in (client for client in clients if client not in inside):
            assert await client.reader.read() == b""
    await until(lambda: gate.descriptors() < most - 20)
    asked = await asyncio.gather(*crowd(gate, 1))
    assert {(reply.status, reply.complete) for reply in asked} == {(200, True)}
    status = await gate.status()
    assert status["requests"] == []
    assert not gate.told("internal error")
