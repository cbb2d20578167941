"""The one place where background tasks are started."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
    """Start `work` in the background, keep a reference until it ends, and log it if it fails.

    A bare `asyncio.create_task` may be collected while it runs, and its failure may never be seen.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (failure := task.exception()) is not None:
        structlog.get_logger("ollama_gate").error("background task failed", task=task.get_name(), exc_info=failure)
