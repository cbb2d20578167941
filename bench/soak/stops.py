"""When the machine itself stood still: a process that only looks at the clock, pinned to one core.

Virtual machines are stopped and moved by their hosts, and a token that is on its way meanwhile is late by no fault of
the gate's. A wall clock that is set makes tokens late, too, and is seen by comparing it with the time since the machine
was started. The process prints one JSON list when it is told to stop (SIGTERM).
"""

import json
import signal
import time
from collections.abc import Callable
from typing import Final

import click

Stop = tuple[float, float, float]
"""From and to on the wall clock, and how long it was by the clock that nobody sets (CLOCK_BOOTTIME); in seconds."""
_EVERY: Final = 0.005
LONG: Final = 0.05
"""Seconds between two looks that are no matter of who got the core first: whoever sleeps so much is served at once."""
_MOST: Final = 100_000


def watch(
    running: Callable[[], bool], clocks: Callable[[], tuple[float, float]], sleep: Callable[[float], None]
) -> list[Stop]:
    """Look at both clocks for as long as `running` says; the times between two looks that were long on one of them."""
    found: list[Stop] = []
    before = clocks()
    while running():
        sleep(_EVERY)
        now = clocks()
        took = now[1] - before[1]
        if max(took, abs(now[0] - before[0])) > LONG and len(found) < _MOST:
            found.append((before[0], now[0], took))
        before = now
    return found


def _clocks() -> tuple[float, float]:
    return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


@click.command()
def main() -> None:
    """Watch, and print what was found."""
    going = True

    def stop(*_: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    click.echo(json.dumps(watch(lambda: going, _clocks, time.sleep)))


if __name__ == "__main__":
    main()
