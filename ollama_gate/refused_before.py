"""What was refused a moment ago: bodies that come again, conversations that may pass once, and those that go round.

An agent that understands "the context is full" compacts and tries again. Where its own system prompt and tools leave
no room, compacting cannot help, and some agents (opencode 1.18) go round without end, each round costing a generation.
What ends that is an error that they do not take for a full context (`refusals.hopeless`).

Time is passed in as seconds of any steady clock.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

from ollama_gate.errors import Refusal

SECONDS: Final = 120.0
"""A conversation that was quiet for so long begins anew."""
_PROGRESS: Final = 0.99
"""A prompt counts as shorter when it is below this share of the shortest one refused before."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A refusal as it is given once more."""

    refusal: Refusal
    model: str | None = None
    """Canonical name of the model that it is about."""
    notes: tuple[str, ...] = ()
    """What the client was told in a header beside it."""


class RefusalMemory:
    """Refused bodies of the last seconds, so that a body sent again and again costs nothing to refuse."""

    def __init__(self, seconds: float, capacity: int = 256) -> None:
        """Remember up to `capacity` refusals for `seconds`; zero seconds switch it off."""
        self._seconds = seconds
        self._capacity = capacity
        self._held: OrderedDict[bytes, tuple[float, Repeated]] = OrderedDict()

    def __len__(self) -> int:
        """How many refusals are held, late ones included."""
        return len(self._held)

    def recall(self, route: str, body: bytes, now: float) -> Repeated | None:
        """The refusal of this body on this route, if it was given less than `seconds` ago."""
        if not self._held:
            return None
        key = _body_key(route, body)
        found = self._held.get(key)
        if found is None:
            return None
        if now >= found[0]:
            del self._held[key]
            return None
        return found[1]

    def keep(self, route: str, body: bytes, given: Repeated, now: float) -> None:
        """Remember a refusal that was given just now; the oldest goes when there is no room."""
        if self._seconds <= 0:
            return
        key = _body_key(route, body)
        headers = {**given.refusal.headers, "x-ollama-gate-repeated": "true"}
        self._held[key] = (now + self._seconds, replace(given, refusal=replace(given.refusal, headers=headers)))
        self._held.move_to_end(key)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)

    def forget(self) -> None:
        """Drop everything: a model has changed."""
        self._held.clear()


def _body_key(route: str, body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16, key=route.encode()[:64]).digest()


class GraceBook:
    """Conversations that were refused, each of which may pass once over the budget.

    Agents compact with a request that is as long as the one that was refused; refused again, they give up.
    """

    def __init__(self, seconds: float = 600.0, capacity: int = 1024) -> None:
        """Hold up to `capacity` conversations, each for `seconds` after its refusal."""
        self._seconds = seconds
        self._capacity = capacity
        self._held: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()

    def __len__(self) -> int:
        """How many conversations have a pass, late ones included."""
        return len(self._held)

    def grant(self, conversation: bytes, prompt: bytes, now: float) -> None:
        """Note that this prompt of a conversation was refused."""
        self._held[conversation] = (now + self._seconds, prompt)
        self._held.move_to_end(conversation)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)

    def take(self, conversation: bytes, prompt: bytes, now: float) -> bool:
        """Use up the pass of this conversation; False when it has none, or sends what was refused once more."""
        held = self._held.get(conversation)
        if held is None or held[1] == prompt:
            return False
        del self._held[conversation]
        return now < held[0]


@dataclass(slots=True)
class _Rounds:
    times: int
    shortest: int
    until: float


class LoopBook:
    """Refused conversations that may be going round."""

    def __init__(self, capacity: int = 1024) -> None:
        """Hold up to `capacity` conversations."""
        self._capacity = capacity
        self._held: OrderedDict[bytes, _Rounds] = OrderedDict()

    def __len__(self) -> int:
        """How many conversations are held, quiet ones included."""
        return len(self._held)

    def refused(self, conversation: bytes, tokens: int, now: float) -> int:
        """Note one refusal; how many in a row it is. More than `ROUNDS` of them are going round.

        Codex drops its oldest item and tries again as often as needed: its prompts become shorter; that is progress.
        """
        held = self._held.get(conversation)
        if held is None or now >= held.until or tokens < held.shortest * _PROGRESS:
            held = self._held[conversation] = _Rounds(0, tokens, 0.0)
        held.times += 1
        held.shortest = min(held.shortest, tokens)
        held.until = now + SECONDS
        self._held.move_to_end(conversation)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)
        return held.times


@dataclass(frozen=True, slots=True)
class RefusedBefore:
    """Conversations that were refused: who may pass on grace, and who goes round in circles."""

    grace: GraceBook = field(default_factory=GraceBook)
    loops: LoopBook = field(default_factory=LoopBook)
