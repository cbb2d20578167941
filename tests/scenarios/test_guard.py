"""The guard, end to end: what somebody loads past the gate is seen, told everywhere, and booked as it is."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings, library
from ollama_gate.rehearsal.models import Model
from support.gate import looked, metric, running_gate
from support.http import ask
from support.waiting import until

WINDOW = 4096
MESSAGES = [{"role": "user", "content": "hi"}]
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Line:
    """A gate in front of a rehearsal, and the gate's log."""

    gate: Gate
    ollama: Rehearsal
    log: io.StringIO

    async def through(self, model: str) -> None:
        body = {"model": model, "messages": MESSAGES, "stream": False}
        assert (await ask(self.gate.address, "POST", "/api/chat", body)).status == 200
        await looked(self.gate)

    async def past(self, model: str, num_ctx: int) -> None:
        """Load a model without the gate."""
        body = {"model": model, "messages": MESSAGES, "stream": False, "options": {"num_ctx": num_ctx}}
        address = ("127.0.0.1", self.ollama.port)
        assert (await ask(address, "POST", "/api/chat", body, {"Host": "localhost"})).status == 200

    async def guard(self) -> None:
        """Have the guard look once."""
        seen = len(self.ollama.journal.to("/api/ps"))
        self.gate.wiring.admission.gatekeeper.look()
        await self.ollama.journal.until(lambda journal: len(journal.to("/api/ps")) > seen)
        await until(lambda: not self.gate.wiring.admission.gatekeeper._looking)

    async def status(self) -> dict[str, Any]:
        told: dict[str, Any] = (await ask(self.gate.address, "GET", "/gate/status")).json
        return told

    async def memory(self, model: str) -> dict[str, Any]:
        rows = (await self.status())["models"]
        return next(row["memory"] for row in rows if row["name"] == f"{model}:latest")

    def warned(self, kind: str) -> list[dict[str, Any]]:
        """The log's warnings of one kind."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line.get("kind") == kind and line["level"] == "warning"]


@asynccontextmanager
async def line(written_log: io.StringIO, num_parallel: int = 1, **memory: Any) -> AsyncIterator[Line]:
    models = tuple(Model(f"{name}:latest", layers=16, width=256) for name in ("alpha", "beta"))
    sections = {"memory": {"host_cache_per_model": 0, **memory}, "defaults": {"num_ctx": WINDOW}}
    async with (
        Rehearsal(Settings(models=models, num_parallel=num_parallel)) as ollama,
        running_gate(ollama.url, **sections) as gate,
    ):
        yield Line(gate, ollama, written_log)


async def test_a_model_with_another_window_is_told_and_booked_as_it_is(written_log: io.StringIO) -> None:
    async with line(written_log) as on:
        await on.through("alpha")
        await on.guard()
        before = await on.memory("alpha")
        assert (before["num_ctx"], (await on.status())["memory"]["alerts"]) == (WINDOW, [])
        await on.past("alpha", 8192)
        await on.guard()
        await on.guard()
        after = await on.memory("alpha")
        assert after["num_ctx"] == 8192
        assert after["booked"] >= after["reported"] > before["reported"]
        [told] = on.warned("WindowDiffers")
        assert (told["model"], told["expected"], told["found"]) == ("alpha:latest", WINDOW, 8192)
        assert metric(on.gate, "alerts_total", kind="WindowDiffers") == 1
        alerts = (await on.status())["memory"]["alerts"]
        assert alerts == [{"kind": "WindowDiffers", "model": "alpha:latest", "expected": WINDOW, "found": 8192}]
        await on.through("alpha")
        await on.guard()
        assert (await on.memory("alpha"))["booked"] == before["booked"]
        assert (await on.status())["memory"]["alerts"] == []


async def test_a_model_loaded_past_the_gate_takes_its_part_of_the_limit(written_log: io.StringIO) -> None:
    async with line(written_log, limit="1GiB") as on:
        await on.through("alpha")
        await on.guard()
        held = (await on.status())["memory"]["held"]
        await on.past("beta", WINDOW)
        await on.guard()
        overview = (await on.status())["memory"]
        assert overview["held"] > held
        assert {row["model"] for row in overview["models"]} == {"alpha:latest", "beta:latest"}
        assert [told["model"] for told in on.warned("LoadedElsewhere")] == ["beta:latest"]
        assert metric(on.gate, "alerts_total", kind="LoadedElsewhere") == 1


async def test_more_slots_than_the_gate_was_told_are_found_out(written_log: io.StringIO) -> None:
    async with line(written_log, num_parallel=4) as on:
        await on.through("alpha")
        await on.guard()
        [told] = on.warned("SettingsDiffer")
        assert (told["model"], told["num_parallel"], told["kv_cache_type"]) == ("alpha:latest", 1, "f16")
        assert [4, "f16"] in told["likely"]


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        ("WindowDiffers", {"context_length": 2048}),
        ("BiggerThanBooked", {"size": 4 * GIB}),
        ("Spilled", {"size_vram": 1}),
    ],
)
async def test_what_became_of_a_load_is_known_as_soon_as_its_first_request_is_over(
    written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch, kind: str, becomes: dict[str, int]
) -> None:
    says = library.ps
    changed = lambda service: {"models": [{**row, **becomes} for row in says(service)["models"]]}  # noqa: E731
    monkeypatch.setattr(library, "ps", changed)
    monkeypatch.setattr("ollama_gate.wiring.GUARD_EVERY", 3600.0)
    async with line(written_log) as on:
        await looked(on.gate)
        gatekeeper = on.gate.wiring.admission.gatekeeper
        looks = Mock(wraps=gatekeeper._residents)
        monkeypatch.setattr(gatekeeper, "_residents", looks)
        await on.through("alpha")
        assert looks.call_count == 1
        [alert] = [one for one in (await on.status())["memory"]["alerts"] if one["kind"] == kind]
        assert alert["model"] == "alpha:latest"
        assert [told["model"] for told in on.warned(kind)] == ["alpha:latest"]
        assert metric(on.gate, "alerts_total", kind=kind) == 1
        if kind != "WindowDiffers":  # which loads it anew
            await on.through("alpha")
            assert looks.call_count == 1, "once for each load"


async def test_a_model_that_has_gone_is_no_longer_booked(written_log: io.StringIO) -> None:
    async with line(written_log) as on:
        await on.through("alpha")
        on.ollama.service.scheduler.clear()
        await on.guard()
        assert (await on.memory("alpha"))["stage"] == "not loaded"
        assert (await on.status())["memory"]["held"] == 0


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("status", "Ollama answers /api/ps with an error"),
        ("garbage", "HTTP"),
        ("no list", "Ollama's answer to /api/ps is no list of models"),
    ],
)
async def test_while_ollama_does_not_say_what_is_loaded_only_that_is_told(
    written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    says = library.ps
    monkeypatch.setattr("ollama_gate.admission.gatekeeper.PATIENCE", 0.0)
    async with line(written_log, limit="8GiB") as on:
        await on.through("alpha")
        await on.past("alpha", 8192)
        await on.guard()
        [before] = (await on.status())["memory"]["alerts"]
        assert before["kind"] == "WindowDiffers"
        if fault == "no list":
            monkeypatch.setattr(library, "ps", lambda _: {"models": None})
        else:
            on.ollama.fault(fault, path="/api/ps")
        await on.guard()
        await on.guard()
        status = await on.status()
        [alert] = status["memory"]["alerts"]
        assert alert["kind"] == "MemoryUnknown"
        assert alert["seconds"] >= 0
        assert why in alert["why"]
        [shown] = status["alerts"]
        assert (shown["level"], shown["about"]) == ("error", "memory")
        assert [told["why"] for told in on.warned("MemoryUnknown")] == [alert["why"]]
        assert metric(on.gate, "alerts_total", kind="MemoryUnknown") == 1
        cold = await ask(on.gate.address, "POST", "/api/chat", {"model": "beta", "messages": MESSAGES})
        assert (cold.status, cold.json["code"]) == (503, "memory_unknown")
        on.ollama.service.faults.active.clear()
        monkeypatch.setattr(library, "ps", says)
        await on.guard()
        assert (await on.status())["memory"]["alerts"] == [before]
        assert metric(on.gate, "alerts_total", kind="MemoryUnknown") == 1
        await on.through("beta")
        assert metric(on.gate, "alerts_total", kind="WindowDiffers") == 1, "it was told before"
