"""Background tasks: kept until they end, and never failing unseen."""

import asyncio
import gc
import io
import weakref

import pytest

from ollama_gate import tasks
from ollama_gate.tasks import spawn


async def _fails() -> None:
    raise ValueError("why")


async def test_a_failure_is_logged_by_name(written_log: io.StringIO) -> None:
    task = spawn(_fails(), name="the work")
    await asyncio.wait([task])
    assert '"task":"the work"' in written_log.getvalue()
    assert '"level":"error"' in written_log.getvalue()


async def test_a_quiet_one_leaves_its_failure_to_whoever_waits(written_log: io.StringIO) -> None:
    task = spawn(_fails(), name="the work", quiet=True)
    await asyncio.wait([task])
    assert written_log.getvalue() == ""
    assert isinstance(task.exception(), ValueError)


async def test_a_cancelled_one_is_no_failure(written_log: io.StringIO) -> None:
    for quiet in (True, False):
        task = spawn(asyncio.Event().wait(), name="the work", quiet=quiet)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert written_log.getvalue() == ""


@pytest.mark.slow
async def test_nobody_has_to_hold_it() -> None:
    done = asyncio.Event()
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    held = weakref.ref(spawn(work(), name="the work"))
    gc.collect()
    assert held() is not None
    go.set()
    await asyncio.wait_for(done.wait(), 1)
    await asyncio.sleep(0)
    assert not [task for task in tasks._running if task.get_name() == "the work"]
