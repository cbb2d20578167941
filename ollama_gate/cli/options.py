"""Options that several commands take, and sizes and times as options take them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config, find, load
from ollama_gate.config.units import parse_duration, parse_size

T = TypeVar("T")
Read = Callable[[click.Context, click.Parameter, str | None], T | None]
"""A callback of an option: its value, read; None where it was not given."""


def _reads(parse: Callable[[object], T]) -> Read[T]:
    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> T | None:
        try:
            return None if value is None else parse(value)
        except ValueError as bad:
            raise click.BadParameter(str(bad), ctx, param) from bad

    return read


as_size: Final = _reads(parse_size)
"""For an option whose value is bytes, written as "24GiB"."""
as_time: Final = _reads(parse_duration)
"""For an option whose value is seconds, written as "5m"."""

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="Configuration file. Default: $OLLAMA_GATE_CONFIG, ./ollama-gate.toml, /etc/ollama-gate/ollama-gate.toml.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")


def configuration(path: Path | None) -> tuple[Config, Path | None]:
    """The configuration in force and the file that it came from."""
    return load(path, os.environ, canonical), find(path, os.environ)
