"""What commands write: JSON for programs, and tables for people."""

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console


def write_json(value: object) -> None:
    """Write a value for programs, on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def wide() -> "Console":
    """The terminal; a file or pipe takes long lines, so that tables keep their shape there."""
    from rich.console import Console  # noqa: PLC0415 - not for those that write JSON only

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)
