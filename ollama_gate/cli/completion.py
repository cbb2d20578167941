"""`ollama-gate completion`: what a shell needs to complete commands and options."""

import click
from click.shell_completion import get_completion_class

from ollama_gate.cli import Unusable

PROGRAM = "ollama-gate"
VARIABLE = "_OLLAMA_GATE_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash   eval "$(ollama-gate completion bash)"            in ~/.bashrc
    zsh    eval "$(ollama-gate completion zsh)"             in ~/.zshrc
    fish   ollama-gate completion fish > ~/.config/fish/completions/ollama-gate.fish
    """  # noqa: D301  \b is click's mark for lines that are not wrapped
    completion = get_completion_class(shell)
    if completion is None:
        raise Unusable(f"click does not complete for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(completion(root, {}, PROGRAM, VARIABLE).source())
