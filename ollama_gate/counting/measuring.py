"""The synchronous half of counting: text to tokens and parts. It runs in a thread and touches no loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import orjson

from ollama_gate.catalog.card import ModelCard
from ollama_gate.counting.bound import TemplateCost, measure
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.memo import MemoCounter
from ollama_gate.counting.normalise import native_tools
from ollama_gate.counting.rendering.local import LocalRenderer, conversation_of, without_bos
from ollama_gate.counting.structs import decode_tools
from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest, Kind, Parts

_PER_TEXT: Final = 6
"""Tokens that a template may put around one text, roughly."""


class ModelTokenizer(Protocol):
    """A tokenizer, in this process or in one of its own."""

    @property
    def facts(self) -> TokenizerFacts:
        """What is known of it without running it."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it can still be asked; one that was unloaded to make room cannot."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, specials in it parsed, without BOS and EOS."""
        ...

    def ids(self, text: str) -> list[int]:
        """The ids of one text."""
        ...

    def pieces(self, text: str) -> bytes:
        """The text of each token, as a JSON array."""
        ...


class Tokenizers(Protocol):
    """Where tokenizers come from."""

    def mark(self, card: ModelCard) -> str:
        """What tells it from the model's own tokenizer; empty for that."""
        ...

    async def get(self, card: ModelCard) -> ModelTokenizer:
        """The tokenizer of a model; built or loaded when needed, which takes up to some seconds.

        Raises:
            UnknownVocabulary: this model's tokens cannot be counted here.
        """
        ...


@dataclass(frozen=True, slots=True)
class Meter:
    """What it takes to count one model's prompts."""

    card: ModelCard
    renderer: LocalRenderer
    tokenizer: ModelTokenizer
    memo: MemoCounter

    @classmethod
    def of(cls, card: ModelCard, tokenizer: ModelTokenizer, version: str | None) -> "Meter":
        """Put together what one model's prompts are counted with; compiles its template, which takes milliseconds."""
        renderer = LocalRenderer.of(card, tokenizer.facts, version=version)
        return cls(card, renderer, tokenizer, MemoCounter(tokenizer, tokenizer.facts.split_set(card.template)))

    def cost(self, now: datetime) -> TemplateCost:
        """What the model's template adds to its texts, measured where it can be rendered here."""
        if self.renderer.why:
            return TemplateCost()
        return measure(lambda body: self.renderer.probe(body, now))

    def text_tokens(self, text: str, kind: Kind) -> int:
        """Tokens of a rendered prompt as Ollama will report them, BOS and EOS included, media not."""
        bare = without_bos(text, self.card, kind, adds_bos=self.tokenizer.facts.adds_bos)
        return self.memo.count(bare) + self.tokenizer.facts.adds

    def here(self, request: InferenceRequest, now: datetime) -> tuple[int, int]:
        """Tokens of the prompt's text, rendered here, and the number of images in it.

        Raises:
            TemplateRefused: Ollama would refuse the request.
            RenderError: the text cannot be made here.
        """
        conversation = conversation_of(request, self.renderer.traits)
        text = self.renderer.render(conversation, now)
        return self.text_tokens(_without_marks(text, conversation.images), request.kind), conversation.images

    def asked(self, text: str, request: InferenceRequest) -> tuple[int, int]:
        """Tokens of a text that Ollama rendered, and the number of images in it."""
        images = images_in(request)
        return self.text_tokens(_without_marks(text, images), request.kind), images

    def estimate(self, request: InferenceRequest) -> tuple[int, int]:
        """Tokens of the contents alone with a rough cost for what stands between them, and the number of images."""
        texts = list(contents(request))
        tools = request.body.get("tools")
        if tools:
            texts.append(printed_tools(tools))
        return sum(self.tokenizer.count(texts)) + _PER_TEXT * len(texts) + 8, images_in(request)

    def opening(self, request: InferenceRequest, now: datetime) -> int:
        """Tokens at the head of a prompt up to the end of its first system message, BOS not counted; 0 without one.

        Raises:
            RenderError: what Ollama makes of the request cannot be known here.
        """
        conversation = conversation_of(request, self.renderer.traits)
        system = next((said for each in conversation.messages if each.role == "system" and (said := each.content)), "")
        if not system:
            return 0
        words = system.strip()
        try:
            before, found, _ = self.renderer.render(conversation, now).partition(words)
        except RenderError:
            before, found = "", ""
        if not found:  # it is Ollama that renders it: the text itself, and roughly what stands before it
            return self.tokenizer.count([system])[0] + _PER_TEXT
        bare = without_bos(before + found, self.card, request.kind, adds_bos=self.tokenizer.facts.adds_bos)
        return self.memo.count(bare)

    def parts(self, request: InferenceRequest, total: int, media: int, now: datetime) -> Parts:
        """What a prompt of `total` tokens is made of; the parts add up to it.

        The tools' share is what the prompt is longer by than the same one without them, their wrapping included. What
        is neither contents nor tools nor media is the template's.
        """
        tools = self._tools(request, total - media, now)
        left = max(total - media - tools, 0)
        messages = min(sum(self.tokenizer.count(list(contents(request)))), left)
        return Parts(messages=messages, tools=total - media - left, template=left - messages, media=media)

    def _tools(self, request: InferenceRequest, text_total: int, now: datetime) -> int:
        tools = request.body.get("tools")
        if not tools:
            return 0
        body = {key: value for key, value in request.body.items() if key != "tools"}
        bare = InferenceRequest(request.kind, request.path, request.model, body, request.stream, request.dialect)
        try:
            return max(text_total - self.here(bare, now)[0], 0)
        except RenderError:
            return min(self.tokenizer.count([printed_tools(tools)])[0], text_total)

    def inputs(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text to embed, without BOS and EOS."""
        return self.tokenizer.count(list(texts))


def contents(request: InferenceRequest) -> list[str]:
    """The texts that a request brings along, without what a template puts around them."""
    body = request.body
    if request.kind is Kind.GENERATE:
        return [text for key in ("system", "prompt", "suffix") if (text := body.get(key))]
    out: list[str] = []
    for message in body.get("messages") or ():
        out += [text for key in ("content", "thinking") if (text := message.get(key))]
        if calls := message.get("tool_calls"):
            out.append(orjson.dumps(calls).decode())
    return out


_GENERATE: Final = Kind.GENERATE  # an enum's members are slow to get (Python 3.11)


def images_in(request: InferenceRequest) -> int:
    """How many images a request carries."""
    if request.kind is _GENERATE:
        return len(request.body.get("images") or ())
    number = 0
    for message in request.body.get("messages") or ():
        if len(message) > 2 and (images := message.get("images")):
            number += len(images)
    return number


def printed_tools(tools: Any) -> str:
    """The tools as JSON, in the form that Ollama keeps of them."""
    try:
        return orjson.dumps(native_tools(decode_tools(tools) or ())).decode()
    except RenderError:
        return orjson.dumps(tools).decode()


def _without_marks(text: str, images: int) -> str:
    """A text without the `[img-N]` marks that stand for images; each image's own tokens come on top."""
    for number in range(images):
        text = text.replace(f"[img-{number}]", "", 1)
    return text
