"""What the operator decides about counting, and the refusal of what cannot be counted."""

from dataclasses import dataclass

from ollama_gate.catalog.card import ModelCard
from ollama_gate.errors import Refusal


@dataclass(frozen=True, slots=True)
class CountingPolicy:
    """What the operator decides about counting; times in seconds."""

    ask_upstream: bool = True
    timeout: float = 30.0
    refuse_unknown: bool = False
    margin: float = 0.25


def uncountable(card: ModelCard, why: str) -> Refusal:
    """The refusal of a prompt whose length cannot be known."""
    return Refusal(
        400,
        "not_countable",
        f'prompts of "{card.name}" cannot be counted here ({why}), and what cannot be counted is refused.',
        param="model",
    )
