"""`ollama-gate rehearse`: run the rehearsal upstream."""

import os
import sys

import click


@click.command("rehearse", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run a pretended Ollama, to try the gate without a real one.

    It is a program of its own: `ollama-gate rehearse --help` lists its options.
    """
    # A process of its own: the rehearsal and the gate share nothing.
    os.execv(sys.executable, [sys.executable, "-m", "ollama_gate.rehearsal", *arguments])  # noqa: S606  no shell
