"""What the archive tells: messages, matches, numbers. Pure, and cheap to import."""

import time
from dataclasses import dataclass
from typing import Any, Final

import orjson

SHORTEST_PREFIX: Final = 12
"""Hex digits of a hash that markers and tags show, and that are enough to ask with."""
LONGEST_PREFIX: Final = 64
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was kept."""

    hash: str
    role: str
    stored_at: float
    """Seconds since 1970 when it was first kept."""
    body: bytes
    """Canonical JSON."""
    conversations: tuple[str, ...] = ()
    """Names of those that hold it, the one compacted last first; 50 at most."""

    def told(self) -> dict[str, Any]:
        """The message for orjson, as programs get it."""
        return {
            "hash": self.hash,
            "role": self.role,
            "kept_at": stamp(self.stored_at),
            "conversations": self.conversations,
            "message": orjson.Fragment(self.body),
        }


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages a search looks at."""

    conversation: str | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A message in which all terms of a search are."""

    hash: str
    role: str
    stored_at: float
    """Seconds since 1970."""
    size: int
    """Bytes."""
    excerpt: str

    def told(self) -> dict[str, Any]:
        """The match as programs get it."""
        return {
            "hash": self.hash,
            "role": self.role,
            "kept_at": stamp(self.stored_at),
            "bytes": self.size,
            "excerpt": self.excerpt,
        }


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    matches: tuple[Match, ...]
    searched: int
    """Messages that were looked at."""
    next: str | None
    """Where to go on with the same query; None where everything was looked at."""

    def told(self) -> dict[str, Any]:
        """The answer as programs get it."""
        return {
            "matches": [match.told() for match in self.matches],
            "searched": self.searched,
            "complete": self.next is None,
            "next": self.next,
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the messages that were to be kept."""

    new: int
    known: int
    """Those that were there already, in this conversation or another."""
    stored: int
    """Bytes of the new ones, packed."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What there is, in numbers. Times are seconds since 1970, None where there is nothing."""

    messages: int
    conversations: int
    checkpoints: int
    bytes: int
    """Of the messages as they came."""
    stored_bytes: int
    """Of messages and checkpoints as they are stored."""
    oldest: float | None
    newest: float | None


@dataclass(frozen=True, slots=True)
class Purged:
    """What was taken away."""

    conversations: int = 0
    messages: int = 0
    bytes: int = 0
    """As stored."""

    def __add__(self, other: "Purged") -> "Purged":
        """The sum of both."""
        return Purged(
            self.conversations + other.conversations, self.messages + other.messages, self.bytes + other.bytes
        )


def prefix_of(asked: str) -> str | None:
    """A hash, or the start of one, in lower case; None where it is not hex, or too short to tell messages apart."""
    prefix = asked.lower()
    return prefix if SHORTEST_PREFIX <= len(prefix) <= LONGEST_PREFIX and _HEX.issuperset(prefix) else None


def stamp(seconds: float) -> str:
    """A time in RFC 3339, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
