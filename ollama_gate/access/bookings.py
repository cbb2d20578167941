"""What gates tell one another of what keys have used, so that each counts the sum. Pure: nothing is sent here.

A gate writes down its own bookings only, and of each cell the whole amount, never the difference. So what is written
twice, or late, or not known to be written changes nothing, and can be written again. What it hears of another run it
holds against what it heard of that before, and the difference is what it books as the other's. A run numbers what it
writes, so that others ask for what is new only. A gate that is started again is another run, and hears of the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

MINUTE: Final = 60.0
DAY: Final = 86400.0
_LATE: Final = 120.0
"""Seconds for which a cell is kept when it counts no longer: clocks of gates differ."""


@dataclass(frozen=True, slots=True)
class Span:
    """How a quota's time is cut."""

    seconds: float
    """What was spent counts for so long."""
    slot: float
    """Seconds that are booked together."""

    def number(self, now: float) -> int:
        """The slot of a time."""
        return int(now // self.slot)

    def oldest(self, now: float) -> int:
        """The oldest slot that is still worth keeping."""
        return self.number(now - self.seconds - _LATE)


_A_MINUTE: Final = Span(MINUTE, 1.0)
_A_DAY: Final = Span(DAY, 600.0)
SPANS: Final[Mapping[str, Span]] = MappingProxyType(
    {
        "requests_per_minute": _A_MINUTE,
        "requests_per_day": _A_DAY,
        "tokens_per_minute": _A_MINUTE,
        "tokens_per_day": _A_DAY,
    }
)
"""Every quota that goes by time, by its name in `keys.Limits`: what gates share."""


class Cell(NamedTuple):
    """What is counted by itself: a key's use of a quota in one slot of time."""

    quota: str
    slot: int
    key: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The whole amount that one run booked in a cell, as of the version of what it wrote."""

    run: str
    cell: Cell
    amount: int
    version: int


@dataclass(frozen=True, slots=True)
class Telling:
    """What a run writes in one go."""

    run: str
    version: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """What another run booked since it was heard of last; negative where a booking was put right."""

    cell: Cell
    difference: int


def newer(versions: Mapping[str, int], heard_of: Mapping[str, int]) -> dict[str, int]:
    """The runs that have written since they were heard of, and what was heard last of each.

    Args:
        versions: of all runs that there are, what each wrote last.
        heard_of: `Bookings.heard_of`.
    """
    return {run: heard_of.get(run, 0) for run, version in versions.items() if version > heard_of.get(run, 0)}


class Bookings:
    """One run's own bookings, and what it knows of those of others. It is asked and told on one event loop."""

    def __init__(self, run: str) -> None:
        """Begin with nothing booked and nothing heard.

        Args:
            run: a name that no other run ever has.
        """
        self.run = run
        self._own: dict[tuple[str, int], dict[str, int]] = {}
        self._unsent: dict[tuple[str, int], set[str]] = {}
        self._others: dict[tuple[str, int], dict[tuple[str, str], int]] = {}
        """Amounts by run and key: whole slots are forgotten at one time."""
        self._versions: dict[str, int] = {}
        self._version = 0

    def add(self, quota: str, slot: int, key: str, amount: int) -> None:
        """Book an amount."""
        place = quota, slot
        own = self._own.get(place)
        if own is None:
            own = self._own[place] = {}
            self._unsent.setdefault(place, set())
        own[key] = own.get(key, 0) + amount
        self._unsent[place].add(key)

    def amend(self, quota: str, slot: int, key: str, difference: int) -> None:
        """Put right what was booked, as long as it is worth keeping."""
        if key in self._own.get((quota, slot), ()):
            self.add(quota, slot, key, difference)

    def telling(self) -> Telling | None:
        """What others have not been told yet; None where that is nothing. It is told again until `told` is called."""
        entries: list[Entry] = []
        version = self._version + 1
        for place, keys in self._unsent.items():
            own = self._own[place]
            entries += [Entry(self.run, Cell(*place, key), own[key], version) for key in sorted(keys)]
        if not entries:
            return None
        self._version = version
        return Telling(self.run, version, tuple(entries))

    def told(self, telling: Telling) -> None:
        """It was written. What was booked meanwhile is still to be told."""
        for entry in telling.entries:
            cell = entry.cell
            if self._own.get(cell[:2], {}).get(cell.key) == entry.amount:
                self._unsent[cell[:2]].discard(cell.key)

    @property
    def heard_of(self) -> Mapping[str, int]:
        """What was heard last of each other run."""
        return dict(self._versions)

    def hear(self, entries: Iterable[Entry]) -> tuple[Heard, ...]:
        """What is new in what was read of others; some of it may be known, or be this run's own."""
        heard: list[Heard] = []
        for entry in entries:
            if entry.run == self.run:
                continue
            of_slot = self._others.setdefault(entry.cell[:2], {})
            whose = entry.run, entry.cell.key
            difference = entry.amount - of_slot.get(whose, 0)
            of_slot[whose] = entry.amount
            if difference:
                heard.append(Heard(entry.cell, difference))
        return tuple(heard)

    def heard(self, versions: Mapping[str, int]) -> None:
        """All was heard that was there. Runs that there are no more are not asked for again.

        Args:
            versions: of all runs that there are, the last thing that each is known to have written when it was read.
        """
        self._versions = {run: max(version, self._versions.get(run, 0)) for run, version in versions.items()}

    def forget(self, now: float) -> None:
        """Forget what counts no longer, told or not."""
        oldest = {quota: span.oldest(now) for quota, span in SPANS.items()}
        for places in (self._own, self._unsent, self._others):
            for place in [place for place in places if place[1] < oldest[place[0]]]:
                del places[place]
