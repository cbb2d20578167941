"""What `/api/ps` says of the loaded models, in the ledger's words.

The answer lists finished loads only, each with the bytes that llama-server logged while loading
(`server/routes.go:PsHandler`, Ollama v0.33).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ollama_gate.admission.demand import Demand
from ollama_gate.requests import Json


@dataclass(frozen=True, slots=True)
class Reported:
    """One loaded model."""

    model: str
    """The key under which the gate books it; names that share a file share a runner and so a key."""
    size: int
    """Bytes, less what Ollama loses in counting (`Footprint.unreported`); 0 when that cannot be read."""
    size_vram: int
    num_ctx: int
    """Window of one slot; 0 from an Ollama that does not say (before v0.9.7)."""
    expires_at: float | None = None
    """When it will be unloaded if nobody uses it, on the gate's clock; None when that cannot be read."""
    demand: Demand | None = None
    """What a model takes that is loaded so, by its metadata; None where they are not known."""


def read_ps(answer: Json, key: Callable[[str], str], *, now: float, wall: float) -> tuple[Reported, ...]:
    """The residents in an answer of `/api/ps`; entries without a name are left out, other nonsense is read as unknown.

    Args:
        answer: The decoded answer.
        key: From a model's name to the key under which the gate books it.
        now: The gate's clock, seconds.
        wall: The same moment in seconds since 1970.
    """
    entries = answer.get("models")
    found = (_entry(entry, key, now - wall) for entry in entries) if isinstance(entries, list) else ()
    return tuple(entry for entry in found if entry is not None)


def _entry(entry: Any, key: Callable[[str], str], to_clock: float) -> Reported | None:
    match entry:
        case {"model": str(name)} if name:
            return Reported(
                model=key(name),
                size=_bytes(entry.get("size")),
                size_vram=_bytes(entry.get("size_vram")),
                num_ctx=_bytes(entry.get("context_length")),
                expires_at=_moment(entry.get("expires_at"), to_clock),
            )
        case _:
            return None


def _bytes(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _moment(value: Any, to_clock: float) -> float | None:
    try:
        return datetime.fromisoformat(value).timestamp() + to_clock
    except (TypeError, ValueError, OverflowError):
        return None  # absent, or no time at all: "unknown" is an answer here
