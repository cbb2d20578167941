"""Run a gate under a mixed load for long, in front of the rehearsal; see docs/faults.md."""

import asyncio
import contextlib
import json
import os
import platform
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import psutil  # type: ignore[import-untyped]
import uvloop
from rich.console import Console
from rich.table import Table

from bench import processes, report
from bench.load import LoadError
from bench.soak import judging, steps
from bench.soak.clients import Tally, client, take
from bench.soak.judging import MIB, Finding, Sample
from bench.soak.streams import Lateness
from bench.targets import free_port, gate_command

_ROOT: Final = Path(__file__).parents[2]
_PAGE: Final = _ROOT / "docs" / "faults.md"
_BEGIN: Final = "<!-- soak: written by scripts/soak --docs -->"
_END: Final = "<!-- end of soak -->"
_RATE: Final = 10
"""Tokens a second of each stream."""
_SLOTS: Final = 256
_MOST_GROWTH: Final = 8.0
"""MiB that resident memory may grow by after warm-up, by the line that fits it best."""
_MOST_LEFT: Final = 8
"""Descriptors that may be open at the end beyond those before the load; kept connections to Ollama do not count."""
_GATE: Final = """\
[server]
listen = "127.0.0.1:{port}"
[upstream]
url = "http://127.0.0.1:{upstream}"
num_parallel = {slots}
[defaults]
num_ctx = 4096
budget = {budget}
[models.{long}]
compaction = true
[compaction]
deadline = "30s"
[queue]
depth = 4096
[counting]
cache_dir = "{home}/cache"
[access]
keys = "{home}/keys.json"
[archive]
enabled = true
url = "{home}/archive.db"
[log]
level = "warning"
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how much."""

    seconds: float
    clients: int
    streams: int
    late: float | None
    """Seconds that no token may be late by; None does not judge it."""

    @property
    def warm_up(self) -> float:
        """Seconds of the load that do not count: caches fill, and every kind of request comes for the first time."""
        return min(max(self.seconds / 3, 10.0), 300.0)


@dataclass(frozen=True, slots=True)
class Running:
    """What is under load."""

    port: int
    upstream: int
    process: psutil.Process
    rehearsal: int
    """Its process."""
    log: Path

    async def ask(self, session: aiohttp.ClientSession, path: str) -> Any:
        """One of the gate's own pages as JSON."""
        async with session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return await answer.json(content_type=None)

    def sample(self, at: float) -> Sample:
        """The gate now; connections to Ollama that are kept for the next request are not counted as open."""
        kept = sum(bool(one.raddr) and one.raddr.port == self.upstream for one in self.process.net_connections("tcp"))
        return Sample(at, self.process.memory_info().rss, self.process.num_fds() - kept)

    def complaints(self) -> tuple[list[str], list[str]]:
        """What the gate logged that is worse than information: what must not be, and all of it.

        An archive that a busy machine does not let answer in time is no mistake: nothing is compacted meanwhile.
        """
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        events = [line for line in lines if line.startswith("{") and '"event":"archive ' not in line]
        return [*events, *(line for line in lines if line.startswith("Traceback"))], lines


@contextlib.asynccontextmanager
async def started(home: Path, command: Sequence[str], cores: tuple[int, int]) -> AsyncIterator[Running]:
    """A gate on the first of the cores, and a rehearsal behind it on the other."""
    port, upstream = free_port(), free_port()
    (home / "models.json").write_text(json.dumps(steps.MODELS))
    settings = home / "ollama-gate.toml"
    settings.write_text(
        _GATE.format(port=port, upstream=upstream, slots=_SLOTS, budget=steps.BUDGET, long=steps.LONG, home=home)
    )
    rehearsal = [
        *(sys.executable, "-m", "ollama_gate.rehearsal", "--listen", f"127.0.0.1:{upstream}"),
        *("--models", str(home / "models.json"), "--rate", str(_RATE), "--prompt-rate", "0", "--load-seconds", "0"),
        *("--num-parallel", str(_SLOTS), "--max-loaded", str(len(steps.MODELS))),
    ]
    measured, other = cores
    log = home / "gate.log"
    with (
        (home / "rehearsal.log").open("wb") as quiet,
        log.open("wb") as output,
        processes.running(rehearsal, core=other, output=quiet) as ollama,
        processes.running([*command, "--config", str(settings)], core=measured, output=output) as gate,
    ):
        running = Running(port, upstream, psutil.Process(gate.pid), ollama.pid, log)
        await _ready(running, gate)
        yield running


async def _ready(running: Running, gate: "subprocess.Popen[bytes]") -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(600):
            if gate.poll() is not None:
                break
            with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
                if (await running.ask(session, "/gate/health"))["ready"]:
                    return
            await asyncio.sleep(0.05)
    raise LoadError(f"the gate did not start: {running.complaints()[1][-5:]}")


@contextlib.contextmanager
def beside(module: str, *arguments: str, core: int) -> Iterator["subprocess.Popen[str]"]:
    """A process that watches something and prints what it has seen when it is told to stop."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        start_new_session=True,
    )
    os.sched_setaffinity(process.pid, {core})
    processes.as_nice(process.pid)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


async def told(process: "subprocess.Popen[str]") -> Any:
    """What such a process has seen."""
    process.terminate()
    out, _ = await asyncio.to_thread(process.communicate, timeout=60)
    return json.loads(out)


async def soak(plan: Plan, command: Sequence[str], say: Console) -> list[Finding]:
    """Start everything, load it, and say what was found."""
    cores = processes.cores()  # asked once: whoever pinned itself sees one core only
    _, other = cores
    os.sched_setaffinity(0, {other})
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        async with (
            started(Path(home), command, cores) as running,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=5)) as session,
        ):
            tally = Tally()
            for step in steps.warm():
                await take(step, running.port, session, tally, random.Random(0))
            before = running.sample(0.0)
            reader = ("--port", str(running.port), "--count", str(plan.streams), "--model", steps.SLOW)
            with (
                beside("bench.soak.streams", *reader, core=other) as slow,
                beside("bench.soak.stops", core=cores[0]) as first,
                beside("bench.soak.stops", core=other) as second,
            ):
                loops = {"gate": running.process.pid, "rehearsal": running.rehearsal, "reader of the streams": slow.pid}
                began = {name: processes.Turns.of(pid) for name, pid in loops.items()}
                since = time.time()
                samples = await _load(plan, running, session, tally, say)
                turns = {name: processes.Turns.of(pid) - began[name] for name, pid in loops.items()}
                lateness = Lateness(**await told(slow))
                stops = [*await told(first), *await told(second)]
            left = await _left(running, session)
            await session.close()
            await asyncio.sleep(1.0)  # the gate notices that its clients' connections are closed
            after = running.sample(plan.seconds)
            found = _findings(plan, tally, lateness, [before, *samples, after], left)
            found += judging.lateness(lateness, stops, plan.late, since)
            return [*found, *judging.turns(turns, plan.seconds), *_complaints(running, tally)]


async def _load(
    plan: Plan, running: Running, session: aiohttp.ClientSession, tally: Tally, say: Console
) -> list[Sample]:
    """Let the clients loose for the plan's time; a sample a second."""
    began = time.monotonic()
    samples = []
    pause = max(2.0, plan.clients / 100)  # a hundred requests a second at most, however many clients there are
    async with asyncio.TaskGroup() as group:
        crowd = [
            group.create_task(client(running.port, number, pause, session, tally)) for number in range(plan.clients)
        ]
        told = 0.0
        while (at := time.monotonic() - began) < plan.seconds:
            samples.append(running.sample(at))
            if at - told >= 30:
                told = at
                say.print(f"[dim]{at:.0f} s: {tally.done.total()} steps, {samples[-1].resident / MIB:.1f} MiB[/dim]")
            await asyncio.sleep(1.0)
        for one in crowd:
            one.cancel()
    return samples


async def _left(running: Running, session: aiohttp.ClientSession) -> tuple[int, int]:
    """Requests under way, and slots taken or waited for, once everybody has gone; given up after ten seconds."""
    under_way, leases = 0, 0
    for _ in range(100):
        status = await running.ask(session, "/gate/status")
        under_way = len(status["requests"])
        leases = sum(row["slots"]["running"] + row["slots"]["waiting"] for row in status["models"])
        if not under_way and not leases:
            break
        await asyncio.sleep(0.1)
    return under_way, leases


def _findings(
    plan: Plan, tally: Tally, lateness: Lateness, samples: Sequence[Sample], left: tuple[int, int]
) -> list[Finding]:
    """The rows; the first sample is from before the load and the last from after it."""
    counted = [sample for sample in samples[1:-1] if sample.at >= plan.warm_up]
    growth = judging.slope(counted) * (counted[-1].at - counted[0].at) / MIB if counted else 0.0
    descriptors = samples[-1].descriptors - samples[0].descriptors
    highest = max(sample.resident for sample in samples)
    left_early = sum(count for name, count in tally.done.items() if " left " in name)
    refused = sum(count for status, count in tally.statuses.items() if status in range(400, 500))
    return [
        Finding("requests of clients", f"{tally.done.total()} of {len(tally.done)} kinds"),
        Finding("of them left early by the client", str(left_early)),
        Finding("of them refused, as they should be", str(refused)),
        Finding("of them compacted", str(tally.compactions), "≥ 1", holds=tally.compactions > 0),
        judging.at_most("unexpected statuses", tally.unexpected, 0),
        judging.at_most("answers that were cut, or streams without their end", tally.errors + lateness.broken, 0),
        judging.at_most("requests under way at the end", left[0], 0),
        judging.at_most("slots held or waited for at the end", left[1], 0),
        judging.at_most("descriptors left open", max(descriptors, 0), _MOST_LEFT),
        Finding("resident memory before, and at most", f"{samples[0].resident / MIB:.1f}, {highest / MIB:.1f} MiB"),
        judging.at_most(f"its growth after the first {plan.warm_up:.0f} s", growth, _MOST_GROWTH, "MiB"),
        Finding("tokens of slow streams", f"{lateness.tokens} of {plan.streams} at once"),
    ]


def _complaints(running: Running, tally: Tally) -> list[Finding]:
    """What the gate logged, and in words what went wrong."""
    bad, lines = running.complaints()
    late = sum("did not answer in time" in line for line in lines)
    return [
        Finding("times that the archive did not answer in time", str(late)),
        judging.at_most("warnings and errors in the gate's log beside these", len(bad), 0),
        *(Finding("told", text[:400]) for text in [*tally.failures, *lines[:10]]),
    ]


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print the table, and below it what went wrong in words."""
    table = Table(title="soak")
    for heading in ("", "found", "bound", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for row in findings:
        if row.title != "told":
            style = {True: "green", False: "bold red", None: ""}[row.holds]
            table.add_row(row.title, row.value, row.bound, report.verdict(holds=row.holds), style=style or None)
    console.print(table)
    for row in findings:
        if row.title == "told":
            console.print(row.value, markup=False, highlight=False)


def write(findings: Sequence[Finding], about: str, page: Path) -> None:
    """Put the table into the page.

    Raises:
        ValueError: the page has no place for it.
    """
    lines = ["|  | found | bound |  |", "|---|---:|---|---|"]
    lines += [
        f"| {row.title} | {row.value} | {row.bound} | {report.verdict(holds=row.holds)} |"
        for row in findings
        if row.title != "told"
    ]
    report.put(page, _BEGIN, _END, [*lines, "", f"{about}."])


@click.command()
@click.option("--seconds", type=click.FloatRange(5), default=3600.0, show_default=True, help="How long the load lasts.")
@click.option("--clients", type=click.IntRange(1, 5000), default=500, show_default=True, help="Mixed clients.")
@click.option(
    "--streams", type=click.IntRange(1, 1000), default=200, show_default=True, help="Slow streams beside them."
)
@click.option(
    "--late", type=float, default=0.1, show_default=True, help="Seconds that no token may be late by; 0 does not judge."
)
@click.option("--gate", metavar="COMMAND", help="The gate; `ollama-gate serve` of this environment unless said.")
@click.option("--docs", is_flag=True, help="Write the results into docs/faults.md.")
def main(seconds: float, clients: int, streams: int, late: float, gate: str | None, *, docs: bool) -> None:
    """Load one gate for long, and look for what should not be. The exit code is 1 when a bound is passed."""
    plan = Plan(seconds, clients, streams, late or None)
    load_before = os.getloadavg()[0]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    try:
        findings = uvloop.run(soak(plan, shlex.split(gate) if gate else gate_command(), Console(stderr=True)))
    except LoadError as failure:
        raise click.ClickException(str(failure)) from failure
    show(findings, Console())
    if docs:
        machine = f"{len(os.sched_getaffinity(os.getppid()))} shared cores, {platform.system()} {platform.machine()}"
        about = (
            f"{plan.seconds:.0f} s, {plan.clients} clients and {plan.streams} slow streams; "
            f"{time.strftime('%Y-%m-%d', time.gmtime())}; {machine}; load average before {load_before:.1f}; "
            f"Python {platform.python_version()}{'' if plan.late else '; lateness was not judged'}"
        )
        write(findings, about, _PAGE)
    sys.exit(not judging.fine(findings))


if __name__ == "__main__":
    main()
