"""The least that stays of a conversation: who stays, who bridges two that stay, and who is only listed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.pairing import Unit
from ollama_gate.compaction.terms import Terms

_USUAL: Final = frozenset({("u", "a"), ("u", "c"), ("a", "u"), ("c", "t"), ("t", "t"), ("t", "a"), ("t", "c")})
"""Who may follow whom in every template that takes the roles at all."""


@dataclass(frozen=True)
class Skeleton:
    """What the rules keep of a conversation."""

    talk: Conversation
    terms: Terms

    @cached_property
    def tail(self) -> int:
        """Where the last messages begin."""
        return max(len(self.talk) - self.terms.keep_last, 0)

    @cached_property
    def whole(self) -> frozenset[int]:
        """Messages that stay as they are: of the system, the question, and what the operator exempts."""
        roles = {"system", *self.terms.exempt_roles}
        whole = {at for at, role in enumerate(self.talk.roles) if role in roles}
        whole.update(at for at in (self.talk.question, self.talk.last_said) if at is not None)
        if self.talk.kinds and self.talk.kinds[-1] == "a":
            whole.add(len(self.talk) - 1)  # the beginning of an answer that the model is to go on with
        if self.terms.exempt_tools:
            whole |= {at for at in range(len(self.talk)) if self._tool(at) in self.terms.exempt_tools}
        return frozenset(whole)

    def _tool(self, at: int) -> str:
        return str(self.talk.messages[at].get("tool_name") or "") if self.talk.roles[at] == "tool" else ""

    @cached_property
    def paired(self) -> frozenset[int]:
        """Messages that call tools or answer calls."""
        return frozenset(at for unit in self.talk.units for at in unit.members)

    @cached_property
    def flexible(self) -> list[int]:
        """Messages that stay and may be cut inside."""
        return [at for at in range(len(self.talk)) if at not in self.whole and (at >= self.tail or at in self.paired)]

    @cached_property
    def older(self) -> list[int]:
        """Messages of which only the digest tells."""
        return [at for at in range(self.tail) if at not in self.whole and at not in self.paired]

    @cached_property
    def listable(self) -> list[Unit]:
        """Calls with their results that may become a line in the digest, the oldest first."""
        return [
            unit
            for unit in self.talk.units
            if not unit.orphan and unit.members[-1] < self.tail and not self.whole.intersection(unit.members)
        ]

    def stays(self, listed: int) -> list[int]:
        """The messages that stay, in order, when so many of the oldest units are only listed; bridges are not in it."""
        gone = {at for unit in self.listable[:listed] for at in unit.members}
        return sorted({*self.whole, *self.flexible} - gone)

    def noted(self, stays: Sequence[int]) -> bool:
        """Whether a user follows the digest, which a user says, in a conversation where none follows another."""
        follows = next((self.talk.kinds[at] for at in stays if self.talk.kinds[at] != "s"), None)
        return follows == "u" and ("u", "u") not in self.talk.neighbours

    def bridges(self, stays: Sequence[int], gone: Collection[int] = ()) -> list[int]:
        """Dropped messages that stay as placeholders, because a template may not take those around them side by side.

        Many templates want a user and an assistant in turn. So where a tool's result would stand before a user, what
        the assistant said in between keeps its place, though not its text.
        """
        talk, usual, found = self.talk, _USUAL | self.talk.neighbours, list[int]()
        speakers = [at for at in stays if talk.kinds[at] != "s"]
        for before, after in pairwise(speakers):
            pair = (talk.kinds[before], talk.kinds[after])
            if after == before + 1 or pair in usual:
                continue
            wanted = "u" if pair[0] == "a" else "a"
            between = range(after - 1, before, -1)
            bridge = next((at for at in between if talk.kinds[at] == wanted and at not in gone), None)
            if bridge is not None:
                found.append(bridge)
        return found
