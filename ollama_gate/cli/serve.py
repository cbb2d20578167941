"""`ollama-gate serve`: run the gate."""

import os
from pathlib import Path

import click

from ollama_gate.cli import lean  # before anything imports what it leaves out

# isort: split
from ollama_gate import app
from ollama_gate.cli.options import config_option, configuration

lean.loaded()


@click.command("serve")
@config_option
@click.option("--listen", metavar="HOST:PORT", help="Address to listen on; wins over the configuration.")
@click.option("--upstream", metavar="URL", help="Where Ollama is; wins over the configuration.")
@click.option(
    "--open", "open_to_all", is_flag=True, help="Serve without keys on an address that others can reach (server.open)."
)
@click.pass_context
def command(
    ctx: click.Context, path: Path | None, listen: str | None, upstream: str | None, *, open_to_all: bool
) -> None:
    """Run the gate until SIGTERM or Ctrl-C; SIGHUP reads the configuration again.

    It starts whether or not Ollama is up, and says so on /gate/health.
    """
    # Into the environment, because a reload reads the configuration from the same places again.
    if listen is not None:
        os.environ["OLLAMA_GATE_SERVER_LISTEN"] = listen
    if upstream is not None:
        os.environ["OLLAMA_GATE_UPSTREAM_URL"] = upstream
    if open_to_all:
        os.environ["OLLAMA_GATE_SERVER_OPEN"] = "true"
    ctx.exit(app.run(*configuration(path)))
