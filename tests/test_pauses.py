"""Pauses of the interpreter: what is there at start is not looked through again, and the rest only now and then."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest

from ollama_gate import pauses
from ollama_gate.tasks import spawn


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Give the interpreter back as it was."""
    thresholds, switch = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(switch)
    gc.unfreeze()


class Passes:
    """What Python says of its passes, and how often all was looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.young = 0
        self.whole = 0
        monkeypatch.setattr(gc, "get_count", lambda: (0, 0, self.young))
        monkeypatch.setattr(gc, "collect", self._collect)

    def _collect(self) -> None:
        self.whole += 1
        self.young = 0


def test_what_is_there_is_left_alone_and_python_looks_among_the_young_only() -> None:
    pauses.shorten()
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[2] > 1_000_000
    assert sys.getswitchinterval() == pytest.approx(pauses.SWITCH)
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    kept = [[] for _ in range(300_000)]  # type: list[list[int]]
    assert gc.get_stats()[2]["collections"] == before
    assert kept


async def test_all_is_looked_at_when_enough_has_come_and_no_large_body_is_in_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes, busy = Passes(monkeypatch), True
    tidying = spawn(pauses.tidy(lambda: busy, every=0.0), name="look for cycles")
    await _rounds()
    assert passes.whole == 0  # nothing has come
    passes.young = 100
    await _rounds()
    assert passes.whole == 0  # somebody would wait for it
    busy = False
    await _rounds()
    assert (passes.whole, passes.young) == (1, 0)
    busy, passes.young = True, 5000
    await _rounds()
    assert passes.whole == 2  # there always is a large body: it cannot wait for ever
    tidying.cancel()


async def _rounds() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
