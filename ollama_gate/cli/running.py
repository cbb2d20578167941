"""The gate that runs, as commands ask it: where it is, and what it says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ollama_gate.cli import NoAnswer, Unusable
from ollama_gate.cli.ask import ask
from ollama_gate.cli.options import configuration
from ollama_gate.config import Config

Command = TypeVar("Command", bound=Callable[..., Any])


def gate_options(command: Command) -> Command:
    """Where the gate is, and the key that it asks for."""
    command = click.option(
        "--key",
        envvar="OLLAMA_API_KEY",
        metavar="KEY",
        help="Key for the gate, where it asks for one. Default: $OLLAMA_API_KEY.",
    )(command)
    return click.option("--gate", metavar="URL", help="Address of the running gate. Default: from the configuration.")(
        command
    )


@dataclass(frozen=True, slots=True)
class Running:
    """A gate to ask."""

    url: str
    key: str | None = None

    @classmethod
    def named(cls, url: str | None, key: str | None, path: Path | None) -> "Running":
        """The gate at this URL, or else the one that this configuration is for."""
        return cls((url or address(configuration(path)[0])).rstrip("/"), key)

    def ask(self, path: str, body: bytes | None = None, *, within: float = 10.0) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of one question.

        Raises:
            NoAnswer: nobody answers there, or not as a gate does.
            Unusable: the gate asks for a key, or for another one.
        """
        try:
            status, answer = ask(f"{self.url}{path}", body, within=within, key=self.key)
        except NoAnswer as silent:
            fix = "Start the gate (`ollama-gate serve`), or say where it is: --gate URL"
            raise NoAnswer(f"{silent.message}. {fix}") from silent
        if not isinstance(answer, dict):
            raise NoAnswer(f"{self.url} answers, but not as ollama-gate does: is it Ollama? Say --gate URL")
        if status in {401, 403}:
            raise Unusable(f"{self.url} answers {status}: {message(answer)}. Say --key KEY, or set OLLAMA_API_KEY")
        return status, answer

    def status(self) -> dict[str, Any]:
        """What `/gate/status` shows.

        Raises:
            NoAnswer: nobody answers there, or it is no gate.
            Unusable: the gate asks for a key that may see it.
        """
        status, answer = self.ask("/gate/status")
        if status != 200 or "models" not in answer:
            raise NoAnswer(f"{self.url} answers {status}, but not as ollama-gate does: is it Ollama? Say --gate URL")
        return answer


def address(config: Config) -> str:
    """Where a gate with this configuration can be asked from its own machine."""
    listen = config.server.address
    host = listen.host if listen.host not in {"", "0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104  compared
    scheme = "http" if config.server.tls_cert is None else "https"
    return f"{scheme}://{type(listen)(host, listen.port)}"


def message(answer: dict[str, Any]) -> str:
    """What an error in any dialect says."""
    error = answer.get("error", answer)
    return str(error.get("message", error) if isinstance(error, dict) else error)
