"""What a soak found, held against its bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.processes import Turns
from bench.soak.stops import LONG, Stop
from bench.soak.streams import LATE, Lateness

MIB: Final = 1024**2
_SHOWN: Final = 10
"""Episodes of late tokens that are told: the worst."""


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


def own(late: tuple[float, float], stops: Sequence[Stop]) -> float:
    """Seconds that a token was late by without those in which the machine stood still.

    Args:
        late: by how much it was late, and when it was written.
        stops: of all cores; they may overlap.
    """
    took, at = late
    read = at + took
    for begin, end, _ in sorted(stops):
        stood = min(end, read) - max(begin, at)
        if stood > 0:
            took -= stood
            at = min(end, read)
    return took


@dataclass(frozen=True, slots=True)
class Episode:
    """Late tokens that were on their way together."""

    at: float
    """When the first of them was written; seconds of the wall clock."""
    tokens: int
    worst: float
    """Seconds that the latest of them was late by."""
    own: float
    """The same without the times in which the machine stood still."""
    above: int
    """Of the tokens those that are late without these times, too."""


def episodes(late: Sequence[tuple[float, float]], stops: Sequence[Stop]) -> list[Episode]:
    """Late tokens by when they came: a second in which none is on its way parts two episodes."""
    groups: list[list[tuple[float, float]]] = []
    until = 0.0
    for took, at in sorted(late, key=lambda one: one[1]):
        if not groups or at > until + 1.0:
            groups.append([])
        groups[-1].append((took, at))
        until = max(until, at + took)
    found = []
    for group in groups:
        owns = [own(one, stops) for one in group]
        found.append(Episode(group[0][1], len(group), max(group)[0], max(owns), sum(time > LATE for time in owns)))
    return found


def _times(begins: Sequence[float]) -> int:
    """How often something happened; what begins together on two cores is one."""
    inorder = sorted(begins)
    return sum(at == 0 or begin - inorder[at - 1] > LONG for at, begin in enumerate(inorder))


def lateness(seen: Lateness, stops: Sequence[Stop], bound: float | None, began: float) -> list[Finding]:
    """How late tokens were, what of it was the machine's, and when it was.

    Args:
        seen: what the streams saw; late tokens that were not kept are taken for the gate's.
        stops: when the machine stood still.
        bound: seconds that no token may be late by; None does not judge it.
        began: when the load did, on the wall clock.
    """
    parts = episodes(seen.late, stops)
    judged = max([seen.latest, *(part.own for part in parts)])
    if seen.more:
        judged = max(judged, min(seen.late)[0])
    above = sum(part.above for part in parts) + seen.more
    stood = [stop for stop in stops if stop[2] > LONG]
    sets = _times([begin for begin, end, took in stops if abs(end - begin - took) > LONG])
    longest = max((took for _, _, took in stood), default=0.0)
    worst = sorted(parts, key=lambda part: (part.own, part.worst))[-_SHOWN:]
    return [
        at_most(
            "the latest of them, without the times in which the machine stood still",
            1000 * judged,
            None if bound is None else bound * 1000,
            "ms",
        ),
        Finding(
            "of them later than 100 ms, without these times, and with them", f"{above}, {len(seen.late) + seen.more}"
        ),
        Finding(
            "times that the machine stood still for more than 50 ms, and the longest",
            f"{_times([stop[0] for stop in stood])}, {1000 * longest:.0f} ms",
        ),
        Finding("times that the wall clock was set by more than 50 ms", str(sets)),
        *(
            Finding(
                "told",
                f"tokens late at {part.at - began:.1f} s: {part.tokens}, the worst {1000 * part.worst:.0f} ms; "
                f"without the machine's stops {part.above}, the worst {1000 * part.own:.0f} ms",
            )
            for part in sorted(worst, key=lambda part: part.at)
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
