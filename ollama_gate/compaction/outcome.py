"""What compaction is given and what becomes of it: a request with what it is counted with; a shorter one, or none."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ollama_gate.catalog.card import ModelCard
from ollama_gate.errors import GateError
from ollama_gate.requests import InferenceRequest, PromptCount
from ollama_gate.window import Window


class Outcome(StrEnum):
    """What became of an attempt."""

    NEW = "new"
    REUSED = "reused"
    DOES_NOT_FIT = "does_not_fit"
    TOO_LARGE = "too_large"
    DEADLINE = "deadline"
    MEMORY = "memory"
    FAILED = "failed"
    """The worker ended, or something in it went wrong."""
    CHECK_FAILED = "check_failed"
    NOT_COUNTED = "not_counted"
    ARCHIVE_FAILED = "archive_failed"


class NotCompacted(GateError):
    """The conversation could not be made shorter; it is refused."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        """Carry what happened, for programs and for people."""
        super().__init__(why)
        self.outcome = outcome

    @property
    def passing(self) -> bool:
        """Whether it lay not in the conversation, so that the same may succeed a moment later."""
        return self.outcome in _PASSING


_PASSING: Final = frozenset({Outcome.DEADLINE, Outcome.FAILED, Outcome.ARCHIVE_FAILED})


@dataclass(frozen=True, slots=True)
class Compacted:
    """A request that fits."""

    request: InferenceRequest
    count: PromptCount
    outcome: Outcome
    replaced: tuple[str, ...]
    """The first digits of the hashes of the messages that it has no longer whole."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request to be compacted, and what it is counted with."""

    request: InferenceRequest
    card: ModelCard
    room: Window
    image_tokens: int | None
    size: int
    """Bytes of its body as it was decoded, large images aside."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The native messages."""
        return self.request.body.get("messages") or []
