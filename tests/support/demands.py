"""Demands of invented models, by the bytes they take."""

from dataclasses import replace

from ollama_gate.admission.demand import Demand
from ollama_gate.admission.memory import Launch

GIB = 1024**3


def takes(gib: float, num_ctx: int = 4096, slots: int = 1) -> Demand:
    """A demand of so many GiB, headroom included."""
    guess = Demand.guess(int(gib * GIB / 1.5), num_ctx)
    return Demand(replace(guess.footprint, launch=Launch(num_ctx, slots, 0, 0, 0)))
