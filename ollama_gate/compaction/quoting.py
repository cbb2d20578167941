"""The digest's passages: which there are, which are worth most, and which of them there is room for."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from ollama_gate.compaction.building import DIGEST, tag
from ollama_gate.compaction.passages import LONG, passages
from ollama_gate.compaction.plan import Excerpt, Kept, Plan
from ollama_gate.compaction.ranking import by_words, combined
from ollama_gate.compaction.skeleton import Skeleton
from ollama_gate.compaction.terms import Similar
from ollama_gate.compaction.weighing import Scales

_MEANT: Final = 64
"""Passages whose meaning is compared with the question's, at most."""
_SHORTEST: Final = 160
"""Characters of a passage where there is room for few."""


class Quotations:
    """The passages of one conversation; they are ranked when the first are asked for."""

    def __init__(self, skeleton: Skeleton, scales: Scales, similar: Similar | None, room: float) -> None:
        """Take what there is to quote from; `room` is about how many tokens the digest will get."""
        self._skeleton = skeleton
        self._talk = skeleton.talk
        self._scales = scales
        self._similar = similar
        self._room = room

    @cached_property
    def material(self) -> float:
        """Tokens of everything that the digest could quote, with the tags over it."""
        tagged = len({one.index for _, one in self._ranked})
        return sum(self._cost(one) + 2 for _, one in self._ranked) + tagged * self._per_tag

    @cached_property
    def _ranked(self) -> list[tuple[float, Excerpt]]:
        """All passages, the best first; results of tools are only quoted for what they have to do with the question."""
        talk, paired = self._talk, self._skeleton.paired
        places = sorted({*self._skeleton.older, *self._skeleton.flexible})
        self._scales.weigh(places)
        long = self._length(places)
        found = [Excerpt(at, start, end) for at in places for start, end in passages(talk.text(at), long)]
        question = "" if talk.question is None else talk.text(talk.question)
        texts = [talk.text(one.index)[one.start : one.end] for one in found]
        keywords = by_words(question, texts)
        scores = combined(keywords, self._meanings(question, texts, keywords, found))
        scored = zip(scores, found, strict=True)
        ranked = [(score, one) for score, one in scored if score > 0 or one.index not in paired]
        ranked.sort(key=lambda each: (each[0], each[1].index, -each[1].start), reverse=True)
        return ranked

    def _length(self, places: Sequence[int]) -> int:
        """Characters of a passage: as long as is good to read, but so that there is room for some."""
        pace = max((self._scales.content(at, 1) for at in places), default=0.0)
        return LONG if pace <= 0 else int(min(max(self._room / 5 / pace, _SHORTEST), LONG))

    def _meanings(
        self, question: str, texts: Sequence[str], keywords: Sequence[float], found: Sequence[Excerpt]
    ) -> list[float | None] | None:
        """How near passages are to the question in meaning; asked for those with words in common and the latest."""
        if self._similar is None or not question.strip() or not texts:
            return None
        order = sorted(range(len(texts)), key=lambda at: (keywords[at], found[at].index), reverse=True)
        late = sorted(range(len(texts)), key=lambda at: found[at].index, reverse=True)
        chosen = list(dict.fromkeys([*order[: _MEANT - _MEANT // 4], *late[: _MEANT // 4]]))
        told = self._similar(question, [texts[at] for at in chosen])
        if told is None:
            return None
        meanings: list[float | None] = [None] * len(texts)
        for at, meaning in zip(chosen, told, strict=True):
            meanings[at] = meaning
        return meanings

    def _cost(self, one: Excerpt) -> float:
        return self._scales.content(one.index, one.end - one.start) + 2 * self._scales.terms.scale

    @cached_property
    def _per_tag(self) -> float:
        return self._scales.text(tag(self._talk, 0, "get_indicators")) + 3 * self._scales.terms.scale

    def choose(self, bare: Plan, tokens: float) -> tuple[list[Excerpt], float]:
        """The best passages that fit so many tokens and are not shown by the plan already, and the tokens left over."""
        shown = {one.index: one for one in bare.kept}
        if len(bare.kept) == len(self._talk):
            tokens -= self._scales.text(DIGEST) + self._scales.each  # there was no digest so far
        chosen: dict[Excerpt, None] = {}
        tagged: set[int] = set()
        # What the conversation began with says what it is about, where it does not take too much.
        for one, most in [*((one, tokens / 4) for one in self._opening), *((one, tokens) for _, one in self._ranked)]:
            if one in chosen or not hidden(one, shown.get(one.index), len(self._talk.text(one.index))):
                continue
            cost = self._cost(one) + (0.0 if one.index in tagged else self._per_tag)
            if cost <= min(tokens, most):
                tokens -= cost
                tagged.add(one.index)
                chosen[one] = None
        return sorted(chosen, key=lambda one: (one.index, one.start)), max(tokens, 0.0)

    @cached_property
    def _opening(self) -> list[Excerpt]:
        first = next((at for at in self._skeleton.older if self._talk.roles[at] == "user"), None)
        return [one for _, one in self._ranked if one.index == first and one.start == 0]


def hidden(one: Excerpt, kept: Kept | None, length: int) -> bool:
    """Whether a passage is shown nowhere else: its message is gone, or the passage lies in what was cut out of it.

    Args:
        one: the passage.
        kept: what stays of its message; None where it is gone.
        length: characters of the message's content.
    """
    return kept is None or (kept.head >= 0 and one.start >= kept.head and one.end <= length - kept.tail)
