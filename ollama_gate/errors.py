"""Every way in which the gate says no, and the one value that carries it.

A refusal is made where the reason is known and written by the dialect of the caller (`dialects/*.py`). It carries
everything an answer needs: status, reason phrase, headers, the sentence, and the facts for programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of the gate's own, in no dialect yet."""

    status: int
    code: str
    """A stable word for programs, e.g. context_length_exceeded, ambiguous_keys, upstream_unreachable."""
    message: str
    """One or two sentences for people: what is wrong and what to do."""
    type: str = "invalid_request_error"
    """OpenAI's error type: invalid_request_error, not_found_error, api_error, overloaded_error …"""
    param: str | None = None
    """The field of the request that is to blame, in the caller's terms (`messages`, `input[2]`)."""
    reason: str = ""
    """The reason phrase of the status line; empty for the usual one. Some clients show nothing else."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Numbers and parts: window, budget, tokens, parts …"""
    headers: Mapping[str, str] = field(default_factory=dict)


class GateError(Exception):
    """Base of everything the gate raises on purpose."""


class Refused(GateError):
    """Raised by any stage of the pipeline; nothing has reached Ollama and nothing has been sent to the client."""

    def __init__(self, refusal: Refusal) -> None:
        """Carry one refusal."""
        super().__init__(refusal.message)
        self.refusal = refusal


class ConfigError(GateError):
    """The configuration cannot be used; the message names the key and what to do."""


class UpstreamError(GateError):
    """Base of what goes wrong between the gate and Ollama."""

    code = "upstream_failed"
    """A stable word for programs, metrics and the log."""

    def anew(self) -> Self:
        """The same failure, not raised yet, for whoever keeps it or tells others of it.

        One that was raised knows the frames that it went through. Kept by something that they know, it would keep them,
        and with them a client's body, until Python looks for cycles.
        """
        return type(self)(str(self))


class UpstreamUnreachable(UpstreamError):
    """No connection could be made; nothing was sent."""

    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    """Ollama accepted the request and then was silent for longer than the idle timeout."""

    code = "upstream_timeout"


class UpstreamBroken(UpstreamError):
    """The connection ended before the answer did."""

    code = "upstream_broken"


class CountingError(GateError):
    """A count could not be made on this rung; the next one down is taken."""


class UnknownVocabulary(CountingError):
    """The vocabulary's type or pre-tokenizer is not one that is known to be exact here."""


class RenderError(CountingError):
    """The prompt's text could not be rendered here."""


class TemplateRefused(RenderError):
    """Ollama itself would refuse this request: its template fails on it."""
