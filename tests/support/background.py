"""A gate in front of a rehearsal in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.cases import Front, front


@contextmanager
def front_in_a_thread(**sections: Any) -> Iterator[tuple[str, Front]]:
    """The gate's URL, and the gate; it runs until the block is left."""
    ready: list[tuple[str, Front]] = []
    up, loop = threading.Event(), asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with front(**sections) as line:
            host, port = line.gate.address
            ready.append((f"http://{host}:{port}", line))
            up.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="gate")
    thread.start()
    try:
        if not up.wait(30):
            raise TimeoutError("the gate did not start")
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(30)
        loop.close()
