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
    """What has to stay of a conversation, as indexes of messages."""

    talk: Conversation
    terms: Terms

    @cached_property
    def tail(self) -> int:
        """The index of the first of the last messages, all of which stay (`Terms.keep_last`)."""
        return max(len(self.talk) - self.terms.keep_last, 0)

    @cached_property
    def whole(self) -> frozenset[int]:
        """Messages that stay exactly as they came: those of the system, the question, and what the operator exempts."""
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
        """Messages that stay, and whose content may be cut inside: the last ones, and calls with their results."""
        return [at for at in range(len(self.talk)) if at not in self.whole and (at >= self.tail or at in self.paired)]

    @cached_property
    def older(self) -> list[int]:
        """Messages that do not stay; only the digest may quote them."""
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
        """The messages that stay, in order, bridges not included.

        Args:
            listed: so many of the oldest `listable` units are a line in the digest instead.
        """
        gone = {at for unit in self.listable[:listed] for at in unit.members}
        return sorted({*self.whole, *self.flexible} - gone)

    def noted(self, stays: Sequence[int]) -> bool:
        """Whether a short message of the assistant has to follow the digest (`building.NOTED`).

        The digest is a message of the user. Where another one would follow it, although the conversation never has two
        in a row, its template may not take that.
        """
        follows = next((self.talk.kinds[at] for at in stays if self.talk.kinds[at] != "s"), None)
        return follows == "u" and ("u", "u") not in self.talk.neighbours

    def bridges(self, stays: Sequence[int], gone: Collection[int] = ()) -> list[int]:
        """Dropped messages that stay as placeholders, because a template may not take their neighbours side by side.

        Many templates want user and assistant in turn. So where a tool's result would come to stand directly before a
        message of the user, what the assistant said in between stays as a placeholder.

        Args:
            stays: the messages that stay, in order.
            gone: messages that may not be taken, because the digest lists them.
        """
        talk, usual = self.talk, _USUAL | self.talk.neighbours
        found = self._parting(stays, gone)
        speakers = [at for at in sorted({*stays, *found}) if talk.kinds[at] != "s"]
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

    def _parting(self, stays: Sequence[int], gone: Collection[int]) -> list[int]:
        """Dropped messages of the user behind which a result answers no call; without them it would."""
        talk, found, calls = self.talk, list[int](), -1
        orphans = {unit.first for unit in talk.units if unit.orphan}
        for at in stays:
            if talk.messages[at].get("tool_calls"):
                calls = at
            elif talk.kinds[at] == "u":
                calls = -1
            elif at in orphans and calls >= 0:
                between = range(at - 1, calls, -1)
                parting = next((each for each in between if talk.kinds[each] == "u" and each not in gone), None)
                if parting is not None:
                    found.append(parting)
                    calls = -1
        return found
