"""Measure the gate side by side with nginx and no proxy; see docs/speed.md."""

import contextlib
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import uvloop
from rich.console import Console

from bench import instructions, processes, report, results, speed, targets, vocabulary
from bench.load import LoadError
from bench.results import Row
from bench.speed import Plan, Record

_HERE: Final = Path(__file__).parent
_LATEST: Final = _HERE / "results" / "latest.json"
_PAGE: Final = _HERE.parent / "docs" / "speed.md"
_ALONE_SECONDS: Final = 120


def real_vocabulary(named: Path | None) -> Path | None:
    """A GGUF file with a vocabulary of 262 144 tokens: the one named, else Gemma 3's from the tests' cache."""
    if named is not None:
        return named
    cache = Path(os.environ.get("OLLAMA_GATE_TEST_CACHE") or _HERE.parent / ".cache" / "vocabularies")
    found = cache / "gemma3-270m.gguf"
    return found if found.exists() else None


async def run(plan: Plan, gate: list[str] | None, gguf: Path | None, record: Record, say: Console) -> None:
    """Start everything, measure, and end everything."""
    measured, other = processes.cores()
    os.sched_setaffinity(0, {other})
    async with contextlib.AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        upstream = await stack.enter_async_context(targets.upstream(home, other, gguf))
        if gate is not None and gguf is not None:
            say.print("[dim]a real vocabulary ...[/dim]")
            await vocabulary.measure(home, upstream.port, gate, record)
            say.print("[dim]counting ...[/dim]")
            alone(record, "bench.counting", "--vocabulary", str(gguf))
            say.print("[dim]compacting ...[/dim]")
            alone(record, "bench.compaction", "--vocabulary", str(gguf))
        if gate is not None:
            say.print("[dim]slots and memory ...[/dim]")
            alone(record, "bench.admission", "--gate", shlex.join(gate))
        under_test = [upstream]
        proxy = await stack.enter_async_context(targets.nginx(home, measured, upstream.port))
        if proxy is not None:
            under_test.append(proxy)
        lanes = []
        if gate is not None:
            ours = await stack.enter_async_context(targets.gate(home, measured, upstream.port, gate))
            under_test.append(ours)
            if gguf is None:
                record.add("start to ready", "gate", ours.ready_seconds)
                record.add("resident at start", "gate", ours.idle_bytes)
            lanes = [lane for lane in speed.TRANSLATED if await speed.spoken(ours, lane)]
        for target in under_test:
            await speed.warm(target)
        if proxy is not None:
            record.add("resident at start", "nginx", proxy.idle_bytes)
        for number in range(plan.rounds):
            say.print(f"[dim]round {number + 1} of {plan.rounds} ...[/dim]")
            # Each round begins with another target, so that none always follows the same one.
            turned = under_test[number % len(under_test) :] + under_test[: number % len(under_test)]
            await speed.one_round(turned, plan, lanes, record)
        for target in under_test[1:]:
            record.add("resident at end", target.name, processes.resident_bytes(target.pid or 0))


def alone(record: Record, module: str, *options: str) -> None:
    """Measure one part in a process of its own, with the whole machine for its threads."""
    with tempfile.TemporaryFile() as output:
        with processes.running([sys.executable, "-m", module, *options], core=None, output=output) as process:
            process.wait(_ALONE_SECONDS)
        output.seek(0)
        told = output.read().decode()
    if process.returncode:
        raise LoadError(f"{module} failed: {told[-2000:]}")
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    for key, value in found.items():
        if isinstance(value, float):
            record.add(key, "gate", value)


def about(plan: Plan, gguf: Path | None, load_before: float) -> dict[str, str]:
    """What a reader must know of the machine and the run; nothing that names it."""
    cores = len(os.sched_getaffinity(0))
    binary = targets.nginx_binary()
    seen = subprocess.run([binary, "-v"], capture_output=True, text=True, check=False).stderr if binary else ""
    return {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{cores} shared cores, {platform.system()} {platform.machine()}",
        "load average before": f"{load_before:.1f}",
        "Python": platform.python_version(),
        "aiohttp": version("aiohttp"),
        "uvloop": version("uvloop"),
        "nginx": seen.strip().rpartition("/")[2] or "not installed",
        "rounds": str(plan.rounds),
        "vocabulary": gguf.stem if gguf is not None else "none",
    }


def _rows(stored: dict[str, Any]) -> list[Row]:
    return [Row(**row) for row in stored["rows"]]


def _counted(command: list[str], *, save: bool, console: Console) -> bool:
    """Count instructions; whether all is well."""
    if not save and (why := instructions.incomparable()) is not None:
        console.print(why)
        return True
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        try:
            found = uvloop.run(instructions.count(Path(home), command))
        except LoadError as failure:
            raise click.ClickException(str(failure)) from failure
    if save:
        instructions.save(found)
    fine, lines = instructions.compare(found)
    for line in lines:
        console.print(line)
    return fine


@click.command()
@click.option("--quick", "plan", flag_value="quick", help="Under a minute; noisier.")
@click.option("--tiny", "plan", flag_value="tiny", hidden=True)
@click.option("--rounds", type=click.IntRange(1, 50), help="How often everything is measured.")
@click.option(
    "--gate", metavar="COMMAND", help="The gate to measure; `ollama-gate serve` of this environment unless said."
)
@click.option("--without-gate", is_flag=True, help="Only no proxy and nginx.")
@click.option(
    "--vocabulary",
    "gguf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A GGUF file with a big vocabulary; Gemma 3's from the tests' cache unless said.",
)
@click.option("--no-vocabulary", is_flag=True, help="Leave out what needs a big vocabulary.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), default=_LATEST, show_default=False)
@click.option("--instructions", "counts", is_flag=True, help="Count instructions instead, and compare with the last.")
@click.option("--save", is_flag=True, help="With --instructions: make these counts the ones to compare with.")
@click.option("--docs", is_flag=True, help="Measure nothing: write the last results into docs/speed.md.")
def main(
    plan: str | None,
    rounds: int | None,
    gate: str | None,
    gguf: Path | None,
    out: Path,
    *,
    without_gate: bool,
    no_vocabulary: bool,
    counts: bool,
    save: bool,
    docs: bool,
) -> None:
    """Measure the gate side by side with nginx and with no proxy at all. The exit code is 1 when a goal is missed."""
    console = Console(stderr=True)
    if docs:
        stored = json.loads(out.read_text(encoding="utf-8"))
        report.write(_rows(stored), stored["about"], _PAGE)
        return
    command = None if without_gate else shlex.split(gate) if gate else targets.gate_command()
    if counts:
        sys.exit(not _counted(command or [], save=save, console=console))
    wanted = {"quick": speed.QUICK, "tiny": speed.TINY}.get(plan or "", Plan())
    if rounds is not None:
        wanted = replace(wanted, rounds=rounds)
    if targets.nginx_binary() is None:
        console.print(
            f"nginx is not installed, so there is nothing to compare with: {targets.INSTALL_NGINX}", style="yellow"
        )
    big = None if no_vocabulary else real_vocabulary(gguf)
    if big is None and not no_vocabulary:
        console.print("No big vocabulary: run scripts/vocabularies, or name one with --vocabulary.", style="yellow")
    told = about(wanted, big, os.getloadavg()[0])
    record = Record()
    began = time.monotonic()
    try:
        uvloop.run(run(wanted, command, big, record, console))
    except LoadError as failure:
        raise click.ClickException(str(failure)) from failure
    told["took"] = f"{time.monotonic() - began:.0f} s"
    stored = results.document(record, told)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    rows = _rows(stored)
    report.show(rows, told, Console())
    sys.exit(any(row.holds is False for row in rows))


if __name__ == "__main__":
    main()
