"""A rehearsal of Ollama: the same API, errors, truncation and reloads, and a small deterministic "model".

It is a double for tests, an upstream for benchmarks and a newcomer's first Ollama, written from Ollama's source and
from recorded exchanges (v0.33). It shares no code with the gate, so that it cannot share its mistakes.
"""

from ollama_gate.rehearsal.catalogue import MODELS
from ollama_gate.rehearsal.faults import Fault
from ollama_gate.rehearsal.journal import Entry, Journal
from ollama_gate.rehearsal.models import Mode, Model
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings

__all__ = ["MODELS", "Entry", "Fault", "Journal", "Mode", "Model", "Rehearsal", "Settings"]
