"""From the least that has to stay to as much as there is room for.

What has to stay takes its tokens first. What is left goes to the last messages, to the digest and to older results, and
within each group the largest messages are cut most. What comes out is counted, and what was wrong is put right, until
it fills the target and does not pass it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ollama_gate.compaction.building import marker
from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.cutting import spans
from ollama_gate.compaction.plan import Excerpt, Kept, Plan
from ollama_gate.compaction.quoting import Quotations, hidden
from ollama_gate.compaction.skeleton import Skeleton
from ollama_gate.compaction.terms import Count, DoesNotFit, Similar, Terms
from ollama_gate.compaction.weighing import Scales

_SHARES: Final = {"tail": 0.5, "digest": 0.3, "older": 0.2}
"""How what is left over is divided while everybody wants more."""
_SKELETON: Final = 0.75
"""Share of the target that what has to stay should not pass; then arguments of calls are cut."""
_CROWDED: Final = 0.85
"""Share of the most that is allowed which it must not pass before older calls are only listed."""
_RELIEVED: Final = 0.7
"""Share of the most to which listing brings it, so that several turns fit before more of them go."""
_LISTING: Final = 0.9
"""Share that it may take where all of them are listed, and that is filled where it takes more than the target."""
_ARGUMENTS: Final = (2000, 600, 120, 40)
"""Characters that texts in the arguments of calls keep, the first that is short enough."""
_LISTED: Final = (160, 40, 0)
"""The same for calls that are only listed."""
_ROUNDS: Final = 8
_FULL: Final = 0.97
"""Share of the target from which on it is full."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A plan, and the tokens that its messages take, by the worker's estimate."""

    plan: Plan
    tokens: float


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is decided before the room that is left is given out."""

    stays: tuple[int, ...]
    """Messages that stay, bridges included, in order."""
    bridges: tuple[int, ...]
    """Those of them that are placeholders only (`Skeleton.bridges`)."""
    called: tuple[tuple[int, ...], ...]
    """Units that are only listed."""
    arguments: int
    """The most characters that texts in arguments of calls keep; -1 is all."""
    listed: int
    """The most characters of arguments in the list."""
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
        self._scales = Scales(talk, terms, count)
        self._similar = similar
        self._quotations: Quotations | None = None

    def fill(self, target: float | None = None) -> Filled:
        """The plan that comes nearest to the target from below.

        Raises:
            DoesNotFit: not even the least of everything is within the most that is allowed.
            ValueError: a message cannot be written as JSON.
        """
        target = self.terms.target if target is None else target
        whole = Plan(tuple(Kept(at) for at in range(len(self.talk))))
        if self._scales.foreseen() <= 1.2 * target and (tokens := self._scales.tokens(whole)) <= target:
            return Filled(whole, tokens)
        frame, least = self._framed(target)
        if least.tokens > self.terms.most:
            raise DoesNotFit(
                f"what has to stay (system messages, the question, the last {self.terms.keep_last} messages, calls and "
                f"their results in their shortest form) takes {least.tokens:.0f} tokens of {self.terms.most:.0f}"
            )
        room = target
        if least.tokens > 0.9 * target:
            most = max(least.tokens, _LISTING * self.terms.most)
            room = max(target, min(most, least.tokens + 0.15 * self.terms.most))
        best, aim = least, room
        for _ in range(_ROUNDS):
            plan = self._spread(frame, aim - least.tokens)
            tokens = self._scales.tokens(plan)
            if best.tokens < tokens <= room:
                best = Filled(plan, tokens)
            if _FULL * room <= tokens <= room:
                break
            self._scales.learn(plan)
            aim += (room - tokens) * (1.0 if tokens < room else 1.1)
        return best

    def expect(self, more: float) -> None:
        """Take so many tokens more for each result of a tool (or message, where there are none) than was foreseen."""
        self._scales.expect(more)

    # --- what has to stay

    def _framed(self, target: float) -> tuple[_Frame, Filled]:
        """What stays, how short arguments become and which calls are only listed, so that the least leaves room."""
        limit = _SKELETON * target
        frame = self._frame(0, -1, _LISTED[0], roomy=True)
        least = self._least(frame)
        for arguments in _ARGUMENTS:
            if least.tokens <= limit:
                return frame, least
            frame = self._frame(0, arguments, _LISTED[0], roomy=False)
            least = self._least(frame)
        # What a call brought to light is worth more than the room for the next turns.
        if least.tokens <= _CROWDED * self.terms.most:
            return frame, least
        limit = max(limit, _RELIEVED * self.terms.most)
        every = len(self.skeleton.listable)
        for listed in _LISTED:
            number = 0
            while least.tokens > limit and number < every:
                number = min(every, max(number + 1, self._enough(number, least.tokens - limit)))
                frame = self._frame(number, _ARGUMENTS[-1], listed, roomy=False)
                least = self._least(frame)
            # What was called with what is worth more than that room; only what cannot be sent at all goes.
            if least.tokens <= _LISTING * self.terms.most:
                break
        return frame, least

    def _enough(self, number: int, tokens: float) -> int:
        """How many units have to be listed to save so many tokens more, at about thirty tokens for a message."""
        per_message = self._scales.each + 30 * self.terms.scale
        for unit in self.skeleton.listable[number:]:
            number += 1
            tokens -= per_message * len(unit.members) + self._scales.result * (len(unit.members) - 1)
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
        return Filled(plan, self._scales.tokens(plan))

    def _plan(self, frame: _Frame, lengths: Mapping[int, int], excerpts: Sequence[Excerpt]) -> Plan:
        """The plan in which each flexible message keeps so many characters; none where `lengths` does not name it."""
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
        quotations = self._quotations
        if quotations is None:
            room = _SHARES["digest"] * tokens
            quotations = self._quotations = Quotations(self.skeleton, self._scales, self._similar, room)
        cuttable = [at for at in frame.stays if at not in self.skeleton.whole and at not in frame.bridges]
        self._scales.weigh(cuttable)
        wants: dict[str, dict[int, float]] = {"tail": {}, "older": {}}
        for at in cuttable:
            length = len(self.talk.text(at))
            if length > self._placeholder_length:
                more = max(self._scales.content(at) - self._placeholder_tokens, 1.0)
                wants["tail" if at >= self.skeleton.tail else "older"][at] = more
        needs = {name: sum(each.values()) for name, each in wants.items()} | {"digest": quotations.material}
        given = _divided(tokens, needs)
        lengths = self._lengths(wants, given)
        excerpts, left = quotations.choose(self._plan(frame, lengths, ()), given["digest"])
        if left > 0:  # passages are quoted whole or not at all: the rest is for the others
            others = {name: need for name, need in needs.items() if name != "digest"}
            lengths = self._lengths(wants, _divided(left + given["tail"] + given["older"], others))
        plan = self._plan(frame, lengths, ())
        shown = {one.index: one for one in plan.kept}
        quoted = [one for one in excerpts if hidden(one, shown.get(one.index), len(self.talk.text(one.index)))]
        return replace(plan, excerpts=tuple(quoted))

    def _lengths(self, wants: Mapping[str, Mapping[int, float]], given: Mapping[str, float]) -> dict[int, int]:
        """The characters that each content gets; one that would get next to nothing is left with none."""
        lengths: dict[int, int] = {}
        for name, each in wants.items():
            level = _level(list(each.values()), given[name])
            for at, full in each.items():
                share = min(full, level)
                if share >= full:
                    lengths[at] = len(self.talk.text(at))
                elif share > self._placeholder_tokens / 2:
                    lengths[at] = int(share / self._scales.content(at, 1))
        return lengths

    @cached_property
    def _placeholder_length(self) -> int:
        return len(marker(10**6, "0" * 64))

    @cached_property
    def _placeholder_tokens(self) -> float:
        return self._scales.text(marker(10**6, "0" * 64))


def _divided(tokens: float, needs: Mapping[str, float]) -> dict[str, float]:
    """The tokens that each gets: its share (`_SHARES`) and what others leave over, never more than it needs."""
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
    """The amount up to which each can get what it needs, as water fills vessels: who needs more gets this much."""
    left = len(needs)
    for need in sorted(needs):
        if need * left > tokens:
            return tokens / left
        tokens -= need
        left -= 1
    return float("inf")
