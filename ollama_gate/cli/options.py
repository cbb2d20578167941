"""What several commands take."""

import os
from pathlib import Path

import click

from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config, find, load

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
