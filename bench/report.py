"""Showing results: a table in the terminal, and the one in the documentation."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.results import Row

_BEGIN: Final = "<!-- results: written by scripts/bench --docs -->"
_END: Final = "<!-- end of results -->"
_HEADINGS: Final = ("", "no proxy", "nginx", "the gate", "ratio", "goal", "")


def show(rows: Iterable[Row], about: Mapping[str, str], console: Console) -> None:
    """Print the table."""
    table = Table(title="ollama-gate, nginx and no proxy in one run")
    for place, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="right" if 0 < place < 5 else "left")
    for row in rows:
        color = {True: "green", False: "bold red", None: ""}[row.holds]
        table.add_row(*_cells(row), style=color or None)
    console.print(table)
    for key, value in about.items():
        console.print(f"[dim]{key}: {value}[/dim]")


def write(rows: Iterable[Row], about: Mapping[str, str], page: Path) -> None:
    """Put the table into a page.

    Raises:
        ValueError: the page has no place for it.
    """
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|---|---:|---:|---:|---:|---|---|"]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    told = "; ".join(f"{key} {value}" for key, value in about.items())
    put(page, _BEGIN, _END, [*lines, "", f"{told}."])


def put(page: Path, begin: str, end: str, lines: Iterable[str]) -> None:
    """Put lines between two marks of a page, in the place of those that are there.

    Raises:
        ValueError: the page has no such marks.
    """
    before, mark, rest = page.read_text(encoding="utf-8").partition(begin)
    _, end_mark, after = rest.partition(end)
    if not mark or not end_mark:
        raise ValueError(f"{page} has no place for results")
    page.write_text(f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}", encoding="utf-8")


def verdict(*, holds: bool | None) -> str:
    """Whether a bound holds, for a cell of a table; empty where there is none."""
    return {True: "yes", False: "**no**", None: ""}[holds]


def _cells(row: Row) -> tuple[str, ...]:
    values = (_number(value, row.unit) for value in (row.direct, row.nginx, row.gate))
    return (row.title, *values, "" if row.ratio is None else f"{row.ratio:.1f}", row.goal, verdict(holds=row.holds))


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {unit}".replace(" /s", "/s")
