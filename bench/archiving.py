"""What the archive costs: messages of a compaction and of a turn kept, looked up, searched; how long the loop is held.

python -m bench.archiving [--url URL]     prints one JSON object; seconds, medians of several rounds
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import click
import uvloop

from bench.counting import Heartbeat
from ollama_gate.archive.database import Database
from ollama_gate.archive.migrating import migrate
from ollama_gate.archive.query import Query
from ollama_gate.archive.records import Filter
from ollama_gate.archive.search import search
from ollama_gate.archive.store import Store
from ollama_gate.compaction.originals import Original, original_of
from ollama_gate.config.archive import archive_url

_MESSAGES: Final = 122
_WORDS: Final = 600
_ROUNDS: Final = 20
_MANY: Final = 100
"""Conversations that are there before anything is measured."""


def conversation(number: int, messages: int = _MESSAGES) -> list[Original]:
    """Some 74,000 tokens that no other conversation has."""
    rng = random.Random(number)
    words = [f"{rng.choice('bcdfgklmnprst')}{rng.choice('aeiou')}{rng.choice('lmnrst')}{at}" for at in range(2000)]
    return [
        original_of({"role": ("user", "assistant")[at % 2], "content": " ".join(rng.choices(words, k=_WORDS))})
        for at in range(messages)
    ]


async def timed(work: Callable[[int], Awaitable[object]], rounds: int = _ROUNDS) -> float:
    """The median time of something that is done again and again."""
    taken = []
    for number in range(rounds):
        began = perf_counter()
        await work(number)
        taken.append(perf_counter() - began)
    return median(taken)


async def measure(url: str) -> dict[str, Any]:
    """Everything, in one database."""
    database = Database(url, within=60.0)
    await migrate(database)
    store = Store(database, time.time)
    for number in range(_MANY):
        await store.keep(f"there {number}", "m", conversation(number))
    fresh = [conversation(1000 + number, _MESSAGES + 2) for number in range(_ROUNDS)]
    known = fresh[0][:_MESSAGES]
    everywhere, nowhere = Filter(), Query.parse("nowhere")
    async with Heartbeat() as idle:
        await asyncio.sleep(0.5)
    async with Heartbeat() as heart:
        new = await timed(lambda number: store.keep(f"new {number}", "m", fresh[number][:_MESSAGES]))
        turn = await timed(lambda number: store.keep(f"new {number}", "m", fresh[number][_MESSAGES:]))
        again = await timed(lambda _: store.keep("new 0", "m", known))
        checkpoint = await timed(lambda _: store.latest_checkpoint("new 0", "m"))
        found = await timed(lambda number: store.find(fresh[number][7].hash[:12]))
        one = await timed(lambda _: search(database, nowhere, Filter(conversation="new 0")))
    async with Heartbeat() as searching:
        whole = await timed(lambda _: search(database, nowhere, everywhere), rounds=3)
    stats = await store.stats()
    await database.close()
    return {
        "messages": stats.messages,
        "bytes": stats.bytes,
        "stored bytes": stats.stored_bytes,
        f"keep {_MESSAGES} new messages": new,
        "keep the 2 of a turn": turn,
        f"keep {_MESSAGES} known messages": again,
        "latest checkpoint": checkpoint,
        "find by hash": found,
        "search one conversation": one,
        "search everything": whole,
        "loop gap": heart.longest,
        "loop gap, searching": searching.longest,
        "loop gap idle": idle.longest,
    }


@click.command()
@click.option("--url", help="An empty database; a SQLite file in a temporary directory without.")
def main(url: str | None) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        address = archive_url(url) if url else archive_url(str(Path(directory) / "archive.db"))
        print(json.dumps(uvloop.run(measure(address)), indent=2))


if __name__ == "__main__":
    main()
