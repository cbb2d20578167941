"""How far a model's counts can be trusted, learned from Ollama's own numbers. Pure: it is told, and it answers.

Every answer of Ollama's carries prompt_eval_count, the true length of the prompt (`llm/llama_server.go`,
promptEvalCount, v0.30.1 and later). One exact count that differs from it demotes the model: first its rendering here is
no longer believed, and Ollama is asked for the text; if a count of Ollama's own text is off too, the vocabulary is not
believed, and every count is an estimate with the error seen so far as its margin.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ollama_gate.requests import Basis

_HEADROOM: Final = 1.25
"""What is added to the worst error seen."""
_SMALLEST_MARGIN: Final = 0.02


class DriftKind(StrEnum):
    """How a count compares with Ollama's number."""

    EXACT = "exact"
    OFF = "off"
    HELD = "held"
    """A bound or an estimate that the number does not pass."""
    BROKEN = "broken"
    """A bound that the number passes."""
    NO_SAMPLE = "no-sample"
    """There was no number, or one that says nothing about the prompt."""


# An enum's members are slow to get (Python 3.11).
_HELD, _BYTES, _RENDERED = DriftKind.HELD, Basis.BYTES, (Basis.HERE, Basis.ASKED)


@dataclass(frozen=True, slots=True)
class Trust:
    """What is believed of one model (one digest under one version of Ollama)."""

    rendering: bool = True
    """Whether text rendered here is taken for Ollama's."""
    vocabulary: bool = True
    """Whether token counts are taken for Ollama's."""
    bound: bool = True
    """Whether the byte bound has held so far."""
    agreed: int = 0
    """Exact counts that Ollama confirmed."""
    ratio: float | None = None
    """Reported over estimated, the largest seen."""
    samples: int = 0
    why: str = ""
    """What cost the model its trust."""

    @property
    def beliefs(self) -> tuple[bool, bool, bool]:
        """Rendering, vocabulary and bound: with each that goes, counts are made another way."""
        return self.rendering, self.vocabulary, self.bound

    def margin(self, configured: float) -> float:
        """The share to add to an estimate: the worst error seen and a quarter more, or the configured one."""
        if self.ratio is None:
            return configured
        return max((self.ratio - 1.0) * _HEADROOM, _SMALLEST_MARGIN)


def drift(predicted: int | None, reported: int | None) -> float | None:
    """Our count over Ollama's; None without both."""
    return predicted / reported if predicted and reported else None


def compare(basis: Basis, predicted: int | None, at_most: int | None, reported: int | None) -> DriftKind:
    """Compare a count with prompt_eval_count."""
    if predicted is None or reported is None or reported <= 0:
        return DriftKind.NO_SAMPLE
    if basis in _RENDERED:
        return DriftKind.EXACT if predicted == reported else DriftKind.OFF
    most = at_most if at_most is not None else predicted
    return _HELD if reported <= most else DriftKind.BROKEN


def learn(trust: Trust, basis: Basis, kind: DriftKind, predicted: int | None, reported: int | None) -> Trust:
    """What is believed after one more comparison, and how it came out."""
    if basis is _BYTES and kind is _HELD:
        return trust  # nearly every answer
    if kind is DriftKind.NO_SAMPLE or predicted is None or reported is None:
        return trust
    if basis is Basis.ESTIMATED:
        ratio = reported / max(predicted, 1)
        return replace(trust, ratio=max(ratio, trust.ratio or 0.0), samples=trust.samples + 1)
    if kind is DriftKind.BROKEN:
        return replace(trust, bound=False, why=f"the byte bound was {predicted}, Ollama counted {reported}")
    if kind is DriftKind.EXACT:
        return replace(trust, agreed=trust.agreed + 1)
    if kind is DriftKind.OFF:
        why = f"counted {predicted}, Ollama counted {reported}"
        if basis is Basis.HERE:
            return replace(trust, rendering=False, why=f"{why} (text rendered here)")
        return replace(trust, rendering=False, vocabulary=False, why=f"{why} (text from Ollama)")
    return trust
