"""`ollama-gate config`: the configuration in force, and what can be configured."""

from pathlib import Path

import click

from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.config import reference


@click.group("config")
def command() -> None:
    """Show the configuration in force, or what can be configured."""


@command.command()
@config_option
@json_option
def show(path: Path | None, *, as_json: bool) -> None:
    """Print every key with the value in force, as a file that gives the same configuration."""
    config, file = configuration(path)
    if as_json:
        click.echo(config.model_dump_json(indent=2, exclude_none=True))
        return
    click.echo(f"# from {file or 'the defaults: there is no file'}, and the environment")
    click.echo(reference.shown(config), nl=False)


@command.command()
def example() -> None:
    """Print an example file: every key, explained."""
    click.echo(reference.example(), nl=False)


@command.command()
def schema() -> None:
    """Print the JSON schema of the file, for editors."""
    click.echo(reference.schema(), nl=False)


@command.command("reference")
def page() -> None:
    """Print the reference page in Markdown."""
    click.echo(reference.page(), nl=False)
