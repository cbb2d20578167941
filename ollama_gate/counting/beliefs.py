"""What is believed of a model's counts, kept true by Ollama: its numbers, and its text of a few probe conversations."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from ollama_gate.catalog.card import ModelCard
from ollama_gate.counting.known import Known
from ollama_gate.counting.learned import Learned, LearnedBook, merged
from ollama_gate.counting.selfcheck import differing_probe
from ollama_gate.counting.trust import DriftKind, Trust, compare, drift, learn
from ollama_gate.errors import Refused, RenderError
from ollama_gate.requests import Basis, InferenceRequest, PromptCount, Rung
from ollama_gate.tasks import spawn
from ollama_gate.window import Window

Ask = Callable[[InferenceRequest, ModelCard, Window], Awaitable[str]]
"""Asks Ollama for the text of a prompt; raises RenderError or TemplateRefused."""
Report = Callable[[ModelCard, Rung, DriftKind, float | None], None]
"""Is told how a count on a rung compares with Ollama's number, and the one over the other where there are both."""


class Beliefs:
    """Changes what is believed of a model, writes it down, and tells who has to know."""

    def __init__(
        self,
        *,
        book: LearnedBook,
        probe: Ask,
        may_ask: Callable[[], bool],
        loaded: Callable[[ModelCard], Awaitable[bool]],
        report: Report,
        changed: Callable[[ModelCard, Trust], None],
        now: Callable[[], datetime],
    ) -> None:
        """Put it together.

        Args:
            book: where what is believed outlives the gate.
            probe: asks Ollama for the text of a prompt as long as the model is loaded; RenderError when it is not.
            may_ask: whether Ollama may be asked for text, and would tell it.
            loaded: whether Ollama has a model in memory.
            report: is told of every comparison with Ollama's number: how it came out, and ours over Ollama's.
            changed: is told when counts are made another way from now on.
            now: local time where Ollama runs.
        """
        self._book = book
        self._probe = probe
        self._may_ask = may_ask
        self._loaded = loaded
        self._report = report
        self._changed = changed
        self._now = now

    def hear(self, known: Known, count: PromptCount, reported: int | None) -> None:
        """Hold a count against Ollama's number; None where there is none, or it says nothing."""
        kind = compare(count.basis, count.tokens, count.at_most, reported)
        self._report(known.card, count.rung, kind, drift(count.tokens, reported))
        trust = learn(known.trust, count.basis, kind, count.tokens, reported)
        if trust is not known.trust:
            self._believe(known, trust)

    def hear_images(self, known: Known, count: PromptCount, images: int, reported: int | None) -> None:
        """The same for a prompt with images, whose cost is learned from the difference."""
        known.learn_image(count, images, reported)
        self._book.put(known.key, known.learned)
        kind = compare(Basis.ESTIMATED, count.tokens, count.at_most, reported)
        self._report(known.card, count.rung, kind, drift(count.tokens, reported))

    def take(self, known: Known, learned: Learned) -> None:
        """Take over what another gate learned of a model."""
        both = merged(known.learned, learned)
        if both != known.learned:
            known.checked, known.image_tokens = both.checked, both.image_tokens
            self._believe(known, both.trust)

    async def agrees(self, known: Known, room: Window) -> bool:
        """Whether text made here is Ollama's as far as is known; a loaded model is checked first, once."""
        if known.checking is None and not known.checked and await self._loaded(known.card):
            self.start_check(known, room)
        if known.checking is not None:
            await asyncio.shield(known.checking)
        return known.trust.rendering

    def start_check(self, known: Known, room: Window) -> None:
        """Compare the model's text with Ollama's in the background, if that was not done yet."""
        if known.checking is None and not known.checked:
            known.checking = spawn(self._check(known, room), name=f"self-check of {known.card.name}")

    async def _check(self, known: Known, room: Window) -> None:
        """Compare the text made here with Ollama's on probe conversations; one difference is enough."""
        meter = known.meter
        try:
            if meter is None or meter.renderer.why or not self._may_ask():
                return
            different = await differing_probe(
                meter.renderer, lambda request: self._probe(request, known.card, room), self._now
            )
            known.checked = True
        except (RenderError, Refused):
            return  # Ollama did not answer, unloaded it, or is too busy: it is asked again with the next count
        finally:
            known.checking = None
        trust = known.trust
        if different is not None:
            trust = replace(trust, rendering=False, agreed=0, why=f"self-check: {different}")
        self._believe(known, trust)

    def _believe(self, known: Known, trust: Trust) -> None:
        before, known.trust = known.trust, trust
        self._book.put(known.key, known.learned)
        if before.beliefs != trust.beliefs:
            self._changed(known.card, trust)
