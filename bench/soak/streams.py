"""Slow streams in a process of their own: how late each token is, by the time that Ollama wrote into its line.

The process prints one JSON line when it is told to stop (SIGTERM).
"""

import asyncio
import heapq
import json
import signal
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Final

import aiohttp
import click
import uvloop

_STAMP: Final = b'"created_at":"'
LATE: Final = 0.1
"""Seconds from which on a token is late."""
_MOST: Final = 100_000
"""Late tokens whose times are kept: the latest."""


@dataclass(slots=True)
class Lateness:
    """How late tokens were, by all streams together."""

    tokens: int = 0
    latest: float = 0.0
    """Seconds that the latest of those in time took."""
    late: list[tuple[float, float]] = field(default_factory=list)
    """Of each late token by how much it was late, and when it was written (wall clock), in seconds; a heap."""
    more: int = 0
    """Late tokens beside these: none of them was later."""
    broken: int = 0
    """Streams that did not come to their end."""

    def see(self, line: bytes, now: float) -> None:
        """Take the time out of one line."""
        at = line.find(_STAMP)
        if at < 0:
            return
        begin = at + len(_STAMP)
        text = line[begin : line.find(b'"', begin)].decode()
        whole, _, fraction = text.rstrip("Z").partition(".")
        # Python reads six digits of Ollama's nine.
        written = datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
        self.tokens += 1
        took = now - written
        if took <= LATE:
            self.latest = max(self.latest, took)
        elif len(self.late) < _MOST:
            heapq.heappush(self.late, (took, written))
        else:
            heapq.heappushpop(self.late, (took, written))
            self.more += 1


async def one(port: int, body: bytes, session: aiohttp.ClientSession, seen: Lateness) -> None:
    """One stream after the other, for ever."""
    url = f"http://127.0.0.1:{port}/api/chat"
    while True:
        done = False
        try:
            async with session.post(url, data=body) as answer:
                async for line in answer.content:
                    seen.see(line, time.time())
                    done = done or b'"done":true' in line
        except (aiohttp.ClientError, OSError):
            done = False
            await asyncio.sleep(1.0)
        seen.broken += not done


async def run(port: int, count: int, model: str) -> Lateness:
    """So many streams at once, begun over the time of one of them, until SIGTERM."""
    seen, stop = Lateness(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Speak slowly."}]}).encode()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        running = []
        for _ in range(count):
            running.append(group.create_task(one(port, body, session, seen)))
            await asyncio.sleep(5.0 / count)
        seen.latest, seen.tokens, seen.more = 0.0, 0, 0  # the beginning of everything is not what is measured
        seen.late.clear()
        await stop.wait()
        for task in running:
            task.cancel()
    return seen


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--count", type=int, required=True)
@click.option("--model", required=True)
def main(port: int, count: int, model: str) -> None:
    """Measure, and print what was found."""
    click.echo(json.dumps(asdict(uvloop.run(run(port, count, model)))))


if __name__ == "__main__":
    main()
