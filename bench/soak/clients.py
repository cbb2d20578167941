"""The clients of a soak: each does one thing after another, and what must not happen is written down."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from bench.soak.steps import END_MARKS, Leave, Step, next_step

_MOST_TOLD: Final = 20
_PATIENCE: Final = 120.0
"""Seconds after which an answer that has not come is a failure."""


@dataclass(slots=True)
class Tally:
    """What came of it all."""

    done: Counter[str] = field(default_factory=Counter)
    """Steps by name."""
    statuses: Counter[int] = field(default_factory=Counter)
    compactions: int = 0
    failures: list[str] = field(default_factory=list)
    """The first of those below, in words."""
    unexpected: int = 0
    """Answers with a status that the step does not allow."""
    errors: int = 0
    """Answers that were cut, or streams without their end."""

    def wrong_status(self, step: Step, status: int, body: bytes) -> None:
        """Note an answer that should not be."""
        self.unexpected += 1
        self._tell(f"{step.name}: status {status}: {body[:300]!r}")

    def broken(self, step: Step, why: str) -> None:
        """Note an answer that did not come to its end."""
        self.errors += 1
        self._tell(f"{step.name}: {why}")

    def _tell(self, what: str) -> None:
        if len(self.failures) < _MOST_TOLD:
            self.failures.append(what)


async def client(port: int, number: int, pause: float, session: aiohttp.ClientSession, tally: Tally) -> None:
    """One client, for ever: it thinks for up to twice `pause` seconds and does something."""
    rng = random.Random(number)
    while True:
        await asyncio.sleep(rng.uniform(0, 2 * pause))
        await take(next_step(rng), port, session, tally, rng)


async def take(step: Step, port: int, session: aiohttp.ClientSession, tally: Tally, rng: random.Random) -> None:
    """Take one step."""
    try:
        if step.leave is Leave.IN_THE_BODY:
            await _half_a_body(step, port)
        elif step.leave is Leave.EARLY:
            try:
                async with asyncio.timeout(rng.uniform(0.0, 0.08)):
                    await _ask(step, port, session, tally)
            except TimeoutError:
                pass
        else:
            async with asyncio.timeout(_PATIENCE):
                await _ask(step, port, session, tally)
    except TimeoutError:
        tally.broken(step, f"no answer within {_PATIENCE:g} seconds")
    except (aiohttp.ClientError, OSError) as failure:
        tally.broken(step, repr(failure))
    tally.done[step.name] += 1


async def _ask(step: Step, port: int, session: aiohttp.ClientSession, tally: Tally) -> None:
    url = f"http://127.0.0.1:{port}{step.path}"
    headers = {"Content-Type": "application/json"}
    async with session.request(step.method, url, data=step.body or None, headers=headers) as answer:
        tally.statuses[answer.status] += 1
        if step.leave is Leave.IN_THE_STREAM and answer.status == 200:
            await answer.content.readany()
            answer.close()
            return
        body = await answer.read()
        if answer.status not in step.statuses:
            tally.wrong_status(step, answer.status, body)
        elif step.stream and not any(mark in body for mark in END_MARKS):
            tally.broken(step, f"a stream without its end: {body[-300:]!r}")
        tally.compactions += answer.headers.get("x-ollama-gate-verdict") == "compact"


async def _half_a_body(step: Step, port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{step.method} {step.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(step.body)}\r\n\r\n"
    writer.write(head.encode() + step.body[: len(step.body) // 2])
    await writer.drain()
    await asyncio.sleep(0.01)
    writer.close()
    await writer.wait_closed()
