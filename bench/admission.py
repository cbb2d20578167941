"""What admission costs: a lease on a free slot, ten thousand waiters of one model, and the status of fifty models.

python -m bench.admission     prints one JSON object; seconds, and one ratio
"""

import asyncio
import gc
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final

import click
import uvloop

from bench import load, processes, targets
from bench.http11 import get
from bench.speed import chat
from ollama_gate.admission.alerts import Alert
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.gatekeeper import Gatekeeper
from ollama_gate.admission.holdings import MemoryPolicy
from ollama_gate.admission.queue import QueuePolicy
from ollama_gate.admission.residents import Reported
from ollama_gate.tasks import spawn

_GIB: Final = 1024**3
_ROUNDS: Final = 5
_LEASES: Final = 20_000
_FEW, _MANY = 1_000, 10_000
_MODELS: Final = 50
_ASKED: Final = 100
_SETTLING: Final = 30
"""Seconds that the gate may take to make itself acquainted with all of them."""


async def _nobody() -> Sequence[Reported]:
    return ()


async def _unload(_model: str) -> None:
    """Nothing is loaded here."""


def _told(alert: Alert) -> None:
    raise load.LoadError(f"an alert: {alert}")


def _gatekeeper() -> Gatekeeper:
    queue = QueuePolicy(depth=2 * _MANY)
    return Gatekeeper(queue, MemoryPolicy(100 * _GIB), residents=_nobody, unload=_unload, on_alert=_told)


async def _lease(demand: Demand) -> float:
    """Seconds that a request spends on asking for a free slot, saying that the model answers, and giving it back."""
    gatekeeper, taken = _gatekeeper(), []
    for _ in range(_LEASES):
        began = perf_counter()
        lease = gatekeeper.lease("m", "client", demand)
        if lease.enter() is not None:
            raise load.LoadError("a free slot was waited for")
        lease.answered()
        lease.leave()
        taken.append(perf_counter() - began)
    gatekeeper.close()
    return median(taken)


async def _waiters(demand: Demand, number: int) -> tuple[float, float, float]:
    """CPU seconds for each of many requests on one busy slot: to come, to leave while waiting, and to be served."""
    gatekeeper = _gatekeeper()
    first = gatekeeper.lease("m", "first", demand)
    if first.enter() is not None:
        raise load.LoadError("a free slot was waited for")
    served = 0

    async def request(client: str) -> None:
        nonlocal served
        lease = gatekeeper.lease("m", client, demand)
        if (waiting := lease.enter()) is not None:
            await waiting
        try:
            lease.answered()
            served += 1
        finally:
            lease.leave()

    began = process_time()
    tasks = [spawn(request(f"client {at % (number // 2)}"), name="waiter", quiet=True) for at in range(number)]
    await asyncio.sleep(0)
    came = process_time()
    for task in tasks[1::2]:
        task.cancel()
    await asyncio.wait(tasks[1::2])
    left = process_time()
    first.leave()
    await asyncio.wait(tasks[::2])
    done = process_time()
    gatekeeper.close()
    if served != number // 2:
        raise load.LoadError(f"{served} of {number // 2} were served")
    half = number // 2
    return (came - began) / number, (left - came) / half, (done - left) / half


async def in_process() -> dict[str, float]:
    """What needs no server."""
    demand = Demand.guess(_GIB, 4096)
    lease = min([await _lease(demand) for _ in range(_ROUNDS)])
    gc.disable()  # a full collection takes the longer the more objects there are, whoever made them
    few = [await _waiters(demand, _FEW) for _ in range(_ROUNDS)]
    many = [await _waiters(demand, _MANY) for _ in range(_ROUNDS)]
    gc.enable()
    come, leave, served = (median(column) for column in zip(*many, strict=True))
    growth = median(sum(of_many) / sum(of_few) for of_many, of_few in zip(many, few, strict=True))
    return {
        "lease": lease,
        "waiter comes": come,
        "waiter leaves": leave,
        "waiter served": served,
        "waiters growth": growth,
    }


async def of_fifty_models(home: Path, command: Sequence[str]) -> float:
    """Seconds until a running gate that knows fifty loaded models has answered /gate/status."""
    described = home / "models.json"
    names = [f"rehearsal-{number}:latest" for number in range(_MODELS)]
    described.write_text(json.dumps([{"name": name, "blob": name} for name in names]), encoding="utf-8")
    port, log = targets.free_port(), home / "rehearsal.out"
    rehearsal = [sys.executable, "-m", "ollama_gate.rehearsal", "--listen", f"127.0.0.1:{port}"]
    quick = ["--load-seconds", "0", "--rate", "0", "--prompt-rate", "0", "--max-loaded", str(_MODELS)]
    with (
        log.open("wb") as output,
        processes.running([*rehearsal, *quick, "--models", str(described)], core=None, output=output),
    ):
        async with targets.gate(home, 0, port, command) as gate:
            for name in names:
                status, told = await load.ask(gate.port, chat(stream=False, model=name))
                if status != 200:
                    raise load.LoadError(f"{name} was answered {status}: {told[:300]!r}")
            await _acquainted(gate.pid or 0)
            return median([await _status(gate.port) for _ in range(_ASKED)])


async def _acquainted(pid: int) -> None:
    """Wait until the gate has made its tokenizers: between two of them it does nothing for a moment."""
    before = -1.0
    for _ in range(_SETTLING):
        now = processes.cpu_seconds(pid)
        if abs(now - before) < 0.02:  # less, where a process has ended
            return
        before = now
        await asyncio.sleep(1.0)


async def _status(port: int) -> float:
    began = perf_counter()
    status, told = await load.ask(port, get("/gate/status"))
    taken = perf_counter() - began
    if status != 200 or len(json.loads(told)["models"]) != _MODELS:
        raise load.LoadError(f"/gate/status was answered {status}: {told[:300]!r}")
    return taken


@click.command(help=__doc__)
@click.option("--gate", metavar="COMMAND", default=lambda: shlex.join(targets.gate_command()), show_default=False)
def main(gate: str) -> None:
    """Measure and print."""
    found = uvloop.run(in_process())
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        found["status"] = uvloop.run(of_fifty_models(Path(home), shlex.split(gate)))
    click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
