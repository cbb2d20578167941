"""What a real vocabulary of 262 000 tokens costs the running gate: time until it counts with it, and memory."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import load, processes, targets
from bench.http11 import get
from bench.speed import Record, chat
from bench.targets import Target
from bench.upstream import REAL
from ollama_gate.tasks import spawn

_PATIENCE: Final = 60.0


async def measure(home: Path, upstream_port: int, command: Sequence[str], record: Record) -> None:
    """Show a model to a gate that never saw it, and then to a second one that finds the tokenizer in the cache.

    Both have all cores, as where people wait for them.
    """
    cache = home / "tokenizers-of-a-fresh-gate"
    async with targets.gate(home, None, upstream_port, command, cache) as fresh:
        record.add("start to ready", "gate", fresh.ready_seconds)
        record.add("resident at start", "gate", fresh.idle_bytes)
        record.add("vocabulary ready", "gate", await _seen(fresh))
        processes.settled(fresh.pid or 0)
        record.add("resident with vocabulary", "gate", processes.resident_bytes(fresh.pid or 0) - fresh.idle_bytes)
    async with targets.gate(home, None, upstream_port, command, cache) as second:
        record.add("vocabulary ready from cache", "gate", await _seen(second))
        processes.settled(second.pid or 0)
        record.add("resident from cache", "gate", processes.resident_bytes(second.pid or 0) - second.idle_bytes)


async def _seen(target: Target) -> float:
    """Seconds from a model's first request until the gate has its tokenizer; the request itself may wait for more."""
    began = time.perf_counter()
    first = spawn(load.ask(target.port, chat(stream=False, model=REAL)), name="first request")
    taken: float | None = None
    while taken is None and time.perf_counter() - began < _PATIENCE:
        _, told = await load.ask(target.port, get("/gate/status"))
        state = {model["name"]: model["tokenizer"] for model in json.loads(told)["models"]}.get(REAL)
        if state == "ready":
            taken = time.perf_counter() - began
        elif state not in (None, "not needed yet", "being built"):
            raise load.LoadError(f"the gate cannot count with this vocabulary: {state}")
        else:
            await asyncio.sleep(0.02)
    status, body = await first
    if status != 200 or taken is None:
        raise load.LoadError(f"no tokenizer; the first request for a model was answered {status}: {body[:300]!r}")
    return taken
