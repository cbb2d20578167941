"""Slots and memory over sockets: who runs, who waits, who is refused, and what is shown of it."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings
from ollama_gate.rehearsal.faults import Fault
from ollama_gate.rehearsal.models import Model
from ollama_gate.tasks import spawn
from support.gate import looked, metric, running_gate
from support.http import Reply, ask
from support.waiting import until

MIB = 1024**2
NAMES = ("alpha", "beta", "gamma")
FULL = "registry.ollama.ai/library/{}:latest"


@dataclass(frozen=True, slots=True)
class Line:
    """A gate in front of a rehearsal with three models of the same size."""

    gate: Gate
    ollama: Rehearsal

    async def ask(self, model: str, **more: Any) -> Reply:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": False, **more}
        return await ask(self.gate.address, "POST", "/api/chat", body)

    async def stuck(self, model: str) -> "asyncio.Task[Reply]":
        """A request that holds its slot until the fault is lifted, and has reached Ollama."""
        before = len(self.ollama.journal.to("/api/chat"))
        task = spawn(self.ask(model), name="stuck")
        await self.ollama.journal.until(lambda journal: len(journal.to("/api/chat")) > before)
        return task

    async def compared(self, model: str) -> None:
        """Let the gate compare its rendering with Ollama's now, which it asks for as it asks for a preload."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        assert (await ask(self.gate.address, "POST", "/gate/count", body)).status == 200
        [known] = (one for one in self.gate.wiring.counter._models.values() if one.card.name == f"{model}:latest")
        assert known.checked

    async def status(self) -> dict[str, Any]:
        told: dict[str, Any] = (await ask(self.gate.address, "GET", "/gate/status")).json
        return told

    async def of(self, model: str) -> Mapping[str, Any]:
        """What the status says of one model."""
        return next(row for row in (await self.status())["models"] if row["name"] == f"{model}:latest")

    def metric(self, name: str, model: str) -> float:
        return metric(self.gate, name, model=FULL.format(model))


@asynccontextmanager
async def line(*, settings: Mapping[str, Any] | None = None, **sections: Any) -> AsyncIterator[Line]:
    models = tuple(Model(f"{name}:latest", size=100 * MIB) for name in NAMES)
    memory = {"host_cache_per_model": 0, **sections.pop("memory", {})}
    async with (
        Rehearsal(Settings(models=models, **(settings or {}))) as ollama,
        running_gate(ollama.url, memory=memory, **{"defaults": {"num_ctx": 4096}, **sections}) as gate,
    ):
        yield Line(gate, ollama)


async def test_the_status_and_the_metrics_show_slots_and_memory() -> None:
    async with line(memory={"limit": "1GiB"}, settings={"rate": 50.0}) as on:
        running = await on.stuck("alpha")
        waiting = spawn(on.ask("alpha"), name="waiting")
        await until(lambda: on.metric("slots_waiting", "alpha") == 1)
        told = await on.of("alpha")
        slots, memory = told["slots"], told["memory"]
        assert (slots["total"], slots["running"], slots["waiting"]) == (1, 1, 1)
        assert slots["oldest_wait_seconds"] >= 0
        assert slots["retry_after"] >= 1
        assert memory["stage"] in ("loading", "resident")
        assert memory["parts"]["weights"] == 100 * MIB
        assert memory["booked"] == memory["predicted"] == sum(memory["parts"].values())
        overview = (await on.status())["memory"]
        assert overview["limit"] == 1024 * MIB
        assert overview["held"] == memory["booked"] == 1024 * MIB - overview["free"]
        assert overview["models"] == [{"model": "alpha:latest", "stage": memory["stage"], "booked": memory["booked"]}]
        assert (on.metric("slots", "alpha"), on.metric("slots_running", "alpha")) == (1, 1)
        assert on.metric("memory_booked_bytes", "alpha") == memory["booked"]
        for part, size in memory["parts"].items():
            assert metric(on.gate, "memory_booked_part_bytes", model=FULL.format("alpha"), part=part) == size
        assert on.metric("largest_num_ctx", "alpha") == memory["largest_num_ctx"] > 4096
        assert metric(on.gate, "memory_limit_bytes") == 1024 * MIB
        assert on.metric("oldest_wait_seconds", "alpha") > 0
        assert [(await task).status for task in (running, waiting)] == [200, 200]
        assert on.metric("slots_running", "alpha") == on.metric("slots_waiting", "alpha") == 0
        page = await ask(on.gate.address, "GET", "/gate/metrics")
        assert f'ollama_gate_slots{{model="{FULL.format("alpha")}"}} 1.0' in page.body.decode()


async def booked(on: Line, model: str) -> int:
    """Bytes that one of the models takes."""
    assert (await on.ask(model)).status == 200
    memory: dict[str, int] = (await on.of(model))["memory"]
    return memory["booked"]


async def size_of_one() -> int:
    """Bytes that each of the three models takes."""
    async with line() as on:
        return await booked(on, "alpha")


@asynccontextmanager
async def room_for(count: float, **memory: Any) -> AsyncIterator[Line]:
    """A gate whose limit has room for so many of the three models, and an Ollama that loads slowly."""
    limit = int(await size_of_one() * count)
    async with line(memory={"limit": limit, **memory}, settings={"load_seconds": 0.05}) as on:
        yield on


async def test_the_limit_is_kept_by_unloading_whoever_was_used_least_recently() -> None:
    async with room_for(2.5) as on:
        for model in ("alpha", "beta", "alpha", "gamma"):
            assert (await on.ask(model)).status == 200
        resident = {runner.model.name for runner in on.ollama.service.scheduler.loaded()}
        assert resident == {"alpha:latest", "gamma:latest"}
        assert on.ollama.service.scheduler.unloads["beta:latest"] == 1
        assert (await on.status())["memory"]["free"] >= 0


async def test_two_cold_models_at_once_cannot_both_slip_in() -> None:
    async with room_for(1.5) as on:
        scheduler = on.ollama.service.scheduler
        loaded: list[int] = []
        scheduler._changed = lambda: loaded.append(len(scheduler.runners))
        replies = await asyncio.gather(*(on.ask(model) for model in ("alpha", "beta") * 3))
        assert [reply.status for reply in replies] == [200] * 6
        assert scheduler.loads.total() >= 2
        assert max(loaded) == 1


async def test_an_ollama_that_does_not_say_what_is_loaded_gets_nothing_more_to_load() -> None:
    async with room_for(1.5, on_full="wait") as on:
        assert (await on.ask("alpha")).status == 200
        await on.compared("alpha")
        assert (await on.ask("alpha", keep_alive=60)).status == 200
        await looked(on.gate)
        on.ollama.fault("status", path="/api/ps", status=500)
        waiting = spawn(on.ask("beta"), name="waiting")
        await until(lambda: on.metric("slots_waiting", "beta") == 1)
        seen = len(on.ollama.journal.to("/api/ps"))
        await on.ollama.journal.until(lambda journal: len(journal.to("/api/ps")) > seen)
        assert (await on.ask("alpha", keep_alive=0)).status == 200, "what is loaded is served"
        assert on.ollama.loads("beta") == 0
        assert [row["model"] for row in (await on.status())["memory"]["models"]] == ["alpha:latest"]
        on.ollama.service.faults.active.clear()
        assert (await waiting).status == 200
        assert {runner.model.name for runner in on.ollama.service.scheduler.loaded()} == {"beta:latest"}


async def test_nobody_is_refused_for_how_long_a_model_would_have_stayed_before_its_last_request() -> None:
    limit = int(await size_of_one() * 1.5)
    async with line(memory={"limit": limit, "on_full": "wait"}, settings={"rate": 50.0}) as on:
        assert (await on.ask("alpha")).status == 200
        await on.compared("alpha")
        no = await on.ask("beta")
        assert (no.status, no.json["code"]) == (503, "model_does_not_fit"), "the first one stays for five minutes"
        assert 240 < int(no.header("Retry-After") or 0) <= 300
        seen = len(on.ollama.journal.to("/api/chat"))
        running = spawn(on.ask("alpha", keep_alive=0.3), name="running")
        await on.ollama.journal.until(lambda journal: len(journal.to("/api/chat")) > seen)
        waiting = spawn(on.ask("beta"), name="waiting")
        await until(lambda: on.metric("slots_waiting", "beta") == 1)
        asked = len(on.ollama.journal.to("/api/ps"))
        await on.ollama.journal.until(lambda journal: len(journal.to("/api/ps")) > asked)
        assert [(await task).status for task in (running, waiting)] == [200, 200]


async def test_whoever_waits_for_memory_is_refused_when_its_time_is_over() -> None:
    limit = int(await size_of_one() * 1.5)
    async with line(memory={"limit": limit, "on_full": "wait"}, queue={"deadline": 1.5}) as on:
        assert (await on.ask("alpha", keep_alive=0.1)).status == 200
        assert (await on.ask("beta")).status == 200, "the first one expires by itself"
        on.ollama.fault("hang", path="/api/chat", times=1)
        running = await on.stuck("beta")
        late = await on.ask("alpha")
        assert (late.status, late.json["code"]) == (503, "queue_timeout")
        assert late.json["details"]["waits_for"] == "memory"
        assert int(late.header("Retry-After") or 0) >= 1
        running.cancel()


async def test_how_long_somebody_waited_in_vain_is_told_too(written_log: io.StringIO) -> None:
    async with line(queue={"deadline": 0.3}) as on:
        assert (await on.ask("alpha")).status == 200
        await on.compared("alpha")
        before = on.metric("wait_seconds_count", "alpha")
        on.ollama.service.faults.active.append(Fault("hang", path="/api/chat", times=1))
        stuck = await on.stuck("alpha")
        late = await on.ask("alpha")
        assert (late.status, late.json["code"]) == (503, "queue_timeout")
        assert float(dict(late.headers)["x-ollama-gate-wait"]) >= 0.3
        assert on.metric("wait_seconds_count", "alpha") == before + 1
        [told] = [row for row in map(json.loads, written_log.getvalue().splitlines()) if row.get("code")]
        assert told["wait_seconds"] >= 0.3
        stuck.cancel()


async def test_by_policy_what_does_not_fit_now_is_refused_with_what_would() -> None:
    async with room_for(1.5, on_full="refuse") as on:
        assert (await on.ask("alpha")).status == 200
        no = await on.ask("beta")
        told = no.json
        assert (no.status, no.reason, told["code"]) == (503, "Model Does Not Fit", "model_does_not_fit")
        assert told["error"].startswith("beta:latest cannot be loaded: with a window of 4096 and 1 slot it takes 0.")
        assert int(no.header("Retry-After") or 0) >= 1
        facts = told["details"]
        assert facts["free_bytes"] < facts["needed_bytes"] <= facts["limit_bytes"]
        assert facts["largest_num_ctx"] >= 4096 > facts["largest_num_ctx_now"]
        assert [entry.json()["model"] for entry in on.ollama.journal.to("/api/chat")] == ["alpha"]
        assert (await on.ask("alpha")).status == 200, "what is loaded is served"


async def test_what_never_fits_is_refused_for_good_in_every_dialect() -> None:
    async with line(memory={"limit": "110MiB"}, defaults={"num_ctx": 8192}) as on:
        no = await on.ask("alpha")
        assert (no.status, no.json["code"]) == (503, "model_does_not_fit")
        assert (no.header("Retry-After"), no.header("x-should-retry")) == (None, "false")
        message = [{"role": "user", "content": "hi"}]
        for route in ("/v1/chat/completions", "/v1/messages"):
            body = {"model": "alpha", "messages": message, "max_tokens": 5}
            no = await ask(on.gate.address, "POST", route, body)
            assert no.status == 503, route
            assert "cannot be loaded" in no.json["error"]["message"]
        assert not on.ollama.journal.to("/api/chat")
        assert (await on.of("alpha"))["memory"]["fits"] == "never"


async def test_a_queue_that_is_full_says_when_to_come_again() -> None:
    async with line(queue={"depth": 1}, settings={"rate": 30.0}) as on:
        running = await on.stuck("alpha")
        waiting = spawn(on.ask("alpha"), name="waiting")
        await until(lambda: on.metric("slots_waiting", "alpha") == 1)
        no = await on.ask("alpha")
        assert (no.status, no.json["code"]) == (503, "queue_full")
        assert int(no.header("Retry-After") or 0) >= 1
        assert [(await task).status for task in (running, waiting)] == [200, 200]
