"""What a compacted conversation must be before it may go out, whoever made it."""

from collections.abc import Mapping, Sequence
from typing import Any

from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.pairing import role_of, units
from ollama_gate.compaction.plan import Kept, Plan
from ollama_gate.compaction.skeleton import Skeleton
from ollama_gate.compaction.terms import Terms
from ollama_gate.errors import GateError


class CheckFailed(GateError):
    """A compacted conversation would have been wrong; the message says how."""


def check(talk: Conversation, plan: Plan, built: Sequence[Mapping[str, Any]], terms: Terms) -> None:
    """Compare what goes out with what came: system messages, question, order, pairs, last messages, quotations.

    Args:
        talk: what came.
        plan: what was made of it.
        built: the messages that come out (`building.build`).
        terms: what had to be kept to.

    Raises:
        CheckFailed: one of them is not as it has to be.
    """
    skeleton, kept = Skeleton(talk, terms), {one.index: one for one in plan.kept}
    _whole(talk, skeleton, kept, built)
    if any(at not in kept for at in range(skeleton.tail, len(talk))):
        raise CheckFailed("one of the last messages is gone")
    listed = {at for members in plan.called for at in members}
    listable = {unit.members for unit in skeleton.listable}
    if not set(plan.called) <= listable:
        raise CheckFailed("a call is listed that has to stay, or that nobody made")
    for unit in talk.units:
        if any(at not in kept and at not in listed for at in unit.members):
            raise CheckFailed("a call or its result is gone")
    _quotations(talk, plan)
    # Each result answers the same call as before, and what was a result without a call still is one.
    places = _places(plan, built)
    if [unit.at(places) for unit in units(built)] != [u for u in talk.units if not listed.intersection(u.members)]:
        raise CheckFailed("a result would answer another call")


def _whole(
    talk: Conversation, skeleton: Skeleton, kept: Mapping[int, Kept], built: Sequence[Mapping[str, Any]]
) -> None:
    """What has to stay whole stands in what goes out, as it came and in its order."""
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
    """Excerpts lie within the messages that they are from, in order, and none overlaps another."""
    before = (-1, 0)
    for one in plan.excerpts:
        if one.end > len(talk.text(one.index)) or (one.index, one.start) < before:
            raise CheckFailed("the digest quotes what nobody said")
        before = (one.index, one.end)


def _places(plan: Plan, built: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where each message that goes out came from; -1 for the digest and the word that may follow it."""
    places = [one.index for one in plan.kept]
    leading = 0
    while leading < len(places) and role_of(built[leading]) == "system":
        leading += 1
    return [*places[:leading], *[-1] * (len(built) - len(places)), *places[leading:]]
