"""Slots and memory over sockets: who runs, who waits, who is refused, and what is shown of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings
from ollama_gate.rehearsal.models import Model
from ollama_gate.tasks import spawn
from support.gate import metric, running_gate
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
        running_gate(ollama.url, memory=memory, defaults={"num_ctx": 4096}, **sections) as gate,
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
        assert metric(on.gate, "memory_limit_bytes") == 1024 * MIB
        assert on.metric("oldest_wait_seconds", "alpha") > 0
        assert [(await task).status for task in (running, waiting)] == [200, 200]
        assert on.metric("slots_running", "alpha") == on.metric("slots_waiting", "alpha") == 0
        page = await ask(on.gate.address, "GET", "/gate/metrics")
        assert f'ollama_gate_slots{{model="{FULL.format("alpha")}"}} 1.0' in page.body.decode()
