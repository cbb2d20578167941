"""What is known of one model's prompts, and what a number of tokens may be called because of it."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Final, Self

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.versions import Features
from ollama_gate.counting.bound import IMAGE_TOKENS, TemplateCost, most_bytes, tokens_of_bytes, unmeasured
from ollama_gate.counting.facts import PUBLISHED
from ollama_gate.counting.learned import Learned
from ollama_gate.counting.measuring import Meter
from ollama_gate.counting.policy import uncountable
from ollama_gate.counting.trust import Trust
from ollama_gate.errors import Refused
from ollama_gate.requests import Basis, InferenceRequest, Parts, PromptCount, Rung

_REMOTE: Final = Mode.REMOTE
_AGREEMENTS: Final = 5
"""Counts that Ollama has to confirm before those of a published tokenizer may be called exact."""
_UNCHECKED_MARGIN: Final = 0.02
"""Margin of a count whose rendering was not yet compared with Ollama's."""


@dataclass(slots=True)
class Known:
    """One model (one digest under one version of Ollama), as it is got to know."""

    card: ModelCard
    key: str = ""
    """What it is remembered by: digest, mode and Ollama's version."""
    features: Features = field(default_factory=lambda: Features.of(None))
    """What that version does."""
    cost: TemplateCost = field(default_factory=TemplateCost)
    meter: Meter | None = None
    why: str = ""
    """Why there is no meter."""
    trust: Trust = field(default_factory=Trust)
    checked: bool = False
    """Whether the rendering here was compared with Ollama's."""
    image_tokens: float | None = None
    """Learned from answers."""
    sampled_at: float = -1e9
    preparing: asyncio.Task[None] | None = None
    checking: asyncio.Task[None] | None = None
    failed_at: float | None = None

    @classmethod
    def of(cls, card: ModelCard, version: str | None) -> Self:
        """A model that was met just now, under this version of Ollama."""
        return cls(card, features=Features.of(version), cost=unmeasured(card.system, card.messages))

    @property
    def published(self) -> bool:
        """Whether its tokenizer is a published file, not the model's own vocabulary."""
        return self.meter is not None and self.meter.tokenizer.facts.model == PUBLISHED

    @property
    def unconfirmed(self) -> str:
        """Why its tokens may not be called exact yet; empty when they may."""
        if self.published and self.trust.agreed < _AGREEMENTS:
            return "its tokenizer is a published one, which Ollama's counts have not confirmed yet"
        return ""

    @property
    def comparable(self) -> bool:
        """Whether there is a rendering to compare with Ollama's.

        Where Ollama renders the chats, only raw prompts and templates of the client's own are made into text here.
        """
        return self.meter is None or not self.meter.renderer.why

    @property
    def learned(self) -> Learned:
        """What is worth keeping."""
        return Learned(self.trust, self.checked, self.image_tokens)

    def called(self, *, asks: bool) -> Rung | None:
        """What the count of a text without images is called as things stand; None before its tokenizer is there.

        Args:
            asks: whether Ollama may be asked for the text of a prompt that cannot be made here.
        """
        if self.meter is None:
            return Rung.BOUND if self.why else None
        if not self.trust.vocabulary or self.unconfirmed:
            return Rung.ESTIMATE
        if self.card.embeds:
            return Rung.EXACT
        if self.trust.rendering and not self.meter.renderer.why:
            return Rung.EXACT if self.checked or self.trust.agreed else Rung.ESTIMATE
        return Rung.EXACT if asks else Rung.ESTIMATE

    def remember(self, learned: Learned | None) -> None:
        """Go on with what was learned before."""
        if learned is not None:
            self.trust, self.checked, self.image_tokens = learned.trust, learned.checked, learned.image_tokens

    def image_cost(self, configured: int | None) -> int:
        """Tokens of one image: as configured, as learned, or Ollama's own guess."""
        if configured is not None:
            return configured
        return math.ceil(self.image_tokens) if self.image_tokens is not None else IMAGE_TOKENS

    def learn_image(self, count: PromptCount, images: int, reported: int | None) -> None:
        """Learn an image's cost from what Ollama reported beyond the text; the dearest one seen counts."""
        if reported is None or count.basis not in (Basis.HERE, Basis.ASKED):
            return
        each = (reported - (count.tokens - count.parts.media)) / images
        if each > 0:
            self.image_tokens = max(each, self.image_tokens or 0.0)

    def counted(self, tokens: int, images: int, image_tokens: int | None, basis: Basis, margin: float) -> PromptCount:
        """A count of a rendered text: exact, unless images or an unchecked rendering stand against it.

        Args:
            tokens: of the text.
            images: how many come on top.
            image_tokens: the configured cost of one.
            basis: who rendered the text.
            margin: the configured margin of estimates.
        """
        media = images * self.image_cost(image_tokens)
        total = tokens + media
        if images:
            surely = image_tokens is not None or self.image_tokens is not None
            most = tokens + math.ceil(media * (1.0 if surely else 1 + margin))
            why = "what an image costs is configured or learned, never known"
            return PromptCount(total, most, Rung.ESTIMATE, Parts(template=tokens, media=media), why=why, basis=basis)
        if self.unconfirmed:
            most, parts = math.ceil(total * (1 + self.trust.margin(margin))), Parts(template=total)
            return PromptCount(total, most, Rung.ESTIMATE, parts, why=self.unconfirmed, basis=basis)
        if basis is Basis.HERE and self.comparable and not self.checked and self.trust.agreed == 0:
            most = math.ceil(total * (1 + _UNCHECKED_MARGIN))
            why = "the text made here was not yet compared with Ollama's"
            return PromptCount(total, most, Rung.ESTIMATE, Parts(template=total), why=why, basis=basis)
        return PromptCount(total, total, Rung.EXACT, Parts(template=total), basis=basis)

    def estimated(self, tokens: int, images: int, image_tokens: int | None, margin: float, why: str) -> PromptCount:
        """A count of contents alone, with the margin that this model has earned."""
        media = images * self.image_cost(image_tokens)
        total = tokens + media
        most = math.ceil(total * (1 + self.trust.margin(margin)))
        parts = Parts(template=tokens, media=media)
        return PromptCount(total, most, Rung.ESTIMATE, parts, why=why, basis=Basis.ESTIMATED)

    def bounded(self, request: InferenceRequest, image_tokens: int | None, why: str) -> PromptCount:
        """The bound that bytes give where no tokenizer is at hand.

        Raises:
            Refused: there is no telling.
        """
        size, images = most_bytes(request, self.cost) or (None, 0)
        most = tokens_of_bytes(size, "llama") if size is not None else None
        if most is None:
            raise Refused(uncountable(self.card, why))
        media = images * self.image_cost(image_tokens)
        return PromptCount(most + media, most + media, Rung.BOUND, Parts(messages=most, media=media), why=why)


def inputs_bounded(items: tuple[int, ...], why: str = "") -> PromptCount:
    """The bound of texts to embed, from that of each."""
    return PromptCount(sum(items), sum(items), Rung.BOUND, Parts(messages=sum(items)), items, why)


def says_nothing(request: InferenceRequest, card: ModelCard, features: Features) -> bool:
    """Whether Ollama's prompt_eval_count of this request is not its prompt's length.

    With a format and thinking it runs twice and reports the second run (`server/routes.go:ChatHandler`, v0.33); v0.30.0
    left cached tokens out.
    """
    two_runs = bool(request.body.get("format")) and (card.thinks or bool(card.parser))
    return two_runs or features.version == "0.30.0" or card.mode is _REMOTE
