"""What a soak found, held against its bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.processes import Turns
from bench.soak.streams import LATE

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


def own(late: tuple[float, float], stops: Sequence[tuple[float, float]]) -> float:
    """Seconds that a token took without those in which the machine stood still.

    Args:
        late: when it was written, and when it was read.
        stops: from and to, of all cores; they may overlap.
    """
    written, read = late
    took, at = read - written, written
    for begin, end in sorted(stops):
        stood = min(end, read) - max(begin, at)
        if stood > 0:
            took -= stood
            at = min(end, read)
    return took


def lateness(
    latest: float, late: Sequence[tuple[float, float]], stops: Sequence[tuple[float, float]], bound: float | None
) -> list[Finding]:
    """How late tokens were, and what of it was the machine's.

    Args:
        latest: seconds that the latest took of those that were in time.
        late: the others; when each was written, and when it was read.
        stops: when the machine stood still.
        bound: seconds that no token may be late by; None does not judge it.
    """
    times = [own(one, stops) for one in late]
    most = None if bound is None else bound * 1000
    above = sum(time > (bound or LATE) for time in times)
    longest = max((end - begin for begin, end in stops), default=0.0)
    return [
        at_most(
            "the latest of them, without the times in which the machine stood still",
            1000 * max([latest, *times]),
            most,
            "ms",
        ),
        Finding("of them later than 100 ms, without these times, and with them", f"{above}, {len(late)}"),
        Finding(
            "times that the machine stood still for more than 50 ms, and the longest",
            f"{len(stops)}, {1000 * longest:.0f} ms",
        ),
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
