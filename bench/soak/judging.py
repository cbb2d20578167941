"""What a soak found, held against its bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.processes import Turns

MIB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class Sample:
    """The gate at one moment."""

    at: float
    """Seconds since the load began."""
    resident: int
    """Bytes of the gate's own process."""
    descriptors: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the report."""

    title: str
    value: str
    bound: str = ""
    holds: bool | None = None
    """None where nothing is demanded."""


def slope(samples: Sequence[Sample]) -> float:
    """Bytes a second by which resident memory grows: the line that fits best (least squares); 0 of less than two."""
    if len(samples) < 2:
        return 0.0
    middle = sum(sample.at for sample in samples) / len(samples)
    mean = sum(sample.resident for sample in samples) / len(samples)
    spread = sum((sample.at - middle) ** 2 for sample in samples)
    if not spread:
        return 0.0
    return sum((sample.at - middle) * (sample.resident - mean) for sample in samples) / spread


def turns(loops: Mapping[str, Turns], seconds: float) -> list[Finding]:
    """Whether the machine was quiet: how much each event loop ran, and how long it waited for its core to be free.

    A loop that waits for long is late by that, whoever wrote it: lateness says something of the gate only where these
    waits are short.
    """
    return [
        Finding(
            f"{name}: its loop ran, and waited for its core",
            f"{100 * turn.ran / seconds:.0f}, {100 * turn.waited / seconds:.0f} % of the time",
        )
        for name, turn in loops.items()
    ]


def at_most(title: str, value: float, bound: float | None, unit: str = "") -> Finding:
    """A row that holds when the value is not above its bound; without a bound nothing is demanded."""
    space = " " if unit else ""
    shown = f"{value:.0f}" if value == int(value) else f"{value:.1f}"
    if bound is None:
        return Finding(title, f"{shown}{space}{unit}")
    return Finding(title, f"{shown}{space}{unit}", f"≤ {bound:g}{space}{unit}", holds=value <= bound)


def fine(findings: Sequence[Finding]) -> bool:
    """Whether every bound holds."""
    return not any(finding.holds is False for finding in findings)
