"""The gate that runs, as commands ask it: where it is, and what it says."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from ollama_gate.cli import NoAnswer, Unusable
from ollama_gate.cli.answers import mapping
from ollama_gate.cli.ask import Untrusted, ask
from ollama_gate.cli.options import configuration
from ollama_gate.config import Config
from ollama_gate.config.address import parse_listen, parse_upstream, upstream_address

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Named:
    """The gate as the command line names it."""

    url: str | None = None
    key: str | None = None
    ca: Path | None = None


def gate_options(command: Command) -> Command:
    """Where the gate is, the key that it asks for, and who vouches for its certificate: `gate`, as a `Named`."""

    @wraps(command)
    def with_gate(*args: Any, gate: str | None, key: str | None, ca: Path | None, **more: Any) -> Any:
        return command(*args, gate=Named(gate, key, ca), **more)

    for option in (
        click.option(
            "--ca",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Certificate of the authority that signed the gate's own (PEM). Default: what the system trusts, or "
            "the file that $SSL_CERT_FILE names.",
        ),
        click.option(
            "--key",
            envvar="OLLAMA_API_KEY",
            metavar="KEY",
            help="Key for the gate, where it asks for one. Default: $OLLAMA_API_KEY.",
        ),
        click.option("--gate", metavar="URL", help="Address of the running gate. Default: from the configuration."),
    ):
        with_gate = option(with_gate)
    return cast("Command", with_gate)


@dataclass(frozen=True, slots=True)
class Running:
    """A gate to ask."""

    url: str
    key: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def named(cls, gate: Named, config: Config) -> "Running":
        """The gate that the command line names, or else the one that this configuration is for.

        Raises:
            Unusable: that is no address, or no certificate.
        """
        try:
            url = address(config) if gate.url is None else _url(gate.url)
        except ValueError as bad:
            raise Unusable(f"--gate: {bad}") from bad
        return cls(url, gate.key, None if gate.ca is None else _trusting(gate.ca))

    def ask(self, path: str, body: bytes | None = None, *, within: float = 10.0) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of one question.

        Raises:
            NoAnswer: nobody answers there, or not as a gate does.
            Unusable: the gate asks for a key, or for another one.
        """
        try:
            status, answer = ask(f"{self.url}{path}", body, within=within, key=self.key, tls=self.tls)
        except Untrusted as stranger:
            fix = "Name the authority that signed it (--ca FILE), and the gate as the certificate does (--gate URL)"
            raise NoAnswer(f"{stranger.message}. {fix}") from stranger
        except NoAnswer as silent:
            fix = "Start the gate (`ollama-gate serve`), or say where it is: --gate URL"
            raise NoAnswer(f"{silent.message}. {fix}") from silent
        if not isinstance(answer, dict):
            raise NoAnswer(f"{self.url} answers, but not as ollama-gate does: is it Ollama? Say --gate URL")
        if status in {401, 403}:
            raise Unusable(f"{self.url} answers {status}: {message(answer)}. Say --key KEY, or set OLLAMA_API_KEY")
        return status, answer

    def upstream(self) -> str:
        """The URL of the Ollama that it stands in front of.

        Raises:
            NoAnswer: nobody answers there, it is no gate, or its Ollama is one that only its own machine can reach.
        """
        _, answer = self.ask("/gate/health")
        url = mapping(answer, "upstream").get("url")
        try:
            url = parse_upstream(url) if isinstance(url, str) and "://" in url else None
        except ValueError:
            url = None
        if url is None or "live" not in answer:
            raise NoAnswer(f"{self.url} answers, but not as ollama-gate does: is it Ollama? Say --gate URL")
        if upstream_address(url).here and not upstream_address(self.url).here:
            raise NoAnswer(f"{self.url} asks an Ollama on its own machine ({url}): run this command there")
        return url

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


@dataclass(frozen=True, slots=True)
class Front:
    """A configuration with the Ollama that is to be asked."""

    config: Config
    file: Path | None
    gate: str | None = None
    """The running gate that named this Ollama; None where the configuration does."""

    @property
    def url(self) -> str:
        """Where that Ollama is."""
        return self.config.upstream.url

    @property
    def source(self) -> str:
        """Who says that it is there."""
        return f"as the gate at {self.gate} says" if self.gate is not None else "as the configuration says"


def front(gate: Named, path: Path | None) -> Front:
    """The configuration, in front of the Ollama that the running gate stands in front of.

    A running gate is asked when the command line names it, or when the configuration does not say where Ollama is.

    Raises:
        NoAnswer: the gate that was named does not answer, or its Ollama cannot be reached from here.
        Unusable: that is no address, or no certificate.
    """
    config, file = configuration(path)
    if gate.url is None and "url" in config.upstream.model_fields_set:
        return Front(config, file)
    running = Running.named(gate, config)
    try:
        url = running.upstream()
    except NoAnswer:
        if gate.url is not None:
            raise
        return Front(config, file)
    upstream = config.upstream.model_copy(update={"url": url})
    return Front(config.model_copy(update={"upstream": upstream}), file, running.url)


def _url(text: str) -> str:
    """An address as --gate takes it: `host:port` or a URL."""
    return parse_upstream(text if "://" in text else f"http://{parse_listen(text)}")


def _trusting(file: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=file)
    except OSError as bad:  # SSLError is one
        raise Unusable(f"--ca: {file} is no file of certificates (PEM)") from bad
    return context


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
