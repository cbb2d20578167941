"""`ollama-gate check`: is the configuration good, and does Ollama agree with it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ollama_gate.catalog.card import ModelCard, card_from_show
from ollama_gate.catalog.names import canonical, is_cloud, is_valid
from ollama_gate.cli import FINDINGS, NO_ANSWER, NoAnswer
from ollama_gate.cli.ask import ask
from ollama_gate.cli.findings import Finding, Level, Resident, Seen, examine, in_order, worst
from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.cli.running import Front, Named, front, gate_options
from ollama_gate.config import Config
from ollama_gate.machine import memory_bytes

MOST_MODELS: Final = 500
_MANY: Final = 20
"""Models from which on a bar is shown while they are asked for."""
START: Final = "Start Ollama, or say where it is: upstream.url, OLLAMA_UPSTREAM, or --gate for that of a running gate"
_ALIKE: Final = 5
"""Findings that are put right alike and are shown by themselves; JSON has all."""
_STYLES: Final = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


@click.command("check")
@gate_options
@config_option
@click.option("--strict", is_flag=True, help="Warnings fail too, for example a model without a declared budget.")
@click.option("--offline", is_flag=True, help="Check the file only; do not ask Ollama.")
@json_option
@click.pass_context
def command(ctx: click.Context, *, gate: Named, path: Path | None, strict: bool, offline: bool, as_json: bool) -> None:
    """Check the configuration, and whether Ollama agrees with it.

    Says which models have no declared window or budget, and names the way to put each finding right. Exit code 0 when
    there is no error (with --strict no warning either), 1 when there is one, 2 when the configuration cannot
    be used, 3 when Ollama does not answer.
    """
    before = Front(*configuration(path)) if offline else front(gate, path)
    config = before.config
    seen, silence = None, ""
    if not offline:
        try:
            seen = look(before.url)
        except NoAnswer as error:
            silence = error.message
    findings = in_order([*examine(config, seen), *([] if offline else archived(config))])
    if silence:
        findings.insert(0, Finding(Level.ERROR, "Ollama", silence, START))
    failed = worst(findings, strict=strict)
    code = NO_ANSWER if silence else FINDINGS if failed else 0
    if as_json:
        click.echo(
            json.dumps(
                {
                    "ok": code == 0,
                    "file": str(before.file) if before.file else None,
                    "upstream": before.url,
                    "upstream_from": before.gate or "configuration",
                    "version": seen.version if seen else None,
                    "findings": [asdict(finding) for finding in findings],
                },
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        show(findings, before, seen)
    ctx.exit(code)


def archived(config: Config) -> list[Finding]:
    """What is wrong with the archive, where there is one."""
    if not config.archive.enabled:
        return []
    from ollama_gate.archive import offline  # noqa: PLC0415 - only where there is one

    problem = offline.problem(config.archive.place(), migrates=config.archive.migrate)
    fix = "conversations over their budget are refused until it is put right: docs/archive.md"
    return [Finding(Level.ERROR, "archive", problem, fix)] if problem else []


def look(url: str) -> Seen:
    """Ask an Ollama for its version, its models and what is loaded.

    Raises:
        NoAnswer: it does not answer, or not as Ollama does.
    """
    version = _member(_get(url, "/api/version"), "version", str)
    rows = _rows(_get(url, "/api/tags"))[:MOST_MODELS]
    console = Console(stderr=True)
    quiet = len(rows) < _MANY or not console.is_terminal
    cards = [
        _card(url, row) for row in track(rows, "asking for each model", console=console, transient=True, disable=quiet)
    ]
    resident = [
        Resident(name, _number(row, "context_length"), _number(row, "size_vram") or 0, _number(row, "size") or 0)
        for row in _rows(_get(url, "/api/ps"))
        if (name := _name(row))
    ]
    return Seen(version, tuple(card for card in cards if card), tuple(resident), memory_bytes())


def must_look(before: Front) -> Seen:
    """As `look`, for commands that can do nothing without it: the error names the fix."""
    try:
        return look(before.url)
    except NoAnswer as silent:
        raise NoAnswer(f"{silent.message}. {START}") from silent


def _card(url: str, row: Mapping[str, Any]) -> ModelCard | None:
    name = _name(row)
    if not name or is_cloud(name):
        return None
    status, told = ask(f"{url}/api/show", json.dumps({"model": name}).encode())
    if status != 200 or not isinstance(told, dict):
        return None  # removed between the two questions, or broken: Ollama would not run it either
    return card_from_show(canonical(name), name, str(row.get("digest", "")), told, size=_number(row, "size") or 0)


def _name(row: Mapping[str, Any]) -> str:
    name = row.get("name")
    return name if isinstance(name, str) and is_valid(name) else ""


def _number(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) else None


def _get(url: str, path: str) -> Any:
    status, answer = ask(url + path)
    if status != 200:
        raise NoAnswer(f"{url}{path} answers {status}: it is not an Ollama")
    return answer


def _member(answer: Any, name: str, kind: type) -> Any:
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise NoAnswer("the upstream answers, but not as Ollama does")
    return value


def _rows(answer: Any) -> list[dict[str, Any]]:
    models = answer.get("models") if isinstance(answer, dict) else None
    return [row for row in models or [] if isinstance(row, dict)]


def show(findings: list[Finding], before: Front, seen: Seen | None) -> None:
    """Write findings for people, those that are put right alike together."""
    console = Console(highlight=False)
    console.print(Text(f"configuration  {before.file or 'defaults (there is no file)'}"))
    if seen:
        console.print(Text(f"Ollama         {before.url}, version {seen.version}, {len(seen.cards)} local models"))
        console.print(Text(f"               {before.source}", style="dim"))
    if not findings:
        console.print(Text("nothing to put right", style="green"))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for (level, fix), group in groupby(findings, key=lambda finding: (finding.level, finding.fix)):
        alike = list(group)
        shown = alike if len(alike) <= _ALIKE + 1 else alike[:_ALIKE]
        for finding in shown:
            told = Text.assemble((finding.about, "bold"), f"  {finding.what}")
            table.add_row(Text(level, style=_STYLES[level]), told)
        if len(shown) < len(alike):
            table.add_row(Text(level, style=_STYLES[level]), Text(f"and {len(alike) - len(shown)} more like these"))
        table.add_row("", Text(f"→ {fix}", style="dim"))
    console.print()
    console.print(table)
