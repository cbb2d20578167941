"""Agents that come back again and again with a prompt that does not fit, and what ends it.

An agent that understands "the context is full" compacts and tries again. Where its own system prompt and tools leave
no room, compacting cannot help, and some agents (opencode 1.18) go round without end, each round costing a generation.
What ends that is an error that they do not take for a full context: after several refusals in a short time, none of
them of a shorter prompt than before, the same fact is told in other words and under another code.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from ollama_gate.errors import Refusal
from ollama_gate.refusals import HEADERS

CODE: Final = "prompt_cannot_fit"
ROUNDS: Final = 5
"""Refusals in a row that told nothing new; the next one is told otherwise."""
SECONDS: Final = 120.0
"""A conversation that was quiet for so long begins anew."""
_PROGRESS: Final = 0.99
"""A prompt counts as shorter when it is below this share of the shortest one refused before."""


@dataclass(slots=True)
class _Rounds:
    times: int
    shortest: int
    until: float


class LoopBook:
    """Refused conversations that may be going round; time is passed in as seconds of any steady clock."""

    def __init__(self, capacity: int = 1024) -> None:
        """Hold up to `capacity` conversations."""
        self._capacity = capacity
        self._held: OrderedDict[bytes, _Rounds] = OrderedDict()

    def __len__(self) -> int:
        """How many conversations are held, quiet ones included."""
        return len(self._held)

    def refused(self, conversation: bytes, tokens: int, now: float) -> bool:
        """Note one refusal; whether this conversation is going round.

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
        return held.times > ROUNDS


def hopeless(refusal: Refusal) -> Refusal:
    """The same refusal for somebody who goes round: no word in it that starts another compaction."""
    details: dict[str, Any] = dict(refusal.details)
    needed, allowed = details.get("prompt_tokens"), details.get("budget", details.get("limit"))
    return Refusal(
        status=400,
        code=CODE,
        message=(
            f"This conversation was refused {ROUNDS} times in a row and did not become smaller: it needs {needed} of "
            f"{allowed}. What is sent each time (system prompt, tools, summary) leaves no room. Stop, and ask the "
            "operator of the gate for a larger budget, offer fewer tools, or begin a new conversation."
        ),
        param=refusal.param,
        reason="Prompt Cannot Fit",
        details=details,
        headers=HEADERS,
    )
