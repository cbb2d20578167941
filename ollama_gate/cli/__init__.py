"""The command line: one file a command, loaded when the command is called.

Exit codes, the same for every command: 0 all is well; 1 there is something to put right; 2 the command line or the
configuration cannot be used; 3 the gate or Ollama gave no answer.
"""

import gc
import importlib
from types import ModuleType
from typing import Any, Final

import click

from ollama_gate import __version__
from ollama_gate.cli.stdout import guarded
from ollama_gate.errors import ConfigError

FINDINGS: Final = 1
UNUSABLE: Final = 2
NO_ANSWER: Final = 3

COMMANDS: Final = (
    *("serve", "check", "doctor", "plan", "models", "config", "keys", "archive"),
    *("count", "audit", "top", "completion", "rehearse"),
)


class NoAnswer(click.ClickException):
    """The gate, Ollama or a database did not answer, or not as expected."""

    exit_code = NO_ANSWER
    word = "no_answer"

    def show(self, file: object = None) -> None:  # noqa: ARG002  click's signature
        """Write it, with the words of who answered as a terminal may have them."""
        click.echo(f"Error: {_visible(self.message)}", err=True)


class Unusable(click.ClickException):
    """The configuration or an argument cannot be used."""

    exit_code = UNUSABLE
    word = "unusable"

    def show(self, file: object = None) -> None:  # noqa: ARG002  click's signature
        """Write every problem on a line of its own."""
        click.echo(_visible(self.message), err=True)


class Commands(click.Group):
    """The commands, each imported from the module of its name only when it is needed."""

    def main(self, *args: Any, **more: Any) -> Any:
        """As click's, its help and version included; output that cannot be written is an answer, not a traceback."""
        with guarded():
            return super().main(*args, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        """One command, or None."""
        if cmd_name not in COMMANDS:
            return None
        command = _loaded(f"ollama_gate.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; one that does not exist is told with the nearest that does."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{unknown.message} Did you mean {near[0]!r}?", ctx) from unknown

    def invoke(self, ctx: click.Context) -> object:
        """Run it; what cannot be done is an answer, not a traceback, and an answer in JSON where that was asked for."""
        as_json = "--json" in ctx.args  # they are those of the command, and are gone once it runs
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            unusable = Unusable(str(error))
            raise (_in_json(unusable) if as_json else unusable) from error
        except click.ClickException as error:
            if as_json:
                raise _in_json(error) from error
            raise
        except click.Abort as error:
            if as_json:
                raise _in_json(click.ClickException("a question was not answered with yes")) from error
            raise


def _in_json(error: click.ClickException) -> click.exceptions.Exit:
    """Write an error for programs, where the command's JSON would have stood, and give the way out."""
    from ollama_gate.cli.output import write_json  # noqa: PLC0415 - only for a mistake

    word = "usage" if isinstance(error, click.UsageError) else getattr(error, "word", "failed")
    write_json({"error": {"code": word, "message": error.format_message(), "exit_code": error.exit_code}})
    return click.exceptions.Exit(error.exit_code)


def _visible(message: str) -> str:
    """An error's words, in which there may be some of another program or of a file."""
    from ollama_gate.cli.output import visible  # noqa: PLC0415 - only for a mistake

    return visible(message)


def _loaded(module: str) -> ModuleType:
    """Import without looking for garbage meanwhile: there is none, and looking takes a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if collecting:
            gc.enable()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ollama-gate", message="%(prog)s %(version)s")
def main() -> None:
    """A guard in front of Ollama: counts every prompt, and refuses what would be cut silently.

    \b
    Exit codes: 0 all is well; 1 something to put right; 2 command line or
    configuration cannot be used; 3 no answer from the gate or from Ollama.
    """  # noqa: D301  \b is click's mark for lines that are not wrapped
