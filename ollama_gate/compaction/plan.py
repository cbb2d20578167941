"""What becomes of a conversation, as numbers only: which messages stay, how much of each, and what the digest quotes.

The worker makes a plan, and the gate makes the messages from it. So whatever the worker says, every word of what goes
out is one of the client's own, or one of the few that `building` puts around them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Kept:
    """One message that stays at its place."""

    index: int
    head: int = -1
    """Characters that stay of the start of its content; -1 is the whole content."""
    tail: int = 0
    """Characters that stay of the end."""
    arguments: int = -1
    """The most characters that a text inside the arguments of its calls keeps; -1 is all."""
    thinking: bool = True
    images: bool = True
    """Whether its pictures stay; else a placeholder says that they were there."""

    @property
    def whole(self) -> bool:
        """Whether it stays as it came."""
        return self.head < 0 and self.arguments < 0 and self.thinking and self.images


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a message's content that the digest quotes word for word."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A compacted conversation, told by indexes of messages and places in their contents."""

    kept: tuple[Kept, ...]
    """In order."""
    excerpts: tuple[Excerpt, ...] = ()
    """In order, and none overlaps another."""
    called: tuple[tuple[int, ...], ...] = ()
    """Units (`pairing.Unit.members`) of which only a line in the digest is left, in order."""
    arguments: int = 160
    """The most characters of the arguments that such a line shows."""
    noted: bool = False
    """Whether a short message of the assistant follows the digest: some templates want user and assistant in turn."""

    def pack(self) -> bytes:
        """The plan as JSON."""
        return orjson.dumps(
            {
                "kept": [
                    [one.index, one.head, one.tail, one.arguments, int(one.thinking), int(one.images)]
                    for one in self.kept
                ],
                "excerpts": [[one.index, one.start, one.end] for one in self.excerpts],
                "called": self.called,
                "arguments": self.arguments,
                "noted": int(self.noted),
            }
        )

    @classmethod
    def unpack(cls, packed: bytes, total: int) -> "Plan":
        """What `pack` packed, for a conversation of `total` messages.

        Raises:
            ValueError: it is no plan for it.
        """
        try:
            said = orjson.loads(packed)
            kept = tuple(_kept(row) for row in said["kept"])
            excerpts = tuple(Excerpt(*_whole_numbers(row)) for row in said["excerpts"])
            called = tuple(tuple(_whole_numbers(row)) for row in said["called"])
            arguments, noted = _whole_numbers([said["arguments"], said["noted"]])
        except (TypeError, KeyError, IndexError, ValueError) as odd:
            raise ValueError(f"not a plan: {odd!r}") from odd
        plan = cls(kept, excerpts, called, arguments, bool(noted))
        places = [one.index for one in kept]
        quoted = [(one.index, one.start, one.end) for one in excerpts]
        gone = [at for members in called for at in members]
        if places != sorted(set(places)) or quoted != sorted(quoted):
            raise ValueError("not a plan: it is out of order")
        if any(not 0 <= at < total for at in (*places, *gone, *(one.index for one in excerpts))):
            raise ValueError("not a plan for this conversation")
        if any(not 0 <= one.start < one.end for one in excerpts) or not all(called):
            raise ValueError("not a plan: it quotes nothing")
        if set(gone) & set(places):
            raise ValueError("not a plan: it keeps what it lists as gone")
        return plan

    def until(self, total: int) -> "Plan":
        """The plan for the first `total` messages of the same conversation."""
        return Plan(
            tuple(one for one in self.kept if one.index < total),
            tuple(one for one in self.excerpts if one.index < total),
            tuple(members for members in self.called if members[-1] < total),
            self.arguments,
            self.noted,
        )


def _kept(row: Sequence[Any]) -> Kept:
    index, head, tail, arguments, thinking, images = _whole_numbers(row)
    return Kept(index, head, tail, arguments, bool(thinking), bool(images))


def _whole_numbers(row: Sequence[Any]) -> list[int]:
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in row):
        raise TypeError(f"{row!r} are not numbers")
    return list(row)
