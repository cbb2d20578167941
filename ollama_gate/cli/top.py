"""`ollama-gate top`: a running gate in the terminal, live."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ollama_gate.cli import NoAnswer
from ollama_gate.cli.answers import mapping, mappings, seconds, whole
from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.cli.running import Named, Running, gate_options
from ollama_gate.cli.terminal import wide
from ollama_gate.config.units import in_gib

_BAR: Final = 40


@click.command("top")
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.option("--interval", type=click.FloatRange(0.2, 60.0), default=1.0, show_default=True, help="Seconds between.")
@gate_options
@config_option
@json_option
def command(*, once: bool, interval: float, gate: Named, path: Path | None, as_json: bool) -> None:
    """Show what a running gate does: models, slots, memory, and the requests under way. Ctrl-C ends it.

    JSON is what /gate/status gives, once. Exit code 0, 2 when the configuration cannot be used or a key is needed, 3
    when the gate does not answer.
    """
    running = Running.named(gate, configuration(path)[0])
    status = _status(running)
    if as_json:
        write_json(status)
        return
    console = wide()
    if once or not console.is_terminal:
        console.print(screen(status))
        return
    with Live(screen(status), console=console, auto_refresh=False, screen=True) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(_look(running), refresh=True)
        except KeyboardInterrupt:
            return


def _status(running: Running) -> dict[str, Any]:
    """The status, after the gate has looked whether Ollama answers."""
    running.ask("/gate/health")
    return running.status()


def _look(running: Running) -> RenderableType:
    try:
        return screen(_status(running))
    except NoAnswer as silent:
        return Text(f"{silent.message}\nwaiting for it to come back; Ctrl-C ends this", style="red")


def screen(status: Mapping[str, Any]) -> RenderableType:
    """Everything on one screen."""
    return Group(*_head(status), Text(), _models(status), Text(), _requests(status), *_alerts(status))


def _head(status: Mapping[str, Any]) -> Iterator[Text]:
    upstream = mapping(status, "upstream")
    up = bool(upstream.get("up"))
    yield Text.assemble(
        ("ollama-gate ", "bold"),
        f"{status.get('version', '')}, up {_time(seconds(status, 'uptime_seconds'))}   Ollama ",
        (f"{upstream.get('version') or ''} {'answers' if up else 'does not answer'}", "green" if up else "bold red"),
        f" at {upstream.get('url', '')}",
    )
    memory = mapping(status, "memory")
    held, limit = whole(memory, "held") or 0, whole(memory, "limit")
    told = f"memory {in_gib(held)}"
    if not limit:
        yield Text(f"{told}, no limit")
        return
    full = min(int(held * _BAR / limit), _BAR)
    yield Text.assemble(
        f"{told} of {limit / 1024**3:.1f}  ",
        ("█" * full, "red" if held > limit else "blue"),
        ("░" * (_BAR - full), "dim"),
    )


def _models(status: Mapping[str, Any]) -> Table:
    table = _table("model", "", "window", "budget", "slots", "waiting", "longest", "memory", "counts")
    for model in mappings(status, "models"):
        slots, memory, counts = mapping(model, "slots"), mapping(model, "memory"), mapping(model, "counts")
        waiting = slots.get("waiting") or 0
        booked = whole(memory, "booked") or 0
        rung = counts.get("rung")
        table.add_row(
            Text(str(model.get("name", "")), style="bold"),
            Text(str(memory.get("stage", ""))),
            _number(whole(model, "window")),
            _number(whole(model, "embed_limit") or whole(model, "budget")),
            Text(f"{slots.get('running', 0)}/{slots.get('total', 0)}" if slots else ""),
            Text(str(waiting or ""), style="yellow"),
            _time(seconds(slots, "oldest_wait_seconds")),
            in_gib(booked) if booked else "",
            Text(str(rung or "none yet"), style="green" if rung == "exact" else "dim"),
        )
    return table


def _requests(status: Mapping[str, Any]) -> RenderableType:
    requests = sorted(mappings(status, "requests"), key=lambda one: -(seconds(one, "seconds") or 0))
    if not requests:
        return Text("no request under way", style="dim")
    table = _table("request", "route", "model", "phase", "prompt", "for", "signals")
    for one in requests[:30]:
        signals = ", ".join(f"{name} {amount}" for name, amount in mapping(one, "signals").items())
        table.add_row(
            Text(str(one.get("id", ""))),
            Text(str(one.get("route", ""))),
            Text(str(one.get("model") or "").rpartition("/")[2]),
            Text(str(one.get("phase", ""))),
            _number(whole(one, "prompt_tokens")),
            _time(seconds(one, "seconds")),
            Text(signals, style="yellow"),
        )
    return table


def _alerts(status: Mapping[str, Any]) -> Iterator[Text]:
    for alert in mappings(status, "alerts"):
        yield Text(f"! {alert.get('about')}: {alert.get('what')}", style="bold red")


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        right = title in {"window", "budget", "slots", "waiting", "longest", "memory", "prompt", "for"}
        table.add_column(title, justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _time(passed: float | None) -> str:
    if passed is None:
        return ""
    if passed < 60:
        return f"{passed:.1f} s"
    minutes, hours = int(passed // 60), int(passed // 3600)
    return f"{minutes} min" if hours < 1 else f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} days"
