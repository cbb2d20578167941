"""The interpreter's own pauses kept short: everybody's tokens wait for them.

Python looks for unreachable cycles among all objects whenever enough new ones have lived a while. In a gate that is at
work this takes from 50 to 150 ms at a time that nobody chose, mostly while a large body is being decoded. And a thread
that computes keeps the interpreter for 5 ms each time that the event loop gives it away, which uvloop does between any
two callbacks: a thread that renders for 50 ms leaves the loop ten callbacks.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Final

SWITCH: Final = 0.0005
"""Seconds for which a thread keeps the interpreter while another one waits for it."""
_YOUNG: Final = (700, 10)
"""New objects, and looks among new ones, until Python looks among the new, and among those that survived that."""
_NEVER: Final = 1 << 30
_LOOK_EVERY: Final = 10.0
_DUE: Final = 30
"""Looks among the young until one among all is due: after 200 000 objects that were not freed at once."""
_OVERDUE: Final = 10 * _DUE


def shorten() -> None:
    """Leave what is there now out of every look for cycles, and let nobody but `tidy` look among all that comes."""
    sys.setswitchinterval(SWITCH)
    gc.freeze()
    gc.set_threshold(*_YOUNG, _NEVER)


async def tidy(busy: Callable[[], bool], *, every: float = _LOOK_EVERY) -> None:
    """Look for cycles among all objects now and then, for ever, at a moment when no large body is in hand.

    Args:
        busy: whether one is. Where there always is, it is done all the same, ten times as seldom.
        every: seconds between two times that it is considered.
    """
    while True:
        await asyncio.sleep(every)
        passed = gc.get_count()[2]
        if passed >= (_OVERDUE if busy() else _DUE):
            gc.collect()
