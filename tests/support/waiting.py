"""Waiting for something to become true, where no event tells of it."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, within: float = 5.0) -> None:
    """Look again and again, letting everything else run in between; the test fails when it never becomes true."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.002)
