import asyncio
import os

import pytest
from sqlalchemy import func, select

from ollama_gate.archive import retention
from ollama_gate.archive.database import Database
from ollama_gate.archive.records import Purged
from ollama_gate.archive.schema import checkpoint, conversation, message, occurrence
from ollama_gate.archive.store import Store
from ollama_gate.compaction.originals import Checkpoint
from support.archives import Clock, opened, said, store_in, talk

CHECKPOINT = Checkpoint(("a" * 32,), 1, b"{}", "c" * 32)


async def rows(database: Database) -> tuple[int, ...]:
    async with database.reading() as connection:
        counts = [
            await connection.scalar(select(func.count()).select_from(table))
            for table in (conversation, message, occurrence, checkpoint)
        ]
    return tuple(count or 0 for count in counts)


async def names(database: Database) -> set[str]:
    async with database.reading() as connection:
        return set((await connection.scalars(select(conversation.c.name))).all())


async def test_a_conversation_goes_when_it_was_not_compacted_for_long(
    store: Store, database: Database, clock: Clock
) -> None:
    await store.keep("old", "m", talk(4))
    await store.keep_checkpoint("old", "m", CHECKPOINT)
    clock.now += 1000
    await store.keep("new", "m", talk(4, start=2))
    purged = await retention.purge_older(database, clock.now - 500)
    assert (purged.conversations, purged.messages) == (1, 2)
    assert await names(database) == {"new"}
    assert await rows(database) == (1, 4, 4, 0)
    assert await retention.purge_older(database, clock.now - 500) == Purged()


async def test_a_conversation_that_goes_on_stays_whole(store: Store, database: Database, clock: Clock) -> None:
    originals = talk(8)
    await store.keep("talk", "m", originals[:4])
    clock.now += 1000
    await store.keep("talk", "m", originals)
    assert await retention.purge_older(database, clock.now - 500) == Purged()
    assert (await store.stats()).messages == 8


async def test_the_oldest_go_until_the_rest_is_small_enough_and_no_more(
    store: Store, database: Database, clock: Clock
) -> None:
    for number in range(25):
        await store.keep(f"talk {number:02}", "m", talk(3, start=number * 3))
        clock.now += 1
    each = await retention.stored_bytes(database) / 25
    purged = await retention.purge_larger(database, int(each * 4.5))
    assert await names(database) == {f"talk {number}" for number in (21, 22, 23, 24)}
    assert (purged.conversations, purged.messages) == (21, 63)
    assert await retention.stored_bytes(database) <= each * 4.5
    assert await retention.purge_larger(database, int(each * 4.5)) == Purged()


async def test_messages_that_are_shared_count_once_and_stay(store: Store, database: Database, clock: Clock) -> None:
    shared = said("0123456789" * 5000, role="system")
    for number in range(12):
        await store.keep(f"talk {number}", "m", [*shared, *talk(1, start=number)])
        clock.now += 1
    before = await retention.stored_bytes(database)
    await retention.purge_larger(database, before - 10)
    assert await names(database) == {f"talk {number}" for number in range(1, 12)}
    assert [found.hash for found in await store.find(shared[0].hash)] == [shared[0].hash]


async def test_nothing_is_left_when_nothing_may_be(store: Store, database: Database) -> None:
    await store.keep("talk", "m", talk(3))
    await store.keep_checkpoint("talk", "m", CHECKPOINT)
    await retention.purge_larger(database, 0)
    assert await rows(database) == (0, 0, 0, 0)


async def test_one_conversation_can_be_taken_away(store: Store, database: Database) -> None:
    await store.keep("one", "m", talk(3))
    await store.keep("two", "m", talk(5))
    assert (await retention.purge_conversation(database, "one")).messages == 0
    assert (await retention.purge_conversation(database, "nobody")).conversations == 0
    assert (await retention.purge_conversation(database, "two")).messages == 5
    assert await rows(database) == (0, 0, 0, 0)


async def test_progress_is_told(store: Store, database: Database, clock: Clock) -> None:
    for number in range(23):
        await store.keep(f"talk {number}", "m", talk(1, start=number))
    told: list[int] = []
    await retention.purge_older(database, clock.now + 1, lambda purged: told.append(purged.conversations))
    assert told == [10, 20, 23]


@pytest.mark.slow
async def test_keeping_and_purging_at_once_loses_nothing_that_is_held(url: str) -> None:
    """All have the same messages, so what a purge takes away is what another gate may just have counted on."""
    clock = Clock()
    originals = talk(12)
    async with opened(url) as one, opened(url) as two:
        keeping, purging = store_in(one, clock), store_in(two, clock)

        async def keep(number: int) -> None:
            await keeping.keep(f"talk {number}", "m", originals)

        async def purge() -> None:
            await retention.purge_older(purging.database, clock.now + 1)

        for number in range(15):
            await asyncio.gather(keep(number), purge(), keep(number + 100), purge())
        await keeping.keep("last", "m", originals)
        kept = [each.hash async for each in keeping.messages("last")]
        assert kept == [original.hash for original in originals]
        await purge()
        assert await rows(one) == (0, 0, 0, 0)


async def test_room_is_given_back_to_the_disk(store: Store, database: Database) -> None:
    await store.keep("talk", "m", said(*(os.urandom(5000).hex() for _ in range(60))))
    file = database.file
    await database.shrink()
    before = file.stat().st_size if file else 1_000_000
    await retention.purge_larger(database, 0)
    await database.shrink()
    assert (file.stat().st_size if file else 0) < before / 4
