"""What parts of a conversation take, in tokens: short texts are counted, long ones estimated from samples first."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from ollama_gate.compaction.building import build
from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.pairing import role_of
from ollama_gate.compaction.plan import Plan
from ollama_gate.compaction.terms import Count, Terms

_SAMPLED: Final = 900
"""Characters from which on a text is weighed by three samples."""
_SAMPLE: Final = 200


class Scales:
    """Knows or estimates the tokens of everything in one conversation; no text is counted twice."""

    def __init__(self, talk: Conversation, terms: Terms, count: Count) -> None:
        """Take what is weighed, and who counts."""
        self.talk = talk
        self.terms = terms
        self.each = terms.each
        """Tokens that the template adds to a message."""
        self.result = 0.0
        """Tokens that it adds to a tool's result beyond that."""
        self.pace: dict[int, float] = {}
        """Tokens per character of each content, by message; from samples first, and then from what was kept of it."""
        self._count = count
        self._counted: dict[str, int] = {}

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, by the vocabulary alone; `scale` does not go in."""
        missing = list({text: None for text in texts if text not in self._counted})
        if missing:
            self._counted.update(zip(missing, self._count(missing), strict=True))
        return [self._counted[text] for text in texts]

    def text(self, text: str) -> float:
        """What a text takes, in tokens of the terms."""
        return self.terms.scale * self.counts([text])[0]

    def tokens(self, plan: Plan) -> float:
        """What the messages of a plan take together, in tokens of the terms."""
        built = build(self.talk, plan)
        counts = self.counts([text for message in built for text in _texts(message)])
        images = sum(len(message.get("images") or ()) for message in built)
        around = self.each * len(built) + self.result * results_in(built)
        return self.terms.scale * sum(counts) + around + self.terms.image * images

    def expect(self, more: float) -> None:
        """Add so many tokens to each result of a tool, or to each message where there are no results."""
        if "tool" in self.talk.roles:
            self.result += more
        else:
            self.each += more

    def foreseen(self) -> float:
        """An estimate of the tokens that the whole conversation takes."""
        every = range(len(self.talk))
        self.weigh(every)
        return sum(self.content(at) for at in every) + self.each * len(self.talk)

    def content(self, index: int, characters: int | None = None) -> float:
        """An estimate of the tokens of a content, or of so many characters of it; `weigh` comes first."""
        length = len(self.talk.text(index)) if characters is None else characters
        return self.terms.scale * self.pace[index] * length

    def weigh(self, indexes: Iterable[int]) -> None:
        """Estimate the contents that were not estimated before, from samples."""
        samples = {at: _sample(self.talk.text(at)) for at in indexes if at not in self.pace}
        counts = self.counts(list(samples.values()))
        for (at, sample), tokens in zip(samples.items(), counts, strict=True):
            self.pace[at] = tokens / len(sample) if sample else 0.0

    def learn(self, plan: Plan) -> None:
        """Take the tokens per character of what a plan kept in place of those of the samples."""
        cut = {one.index: one.head for one in plan.kept if one.head > 0}
        counts = self.counts([self.talk.text(at)[:head] for at, head in cut.items()])
        for (at, head), tokens in zip(cut.items(), counts, strict=True):
            self.pace[at] = max(tokens / head, 0.01)


def results_in(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many of the messages are results of tools."""
    return sum(role_of(message) == "tool" for message in messages)


def _texts(message: Mapping[str, Any]) -> list[str]:
    """The texts of a message that cost tokens, as `counting.measuring.contents` takes them."""
    out = [text for key in ("content", "thinking") if (text := message.get(key))]
    if calls := message.get("tool_calls"):
        out.append(orjson.dumps(calls).decode())
    return out


def _sample(text: str) -> str:
    if len(text) <= _SAMPLED:
        return text
    middle, last = (len(text) - _SAMPLE) // 2, len(text) - _SAMPLE
    return text[:_SAMPLE] + text[middle : middle + _SAMPLE] + text[last:]
