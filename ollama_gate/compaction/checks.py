"""What a compacted conversation must be before it may go out, whoever made it."""

from collections.abc import Mapping, Sequence
from typing import Any

from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.pairing import units
from ollama_gate.compaction.plan import Plan
from ollama_gate.compaction.skeleton import Skeleton
from ollama_gate.compaction.terms import Terms
from ollama_gate.errors import GateError


class CheckFailed(GateError):
    """A compacted conversation would have been wrong; the message says how."""


def check(talk: Conversation, plan: Plan, built: Sequence[Mapping[str, Any]], terms: Terms) -> None:
    """Hold what goes out against what came: system messages, question, order, pairs, the last messages, quotations.

    Args:
        talk: what came.
        plan: what was made of it.
        built: the messages that come out (`building.build`).
        terms: what had to be kept to.

    Raises:
        CheckFailed: one of them is not as it has to be.
    """
    skeleton, kept = Skeleton(talk, terms), {one.index: one for one in plan.kept}
    _whole(talk, skeleton, plan, built)
    if any(at not in kept for at in range(skeleton.tail, len(talk))):
        raise CheckFailed("one of the last messages is gone")
    gone = {at for members in plan.called for at in members}
    listable = {unit.members for unit in skeleton.listable}
    if not set(plan.called) <= listable:
        raise CheckFailed("a call is listed that has to stay, or that nobody made")
    for unit in talk.units:
        if any(at not in kept and at not in gone for at in unit.members):
            raise CheckFailed("a call or its result is gone")
    _quotations(talk, plan)
    _pairs(talk, plan, built)


def _whole(talk: Conversation, skeleton: Skeleton, plan: Plan, built: Sequence[Mapping[str, Any]]) -> None:
    kept = {one.index: one for one in plan.kept}
    for at in sorted(skeleton.whole):
        one = kept.get(at)
        if one is None or not one.whole:
            what = "the question" if at in (talk.question, talk.last_said) else f"a {talk.roles[at]} message"
            raise CheckFailed(f"{what} is not what it was")
    standing = iter(built)
    for at in sorted(skeleton.whole):
        if all(message != talk.messages[at] for message in standing):
            raise CheckFailed(f"message {at} is not where it was")


def _quotations(talk: Conversation, plan: Plan) -> None:
    before = (-1, 0)
    for one in plan.excerpts:
        if one.end > len(talk.text(one.index)) or (one.index, one.start) < before:
            raise CheckFailed("the digest quotes what nobody said")
        before = (one.index, one.end)


def _pairs(talk: Conversation, plan: Plan, built: Sequence[Mapping[str, Any]]) -> None:
    """Each result answers the same call as before, and each orphan is one still."""
    places = _places(plan, built)
    gone = {at for members in plan.called for at in members}
    expected = [unit for unit in talk.units if not gone.intersection(unit.members)]
    found = [unit.at(places) for unit in units(built)]
    if found != expected:
        raise CheckFailed("a result would answer another call")


def _places(plan: Plan, built: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where each message that goes out came from; -1 for the digest and what follows it."""
    added = len(built) - len(plan.kept)
    leading = _leading(plan, built)
    places = [one.index for one in plan.kept]
    return [*places[:leading], *[-1] * added, *places[leading:]]


def _leading(plan: Plan, built: Sequence[Mapping[str, Any]]) -> int:
    """How many messages stand before the digest."""
    at = 0
    while at < len(plan.kept) and str(built[at].get("role") or "").lower() == "system":
        at += 1
    return at
