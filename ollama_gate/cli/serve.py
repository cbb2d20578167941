"""`ollama-gate serve`: run the gate."""

import importlib
import os
import sys
from pathlib import Path
from typing import Final

import click

_HIDDEN: Final = "rich"


def _hide_rich() -> None:
    """Import structlog without rich, which it draws on for tracebacks in colour: 5 MB that a service never uses."""
    if _HIDDEN in sys.modules or "structlog" in sys.modules:
        return
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]  # None marks a module as not to be had
    modules[_HIDDEN] = None
    importlib.import_module("structlog")
    del modules[_HIDDEN]


_hide_rich()

from ollama_gate import app  # noqa: E402 - it imports structlog
from ollama_gate.cli.options import config_option, configuration  # noqa: E402 - likewise


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
