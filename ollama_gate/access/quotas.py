"""Quotas: how much a key has used within the last minute and day. Pure arithmetic; time is passed in.

A window slides: what was spent counts until a whole minute (or day) has passed since. So no minute and no day, wherever
one begins to measure, holds more than the limit. The one exception is a single prompt that is longer than its whole
token quota: it passes when nothing else was spent, for it would never pass otherwise.

What is spent is kept in memory. Where gates share their keys, each also writes its bookings down for the others
(`bookings`) and counts what it hears of theirs; what runs in `parallel` is its own affair.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ollama_gate.access.bookings import SPANS, Bookings, Heard
from ollama_gate.access.keys import UNLIMITED, Key
from ollama_gate.errors import Refusal, Refused

_BUSY: Final = 2
"""Seconds after which one of a key's own requests may be over; nobody knows."""


class Window:
    """What was spent within the last `seconds`, kept in slots, each of which counts until all of it is too old."""

    __slots__ = ("_slot", "_spent", "seconds", "total")

    def __init__(self, seconds: float, slot: float) -> None:
        """Begin with nothing spent."""
        self.seconds = seconds
        self._slot = slot
        self._spent: deque[list[int]] = deque()
        """[slot's number, amount], oldest first."""
        self.total = 0

    def used(self, now: float) -> int:
        """The amount that counts at this time."""
        spent, gone = self._spent, now - self.seconds
        while spent and (spent[0][0] + 1) * self._slot <= gone:
            self.total -= spent.popleft()[1]
        if spent and spent[-1][0] * self._slot > now:
            self._turn_back(int(now // self._slot))
        return self.total

    def wait(self, limit: int, amount: int, now: float) -> float:
        """Seconds until `amount` more fits below the limit; 0 when it fits now."""
        total = self.used(now)
        if total <= 0 or total + amount <= limit:
            return 0.0
        left = total
        for number, spent in self._spent:
            left -= spent
            if left <= 0 or left + amount <= limit:
                return max((number + 1) * self._slot + self.seconds - now, 0.0)
        return self.seconds

    def spend(self, amount: int, now: float) -> None:
        """Add an amount at this time."""
        number = int(now // self._slot)
        if self._spent and self._spent[-1][0] >= number:
            self._spent[-1][1] += amount
        else:
            self._spent.append([number, amount])
        self.total += amount

    def hear(self, amount: int, number: int, now: float) -> None:
        """Add what was spent elsewhere in the slot of this number, if it still counts; positive or negative."""
        number = min(number, int(now // self._slot))  # a clock that is ahead
        if (number + 1) * self._slot <= now - self.seconds:
            return
        spent = self._spent
        place = len(spent)
        while place and spent[place - 1][0] > number:
            place -= 1
        if place and spent[place - 1][0] == number:
            spent[place - 1][1] += amount
        else:
            spent.insert(place, [number, amount])
        self.total += amount

    def _turn_back(self, number: int) -> None:
        """The clock was put back: what was spent at a time that has not come counts as spent now."""
        spent, ahead = self._spent, 0
        while spent and spent[-1][0] >= number:
            ahead += spent.pop()[1]
        spent.append([number, ahead])

    def amend(self, amount: int, then: float) -> None:
        """Change what was spent at an earlier time by an amount, positive or negative, if it still counts."""
        number = int(then // self._slot)
        for entry in reversed(self._spent):
            if entry[0] <= number:
                if entry[0] == number:
                    entry[1] += amount
                    self.total += amount
                return


def _window(quota: str) -> Window:
    span = SPANS[quota]
    return Window(span.seconds, span.slot)


@dataclass(slots=True)
class Usage:
    """What one key has used so far, whether or not it has limits."""

    requests_minute: Window = field(default_factory=partial(_window, "requests_per_minute"))
    requests_day: Window = field(default_factory=partial(_window, "requests_per_day"))
    tokens_minute: Window = field(default_factory=partial(_window, "tokens_per_minute"))
    tokens_day: Window = field(default_factory=partial(_window, "tokens_per_day"))
    running: int = 0


_WINDOWS: Final = {
    "requests_per_minute": "requests_minute",
    "requests_per_day": "requests_day",
    "tokens_per_minute": "tokens_minute",
    "tokens_per_day": "tokens_day",
}
"""Where the use of a shared quota is kept in `Usage`."""


class Quotas:
    """The usage of every key, by id. It outlives a reload of the keys."""

    def __init__(self, bookings: Bookings | None = None) -> None:
        """Begin with nothing used.

        Args:
            bookings: what other gates are told and heard of; then all times are seconds since 1970.
        """
        self._used: dict[str, Usage] = {}
        self._bookings = bookings

    def of(self, key: Key) -> Usage:
        """What this key has used."""
        return self._usage(key.id)

    def hear(self, heard: Iterable[Heard], now: float) -> None:
        """Count what other gates have booked."""
        for one in heard:
            cell = one.cell
            window: Window = getattr(self._usage(cell.key), _WINDOWS[cell.quota])
            window.hear(one.difference, cell.slot, now)

    def _usage(self, key_id: str) -> Usage:
        found = self._used.get(key_id)
        if found is None:
            found = self._used[key_id] = Usage()
        return found

    def _spend(self, window: Window, quota: str, key: Key, amount: int, now: float) -> None:
        window.spend(amount, now)
        if self._bookings is not None:
            self._bookings.add(quota, SPANS[quota].number(now), key.id, amount)

    def begin(self, key: Key, now: float) -> Usage:
        """Let an inference request of this key begin.

        Raises:
            Refused: 429, with the time after which it may.
        """
        usage, limits = self.of(key), key.limits
        if limits is UNLIMITED:
            usage.running += 1
            return usage
        if limits.parallel is not None and usage.running >= limits.parallel:
            raise _over(key, f"run {limits.parallel} requests at one time", "parallel", limits.parallel, _BUSY)
        minute, day = limits.requests_per_minute, limits.requests_per_day
        if minute is not None and (wait := usage.requests_minute.wait(minute, 1, now)):
            raise _over(key, f"send {minute} requests per minute", "requests_per_minute", minute, wait)
        if day is not None and (wait := usage.requests_day.wait(day, 1, now)):
            raise _over(key, f"send {day} requests per day", "requests_per_day", day, wait)
        if minute is not None:
            self._spend(usage.requests_minute, "requests_per_minute", key, 1, now)
        if day is not None:
            self._spend(usage.requests_day, "requests_per_day", key, 1, now)
        usage.running += 1
        return usage

    def fits(self, key: Key, tokens: int, now: float) -> bool:
        """Whether so many prompt tokens could be booked now."""
        minute, day = key.limits.tokens_per_minute, key.limits.tokens_per_day
        if minute is day is None:
            return True
        usage = self.of(key)
        return not (
            (minute is not None and usage.tokens_minute.wait(minute, tokens, now))
            or (day is not None and usage.tokens_day.wait(day, tokens, now))
        )

    def book(self, key: Key, tokens: int, now: float) -> None:
        """Book the prompt tokens of a request that is about to be sent.

        Raises:
            Refused: 429, with the time after which there is room for so many.
        """
        minute, day = key.limits.tokens_per_minute, key.limits.tokens_per_day
        if minute is day is None:
            return
        usage = self.of(key)
        if minute is not None and (wait := usage.tokens_minute.wait(minute, tokens, now)):
            raise _over(key, f"send {minute} prompt tokens per minute", "tokens_per_minute", minute, wait)
        if day is not None and (wait := usage.tokens_day.wait(day, tokens, now)):
            raise _over(key, f"send {day} prompt tokens per day", "tokens_per_day", day, wait)
        if minute is not None:
            self._spend(usage.tokens_minute, "tokens_per_minute", key, tokens, now)
        if day is not None:
            self._spend(usage.tokens_day, "tokens_per_day", key, tokens, now)

    def correct(self, key: Key, difference: int, then: float) -> None:
        """Change what was booked at an earlier time by a difference, when the true number is known."""
        usage = self.of(key)
        usage.tokens_minute.amend(difference, then)
        usage.tokens_day.amend(difference, then)
        if self._bookings is not None:
            for quota in ("tokens_per_minute", "tokens_per_day"):
                self._bookings.amend(quota, SPANS[quota].number(then), key.id, difference)


def _over(key: Key, may: str, name: str, limit: int, wait: float) -> Refused:
    seconds = max(1, math.ceil(wait))
    return Refused(
        Refusal(
            429,
            "rate_limit_exceeded",
            f"Rate limit: the key {key.name!r} may {may}. Try again in {seconds} s.",
            type="rate_limit_error",
            details={"quota": name, "allowed": limit, "retry_after": seconds},
            headers={"Retry-After": str(seconds)},
        )
    )
