"""Compaction as a stage of the pipeline: whom it is for, and what is told of it in the turn and the metrics."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ollama_gate.catalog.card import ModelCard
from ollama_gate.compaction.compactor import Compactor
from ollama_gate.compaction.outcome import Case, Compacted, NotCompacted
from ollama_gate.errors import Refusal
from ollama_gate.observe.metrics import Metrics
from ollama_gate.policies import Applied
from ollama_gate.requests import InferenceRequest, Kind, PromptCount
from ollama_gate.turn import Turn
from ollama_gate.window import Window


class Shortener:
    """Compacts what is over its budget, where the operator allows it."""

    def __init__(self, compactor: Compactor, metrics: Metrics, clock: Callable[[], float]) -> None:
        """Join the compactor and what is told of it."""
        self._compactor = compactor
        self._metrics = metrics
        self._clock = clock

    def case(
        self, inference: InferenceRequest, card: ModelCard, applied: Applied, room: Window, size: int
    ) -> Case | None:
        """What is to be compacted should it be over its budget; None where the request is none for compaction.

        Args:
            inference: the request.
            card: its model.
            applied: what the operator wants for it.
            room: its window.
            size: bytes of its body as it was decoded, large images aside.
        """
        if not applied.policy.compaction or inference.kind is not Kind.CHAT:
            return None
        return Case(inference, card, room, applied.policy.image_tokens, size)

    async def shorten(self, case: Case, before: PromptCount, turn: Turn) -> Compacted:
        """A request that fits.

        Raises:
            NotCompacted: it is to be refused.
        """
        began, model, outcome = self._clock(), self._metrics.model(case.card.key), "left"
        try:
            done = await self._compactor.compact(case)
            outcome = str(done.outcome)
        except NotCompacted as no:
            outcome = str(no.outcome)
            raise
        finally:
            seconds = self._clock() - began
            turn.compaction, turn.compaction_seconds = outcome, seconds
            self._metrics.compactions.labels(model, outcome).inc()
            self._metrics.compaction_seconds.labels(outcome).observe(seconds)
        saved = max(before.tokens - done.count.tokens, 0)
        self._metrics.compaction_saved.labels(model).inc(saved)
        turn.compacted(before.tokens, done.count, done.replaced)
        return done


def told(refusal: Refusal, no: NotCompacted) -> Refusal:
    """A refusal that says whether compaction was tried, and why it does not help."""
    details: Mapping[str, Any] = {**refusal.details, "compaction": {"outcome": str(no.outcome), "why": str(no)}}
    message = f"{refusal.message} Compaction was tried and did not help: {_WORDS[str(no.outcome)]}."
    if refusal.param == "tools":  # they alone are over the budget, and nothing was tried
        message = f"{refusal.message} Compaction was not tried: it makes messages shorter, not tools."
    return replace(refusal, message=message, details=details)


_WORDS: Mapping[str, str] = {
    "does_not_fit": "what has to stay whole takes too much",
    "too_large": "the conversation is too large for it",
    "deadline": "it took too long",
    "memory": "it took too much memory",
    "failed": "it failed",
    "check_failed": "its result did not pass the checks",
    "not_counted": "its result could not be counted",
    "archive_failed": "the originals could not be archived",
}
"""What is said in a refusal: words that no client takes for anything but a full context."""
