"""A conversation that is compacted: its messages, and what is known of each without counting."""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from ollama_gate.compaction.originals import message_hash
from ollama_gate.compaction.pairing import Message, Unit, role_of, units

_REMINDER: Final = "<system-reminder>"
_REMINDER_END: Final = "</system-reminder>"


class Conversation:
    """Native messages in their order; what is asked of them again and again is worked out once, when first asked."""

    def __init__(self, messages: Sequence[Message], names: Sequence[str] = ()) -> None:
        """Take the messages; nothing is worked out yet.

        Args:
            messages: what came.
            names: digits that the first messages were archived under before (`originals.Checkpoint.names`).
        """
        self.messages = messages
        self._hashes = dict(enumerate(names))

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def hash(self, index: int) -> str:
        """The first digits, `originals.SHOWN` at least, of the hash that a message is archived under.

        Raises ValueError where it cannot be written as JSON.
        """
        found = self._hashes.get(index)
        if found is None:
            found = self._hashes[index] = message_hash(self.messages[index])
        return found

    def text(self, index: int) -> str:
        """The content of a message; empty where it is null."""
        return self.messages[index].get("content") or ""

    @cached_property
    def roles(self) -> list[str]:
        """The role of each message, in lower case."""
        return [role_of(message) for message in self.messages]

    @cached_property
    def units(self) -> list[Unit]:
        """Calls with their results (`pairing.units`)."""
        return units(self.messages)

    @cached_property
    def answers(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """By message with calls: for each call, the indexes of its results."""
        return {unit.first: unit.answers for unit in self.units}

    @cached_property
    def question(self) -> int | None:
        """The index of the current question: the last message of the user that is more than a reminder.

        Claude Code puts reminders of its own, in tags, into messages of the user, also between the results of tools.
        """
        asked = (at for at in reversed(range(len(self))) if self.roles[at] == "user" and not self._reminds(at))
        return next(asked, self.last_said)

    @cached_property
    def last_said(self) -> int | None:
        """The index of the user's last message, reminder or not."""
        return next((at for at in reversed(range(len(self))) if self.roles[at] == "user"), None)

    def _reminds(self, index: int) -> bool:
        text = self.text(index).strip()
        return text.startswith(_REMINDER) and text.endswith(_REMINDER_END)

    @cached_property
    def kinds(self) -> list[str]:
        """Who speaks, as templates tell them apart: u(ser), a(ssistant), c(alls of one), t(ool), s(ystem)."""
        short = {"user": "u", "tool": "t", "system": "s"}
        return [
            ("c" if message.get("tool_calls") else "a") if role == "assistant" else short.get(role, role)
            for role, message in zip(self.roles, self.messages, strict=True)
        ]

    @cached_property
    def neighbours(self) -> set[tuple[str, str]]:
        """Every pair of `kinds` that stand side by side when system messages are left out."""
        kinds = [kind for kind in self.kinds if kind != "s"]
        return set(pairwise(kinds))
