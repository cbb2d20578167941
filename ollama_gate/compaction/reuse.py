"""Checkpoints made and taken up again: the same beginning, compacted the same, byte for byte."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from ollama_gate.compaction.building import build
from ollama_gate.compaction.checks import CheckFailed, check
from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.originals import SHOWN, Checkpoint, Original, likeness, original_of
from ollama_gate.compaction.pairing import Message
from ollama_gate.compaction.plan import Kept, Plan
from ollama_gate.compaction.skeleton import Skeleton
from ollama_gate.compaction.terms import Terms


@dataclass(frozen=True, slots=True)
class Made:
    """Compacted messages that have passed the checks, and what is kept because of them."""

    messages: list[dict[str, Any]]
    checkpoint: Checkpoint
    originals: tuple[Original, ...]
    """What the archive has to keep before they go out."""
    replaced: tuple[str, ...]
    """The first digits of the hash of each message that is no longer whole, in order."""


def made(messages: Sequence[Message], packed: bytes, terms: Terms) -> Made:
    """Build what a plan says, check it, and make a checkpoint of it.

    Args:
        messages: what came.
        packed: the plan, as the worker packed it.
        terms: what it had to keep to.

    Raises:
        CheckFailed: it is not what it has to be.
        ValueError: a message cannot be written as JSON.
    """
    talk = Conversation(messages)
    try:
        plan = Plan.unpack(packed, len(talk))
    except ValueError as odd:
        raise CheckFailed(str(odd)) from odd
    built = build(talk, plan)
    check(talk, plan, built, terms)
    settled = Skeleton(talk, terms).tail
    originals = tuple(map(original_of, messages))
    names = tuple(one.hash[:SHOWN] for one in originals)
    prefix = _prefix(messages[:settled], names, plan)
    checkpoint = Checkpoint(tuple(map(likeness, messages)), settled, packed, prefix, names)
    return Made(built, checkpoint, originals, _replaced(talk, plan))


def continues(messages: Sequence[Message], checkpoint: Checkpoint) -> bool:
    """Whether a conversation begins with all that a checkpoint has settled."""
    try:
        return _same(messages, checkpoint) >= max(checkpoint.settled, 1)
    except ValueError:  # a message that cannot be written as JSON is none that was compacted before
        return False


def resumed(messages: Sequence[Message], checkpoint: Checkpoint, terms: Terms) -> Made | None:
    """What a checkpoint makes of a conversation that has grown since; None where it is another conversation now.

    Raises:
        ValueError: a message cannot be written as JSON.
    """
    same = _same(messages, checkpoint)
    if same < max(checkpoint.settled, 1):
        return None
    talk = Conversation(messages, checkpoint.names[:same])
    try:
        before = Plan.unpack(checkpoint.plan, len(checkpoint.replaces)).until(same)
        plan = replace(before, kept=(*before.kept, *map(Kept, range(same, len(talk)))))
        built = build(talk, plan)
        if _prefix(messages[: checkpoint.settled], checkpoint.names, plan) != checkpoint.prefix:
            return None
        check(talk, plan, built, terms)
    except (CheckFailed, ValueError, IndexError):
        return None
    return Made(built, checkpoint, tuple(map(original_of, messages[same:])), _replaced(talk, plan))


def _same(messages: Sequence[Message], checkpoint: Checkpoint) -> int:
    """How many messages at the beginning are the same as those that the checkpoint was made of."""
    same = 0
    for message, before in zip(messages, checkpoint.replaces, strict=False):
        if likeness(message) != before:
            break
        same += 1
    return same


def _prefix(settled: Sequence[Message], names: Sequence[str], plan: Plan) -> str:
    """The hash of what stands for the first messages, ids left out."""
    built = build(Conversation(settled, names[: len(settled)]), plan.until(len(settled)))
    mark = blake2b(digest_size=16)
    for message in built:
        mark.update(likeness(message).encode())
    return mark.hexdigest()


def _replaced(talk: Conversation, plan: Plan) -> tuple[str, ...]:
    whole = {one.index for one in plan.kept if one.whole}
    return tuple(talk.hash(at)[:SHOWN] for at in range(len(talk)) if at not in whole)
