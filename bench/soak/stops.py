"""When the machine itself stood still: a process that only looks at the clock, pinned to one core.

Virtual machines are stopped and moved by their hosts, and a token that is on its way meanwhile is late by no fault of
the gate's. The process prints one JSON list when it is told to stop (SIGTERM): seconds of the wall clock, from and to.
"""

import json
import signal
import time
from collections.abc import Callable
from typing import Final

import click

Stop = tuple[float, float]
"""From and to, in seconds of the wall clock."""
_EVERY: Final = 0.005
LONG: Final = 0.05
"""Seconds between two looks that are no matter of who got the core first: whoever sleeps so much is served at once."""
_MOST: Final = 100_000


def watch(running: Callable[[], bool], clock: Callable[[], float], sleep: Callable[[float], None]) -> list[Stop]:
    """Look at the clock for as long as `running` says; the times between two looks that were long."""
    found: list[Stop] = []
    before = clock()
    while running():
        sleep(_EVERY)
        now = clock()
        if now - before > LONG and len(found) < _MOST:
            found.append((before, now))
        before = now
    return found


@click.command()
def main() -> None:
    """Watch, and print what was found."""
    going = True

    def stop(*_: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    click.echo(json.dumps(watch(lambda: going, time.time, time.sleep)))


if __name__ == "__main__":
    main()
