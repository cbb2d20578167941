"""The one place where background tasks are started."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, T], *, name: str, quiet: bool = False) -> asyncio.Task[T]:
    """Start `work` in the background, keep a reference until it ends, and log it if it fails.

    A bare `asyncio.create_task` may be collected while it runs, and its failure may never be seen.

    Args:
        work: the coroutine to run.
        name: what a log line calls it.
        quiet: do not log its failure, because whoever awaits it handles that.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended_quietly if quiet else _ended)
    return task


def _ended_quietly(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # marks it as seen


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (failure := task.exception()) is not None:
        structlog.get_logger("ollama_gate").error("background task failed", task=task.get_name(), exc_info=failure)
