"""From the least that has to stay to as much as there is room for.

What has to stay takes its tokens first. What is left goes to the last messages, to the digest and to older results, and
within each group the largest messages are cut most. What comes out is counted, and what was wrong is put right, until
it fills the target and does not pass it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import orjson

from ollama_gate.compaction.building import DIGEST, build, marker, tag
from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.cutting import spans
from ollama_gate.compaction.passages import passages
from ollama_gate.compaction.plan import Excerpt, Kept, Plan
from ollama_gate.compaction.ranking import by_words, combined
from ollama_gate.compaction.skeleton import Skeleton
from ollama_gate.compaction.terms import Count, DoesNotFit, Similar, Terms

_SHARES: Final = {"tail": 0.5, "digest": 0.3, "older": 0.2}
"""How what is left over is divided while everybody wants more."""
_SKELETON: Final = 0.75
"""Share of the target that what has to stay should not pass; then older calls are only listed."""
_LISTING: Final = 0.9
"""The same where all of them are listed."""
_ARGUMENTS: Final = (2000, 600, 120, 40)
"""Characters that texts in the arguments of calls keep, the first that is short enough."""
_LISTED: Final = (160, 40, 0)
"""The same for calls that are only listed."""
_ROUNDS: Final = 6
_FULL: Final = 0.97
"""Share of the target from which on it is full."""
_SAMPLED: Final = 900
"""Characters from which on a text is weighed by three samples."""
_SAMPLE: Final = 200
_MEANT: Final = 64
"""Passages whose meaning is compared with the question's, at most."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A plan, and what it takes."""

    plan: Plan
    tokens: float


@dataclass(frozen=True, slots=True)
class _Frame:
    """What was decided before anything is given out."""

    stays: tuple[int, ...]
    bridges: tuple[int, ...]
    called: tuple[tuple[int, ...], ...]
    arguments: int
    listed: int
    """Characters of arguments in the list."""
    roomy: bool
    """Whether the last messages keep thinking, pictures and arguments."""
    noted: bool


class Filler:
    """Fills one conversation into its terms; it may be asked again with another target."""

    def __init__(self, talk: Conversation, terms: Terms, count: Count, similar: Similar | None = None) -> None:
        """Take what there is; `count` and `similar` are asked when something is wanted."""
        self.talk = talk
        self.terms = terms
        self.skeleton = Skeleton(talk, terms)
        self._count = count
        self._similar = similar
        self._counted: dict[str, int] = {}
        self._pace: dict[int, float] = {}
        """Tokens of a character of each content, from samples first and then from what was cut."""

    def fill(self, target: float | None = None) -> Filled:
        """The plan that comes nearest to the target from below.

        Raises:
            DoesNotFit: not even the least of everything is within the most that is allowed.
            ValueError: a message cannot be written as JSON.
        """
        target = self.terms.target if target is None else target
        whole = Plan(tuple(Kept(at) for at in range(len(self.talk))))
        if self._foreseen() <= 1.2 * target and (tokens := self._tokens(whole)) <= target:
            return Filled(whole, tokens)
        frame, least = self._framed(target)
        if least.tokens > self.terms.most:
            raise DoesNotFit(
                f"what has to stay (system messages, the question, the last {self.terms.keep_last} messages, calls and "
                f"their results in their shortest form) takes {least.tokens:.0f} tokens of {self.terms.most:.0f}"
            )
        room = target
        if least.tokens > 0.9 * target:
            room = max(target, min(self.terms.most, least.tokens + 0.15 * self.terms.most))
        best, aim, before = least, room, None
        for _ in range(_ROUNDS):
            plan = self._spread(frame, aim - least.tokens)
            tokens = self._tokens(plan)
            if best.tokens < tokens <= room:
                best = Filled(plan, tokens)
            if _FULL * room <= tokens <= room or plan == before:
                break
            self._learn(plan)
            aim, before = aim + (room - tokens) * (1.0 if tokens < room else 1.1), plan
        return best

    # --- counting

    def _foreseen(self) -> float:
        """Tokens of the whole conversation, from samples."""
        contents = sum(self._paces(range(len(self.talk)))[at] * len(self.talk.text(at)) for at in range(len(self.talk)))
        return self.terms.scale * contents + self.terms.each * len(self.talk)

    def _tokens(self, plan: Plan) -> float:
        """What the messages of a plan take."""
        built = build(self.talk, plan)
        texts = [text for message in built for text in _texts(message)]
        counts = self._counts(texts)
        images = sum(len(message.get("images") or ()) for message in built)
        return self.terms.scale * sum(counts) + self.terms.each * len(built) + self.terms.image * images

    def _counts(self, texts: Sequence[str]) -> list[int]:
        missing = list({text: None for text in texts if text not in self._counted})
        if missing:
            self._counted.update(zip(missing, self._count(missing), strict=True))
        return [self._counted[text] for text in texts]

    def _paces(self, indexes: Iterable[int]) -> Mapping[int, float]:
        """Tokens of a character in each of these contents."""
        samples = {at: _sample(self.talk.text(at)) for at in indexes if at not in self._pace}
        counts = self._counts(list(samples.values()))
        for (at, sample), tokens in zip(samples.items(), counts, strict=True):
            self._pace[at] = tokens / len(sample) if sample else 0.0
        return self._pace

    def _learn(self, plan: Plan) -> None:
        """Take the pace of what was really kept in place of the samples'."""
        built = {one.index: one for one in plan.kept if one.head > 0}
        texts = [self.talk.text(at)[: one.head] for at, one in built.items()]
        for (at, one), tokens in zip(built.items(), self._counts(texts), strict=True):
            self._pace[at] = max(tokens / one.head, 0.01)

    # --- what has to stay

    def _framed(self, target: float) -> tuple[_Frame, Filled]:
        """Whose arguments are shortened and which calls are only listed, so that the least takes not too much."""
        limit = _SKELETON * target
        frame = self._frame(0, -1, _LISTED[0], roomy=True)
        least = self._least(frame)
        for arguments in _ARGUMENTS:
            if least.tokens <= limit:
                return frame, least
            frame = self._frame(0, arguments, _LISTED[0], roomy=False)
            least = self._least(frame)
        every = len(self.skeleton.listable)
        for listed in _LISTED:
            number = 0
            while least.tokens > limit and number < every:
                number = min(every, max(number + 1, self._enough(number, least.tokens - limit)))
                frame = self._frame(number, _ARGUMENTS[-1], listed, roomy=False)
                least = self._least(frame)
            # What was called with what is worth more than a full target; only what cannot be sent at all goes.
            if least.tokens <= _LISTING * (target if listed == _LISTED[0] else self.terms.most):
                break
        return frame, least

    def _enough(self, number: int, tokens: float) -> int:
        """How many units have to be listed to save so many tokens more, at about thirty tokens for a message."""
        per_message = self.terms.each + 30 * self.terms.scale
        for unit in self.skeleton.listable[number:]:
            number += 1
            tokens -= per_message * len(unit.members)
            if tokens <= 0:
                break
        return number

    def _frame(self, number: int, arguments: int, listed: int, *, roomy: bool) -> _Frame:
        called = tuple(unit.members for unit in self.skeleton.listable[:number])
        stays = self.skeleton.stays(number)
        bridges = self.skeleton.bridges(stays, {at for members in called for at in members})
        every = tuple(sorted({*stays, *bridges}))
        return _Frame(every, tuple(bridges), called, arguments, listed, roomy, self.skeleton.noted(every))

    def _least(self, frame: _Frame) -> Filled:
        plan = self._plan(frame, {}, ())
        return Filled(plan, self._tokens(plan))

    def _plan(self, frame: _Frame, lengths: Mapping[int, int], excerpts: Sequence[Excerpt]) -> Plan:
        """The plan in which each flexible message keeps so many characters, and none where nothing is said."""
        kept = [self._kept(at, frame, lengths.get(at, 0)) for at in frame.stays]
        return Plan(tuple(kept), tuple(excerpts), frame.called, frame.listed, frame.noted)

    def _kept(self, at: int, frame: _Frame, length: int) -> Kept:
        if at in self.skeleton.whole:
            return Kept(at)
        text = self.talk.text(at)
        head, tail = spans(text, length)
        roomy = frame.roomy and at >= self.skeleton.tail
        one = Kept(at, head if head < len(text) else -1, tail if head < len(text) else 0)
        if roomy:
            return one
        arguments = frame.arguments if frame.arguments >= 0 else _ARGUMENTS[0]
        return replace(one, arguments=arguments, thinking=False, images=False)

    # --- what there is room for

    def _spread(self, frame: _Frame, tokens: float) -> Plan:
        """The plan for so many tokens more than the least."""
        if tokens <= 0:
            return self._plan(frame, {}, ())
        cuttable = [at for at in frame.stays if at not in self.skeleton.whole and at not in frame.bridges]
        paces = self._paces(cuttable)
        wants: dict[str, dict[int, float]] = {"tail": {}, "older": {}}
        for at in cuttable:
            length = len(self.talk.text(at))
            if length > self._placeholder_length:
                full = self.terms.scale * paces[at] * length
                wants["tail" if at >= self.skeleton.tail else "older"][at] = full
        needs = {name: sum(each.values()) for name, each in wants.items()} | {"digest": self._material}
        given = _divided(tokens, needs)
        lengths: dict[int, int] = {}
        for name, each in wants.items():
            level = _level(list(each.values()), given[name])
            for at, full in each.items():
                share = min(full, level)
                if share >= full:
                    lengths[at] = len(self.talk.text(at))
                elif share > self._placeholder_tokens / 2:
                    lengths[at] = int(share / (self.terms.scale * paces[at]))
        bare = self._plan(frame, lengths, ())
        return replace(bare, excerpts=tuple(self._quoted(bare, given["digest"])))

    @cached_property
    def _placeholder_length(self) -> int:
        return len(marker(10**6, "0" * 64))

    @cached_property
    def _placeholder_tokens(self) -> float:
        return self.terms.scale * self._counts([marker(10**6, "0" * 64)])[0]

    @cached_property
    def _ranked(self) -> list[tuple[float, Excerpt]]:
        """Passages that the digest may quote, the best first."""
        places = sorted({*self.skeleton.older, *self.skeleton.flexible})
        found = [Excerpt(at, start, end) for at in places for start, end in passages(self.talk.text(at))]
        question = "" if self.talk.question is None else self.talk.text(self.talk.question)
        texts = [self.talk.text(one.index)[one.start : one.end] for one in found]
        keywords = by_words(question, texts)
        scores = combined(keywords, self._meanings(question, texts, keywords, found))
        paired = self.skeleton.paired
        ranked = [
            (score, one) for score, one in zip(scores, found, strict=True) if score > 0 or one.index not in paired
        ]
        ranked.sort(key=lambda each: (each[0], each[1].index, -each[1].start), reverse=True)
        return ranked

    def _meanings(
        self, question: str, texts: Sequence[str], keywords: Sequence[float], found: Sequence[Excerpt]
    ) -> list[float | None] | None:
        """How near each passage is in meaning, for those that have words in common or are of late."""
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

    @cached_property
    def _material(self) -> float:
        """Tokens of everything that the digest could quote."""
        paces = self._paces({one.index for _, one in self._ranked})
        return self.terms.scale * sum(paces[one.index] * (one.end - one.start) + 4 for _, one in self._ranked)

    @cached_property
    def _overhead(self) -> tuple[float, float]:
        """Tokens of a tag, and of the digest's first words."""
        tokens, intro = self._counts([tag(self.talk, 0, "get_indicators"), DIGEST])
        return self.terms.scale * (tokens + 3), self.terms.scale * intro

    def _quoted(self, bare: Plan, tokens: float) -> list[Excerpt]:
        """The best passages for so many tokens, of what is not in the plan already."""
        shown = {one.index: one for one in bare.kept}
        paces, (per_tag, intro), tagged = self._pace, self._overhead, set[int]()
        if len(bare.kept) == len(self.talk):
            tokens -= intro + self.terms.each  # there was no digest so far
        chosen: list[Excerpt] = []
        opening = next((at for at in self.skeleton.older if self.talk.roles[at] == "user"), None)
        first = [each for each in self._ranked if each[1].index == opening and each[1].start == 0]
        # What the conversation began with says what it is about.
        for place, (_, one) in enumerate([*first, *self._ranked]):
            if place >= len(first) and first and one == first[0][1]:
                continue
            if not _hidden(one, shown.get(one.index), len(self.talk.text(one.index))):
                continue
            cost = self.terms.scale * (paces[one.index] * (one.end - one.start) + 2)
            cost += 0.0 if one.index in tagged else per_tag
            if cost > tokens or (place < len(first) and cost > tokens / 4):
                continue
            tokens -= cost
            tagged.add(one.index)
            chosen.append(one)
        return sorted(chosen, key=lambda one: (one.index, one.start))


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


def _divided(tokens: float, needs: Mapping[str, float]) -> dict[str, float]:
    """What each gets: its share, and what others leave over, but never more than it needs."""
    given = dict.fromkeys(needs, 0.0)
    wanting = {name for name, need in needs.items() if need > 0}
    while wanting and tokens > 1:
        total = sum(_SHARES[name] for name in wanting)
        parts = {name: min(tokens * _SHARES[name] / total, needs[name] - given[name]) for name in wanting}
        for name, part in parts.items():
            given[name] += part
        tokens -= sum(parts.values())
        satisfied = {name for name in wanting if needs[name] - given[name] < 1}
        if not satisfied:
            break
        wanting -= satisfied
    return given


def _level(needs: Sequence[float], tokens: float) -> float:
    """The height up to which all can be filled: those that need less get all, the others so much."""
    left = len(needs)
    for need in sorted(needs):
        if need * left > tokens:
            return tokens / left
        tokens -= need
        left -= 1
    return float("inf")


def _hidden(one: Excerpt, kept: Kept | None, length: int) -> bool:
    """Whether a passage is not to be seen at its own place."""
    return kept is None or (kept.head >= 0 and one.start >= kept.head and one.end <= length - kept.tail)
