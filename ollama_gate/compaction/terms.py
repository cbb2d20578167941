"""What a compaction has to keep to: how many tokens there are, what stays whole, and what things cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ollama_gate.errors import GateError

Count = Callable[[Sequence[str]], Sequence[int]]
"""Tokens of each text, by the model's own vocabulary or by a bound that they do not pass."""

Similar = Callable[[str, Sequence[str]], Sequence[float | None] | None]
"""How much each text means the same as a question, from -1 to 1; None where nobody can tell."""


class DoesNotFit(GateError):
    """What has to stay takes more than there is."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one compaction. Tokens are those of the messages: tools and template are taken off before."""

    target: float
    """Tokens that the messages should take together."""
    most: float
    """Tokens that they must not pass, where what has to stay takes more than the target."""
    keep_last: int = 8
    """So many messages at the end stay, cut inside only."""
    exempt_roles: tuple[str, ...] = ()
    """Roles whose messages stay whole, besides `system`."""
    exempt_tools: tuple[str, ...] = ()
    """Tools whose results stay whole."""
    each: float = 4.0
    """Tokens that the template adds to a message."""
    image: float = 768.0
    """Tokens of an image."""
    scale: float = 1.0
    """What counted tokens are multiplied by: above 1 where the count is not exact, so that its margin is kept to."""

    def to_json(self) -> dict[str, Any]:
        """The terms as the worker is sent them."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Terms":
        """The terms that the gate sent."""
        return cls(**{**said, "exempt_roles": tuple(said["exempt_roles"]), "exempt_tools": tuple(said["exempt_tools"])})
