"""`ollama-gate check`: is the configuration good, and does Ollama agree with it."""

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from ollama_gate.cli import FINDINGS, NO_ANSWER
from ollama_gate.cli.findings import Finding, Level, Seen, examine, in_order, must_be_put_right
from ollama_gate.cli.ollama import try_to_look
from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.cli.running import Front, Named, front, gate_options
from ollama_gate.cli.terminal import Terminal
from ollama_gate.config import Config

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
    seen, silent = (None, []) if offline else try_to_look(before)
    findings = [*silent, *in_order([*examine(config, seen), *([] if offline else archived(config))])]
    code = NO_ANSWER if silent else FINDINGS if must_be_put_right(findings, strict=strict) else 0
    if as_json:
        write_json(report(findings, before, seen, code))
    else:
        show(findings, before, seen)
    ctx.exit(code)


def report(findings: list[Finding], before: Front, seen: Seen | None, code: int) -> dict[str, Any]:
    """What programs get: the findings, of what, and whether the exit code is 0."""
    return {
        "ok": code == 0,
        "file": str(before.file) if before.file else None,
        "upstream": before.url,
        "upstream_from": before.gate or "configuration",
        "version": seen.version if seen else None,
        "findings": [asdict(finding) for finding in findings],
    }


def archived(config: Config) -> list[Finding]:
    """What is wrong with the database of the archive and of what gates share, where there is one."""
    if not (config.archive.enabled or config.shared.enabled):
        return []
    from ollama_gate.archive import offline  # noqa: PLC0415 - only where there is one

    problem = offline.problem(config.archive.place(), migrates=config.archive.migrate)
    if not problem:
        return []
    found: list[Finding] = []
    if config.archive.enabled:
        fix = "conversations over their budget are refused until it is put right: docs/archive.md"
        found.append(Finding(Level.ERROR, "archive", problem, fix))
    if config.shared.enabled:
        fix = "a gate that starts lets nobody in, and one that runs keeps the keys it knows: docs/operate.md"
        found.append(Finding(Level.ERROR, "shared", problem, fix))
    return found


def show(findings: list[Finding], before: Front, seen: Seen | None) -> None:
    """Write findings for people, those that are put right alike together."""
    console = Terminal()
    console.print(Text(f"configuration  {before.file or 'defaults (there is no file)'}"))
    if seen:
        console.print(Text(f"Ollama         {before.url}, version {seen.version}, {len(seen.cards)} local models"))
        console.print(Text(f"               {before.source}", style="dim"))
    if not findings:
        console.print(Text("nothing to put right", style="green"))
        return
    rows: list[tuple[Text, Text]] = []
    for (level, fix), group in groupby(findings, key=lambda finding: (finding.level, finding.fix)):
        alike = list(group)
        shown = alike if len(alike) <= _ALIKE + 1 else alike[:_ALIKE]
        for finding in shown:
            told = Text.assemble((finding.about, "bold"), f"  {finding.what}")
            rows.append((Text(level, style=_STYLES[level]), told))
        if len(shown) < len(alike):
            rows.append((Text(level, style=_STYLES[level]), Text(f"and {len(alike) - len(shown)} more like these")))
        rows.append((Text(), Text(f"→ {fix}", style="dim")))
    console.print()
    if console.is_terminal:
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    for level_text, told in rows:  # a line each, for those who search in them
        console.print(Text(f"{level_text.plain:<9}").append_text(told), soft_wrap=True)
