"""What the clients under test are given."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """Where the gate is, and which models are behind it."""

    url: str
    upstream: str
    """The Ollama behind it."""
    chat: str
    tools: str
    thinking: str
    embed: str
    real: bool
