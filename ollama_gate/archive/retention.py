"""What goes when: conversations that were not compacted for long, and the oldest where there is too much."""

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import delete, exists, func, select

from ollama_gate.archive.database import Database, batches, despite_collisions
from ollama_gate.archive.records import Purged
from ollama_gate.archive.schema import SECOND, checkpoint, conversation, message, occurrence, storable

_BATCH: Final = 10
"""Conversations that go in one transaction: writers wait for it."""
_WITHIN: Final = 30.0


Report = Callable[[Purged], None]


def _quiet(_: Purged) -> None:
    """Report to nobody."""


async def purge_older(database: Database, before: float, report: Report = _quiet) -> Purged:
    """Take away the conversations that were last compacted before a time, and the messages that only they held.

    Args:
        database: where they are.
        before: seconds since 1970.
        report: told now and then what has gone so far.

    Raises:
        ArchiveFailed: not everything was taken away.
    """
    cutoff = int(before * SECOND)
    total = Purged()
    while True:
        async with database.reading() as connection:
            query = select(conversation.c.id).where(conversation.c.kept_at < cutoff)
            ids = (await connection.scalars(query.order_by(conversation.c.kept_at).limit(_BATCH))).all()
        if not ids:
            return total
        total += await _take(database, ids, cutoff - 1)
        report(total)


async def purge_larger(database: Database, most: int, report: Report = _quiet) -> Purged:
    """Take away the conversations that were compacted longest ago, until what is left takes `most` bytes at most.

    Raises:
        ArchiveFailed: not everything was taken away.
    """
    total = Purged()
    while (excess := await stored_bytes(database) - most) > 0:
        async with database.reading(_WITHIN) as connection:
            oldest = select(conversation.c.id, conversation.c.kept_at)
            oldest = oldest.order_by(conversation.c.kept_at, conversation.c.id).limit(_BATCH)
            rows = (await connection.execute(oldest)).all()
            ids: list[int] = []
            seen = freed = 0
            for row in rows:
                if freed >= excess:
                    break
                held = select(func.coalesce(func.sum(message.c.stored), 0)).join(occurrence)
                freed += int(await connection.scalar(held.where(occurrence.c.conversation_id == row.id)) or 0)
                ids.append(row.id)
                seen = row.kept_at
        if not ids:
            return total
        total += await _take(database, ids, seen)
        report(total)
    return total


async def purge_conversation(database: Database, name: str) -> Purged:
    """Take one conversation away, and the messages that only it held.

    Raises:
        ArchiveFailed: it was not taken away.
    """
    async with database.reading() as connection:
        query = select(conversation.c.id, conversation.c.kept_at).where(conversation.c.name == storable(name))
        row = (await connection.execute(query)).one_or_none()
    return Purged() if row is None else await _take(database, [row.id], row.kept_at)


async def stored_bytes(database: Database) -> int:
    """Bytes that messages and checkpoints take as they are stored, compressed.

    Raises:
        ArchiveFailed: it cannot be asked.
    """
    async with database.reading(_WITHIN) as connection:
        of_messages = await connection.scalar(select(func.coalesce(func.sum(message.c.stored), 0)))
        of_checkpoints = await connection.scalar(select(func.coalesce(func.sum(checkpoint.c.stored), 0)))
    return int(of_messages or 0) + int(of_checkpoints or 0)


async def _take(database: Database, ids: Sequence[int], seen: int) -> Purged:
    return await despite_collisions(lambda: _take_once(database, ids, seen))


async def _take_once(database: Database, ids: Sequence[int], seen: int) -> Purged:
    """Take conversations away that were not compacted again since they were seen, with what nobody else holds.

    Args:
        database: where they are.
        ids: of the conversations.
        seen: the latest `kept_at` among them when they were looked up, in microseconds since 1970.
    """
    async with database.writing(_WITHIN) as connection:
        still = conversation.c.id.in_(ids) & (conversation.c.kept_at <= seen)
        going = (await connection.scalars(select(conversation.c.id).where(still).with_for_update())).all()
        held = select(occurrence.c.hash).where(occurrence.c.conversation_id.in_(going)).distinct()
        hashes = (await connection.scalars(held.order_by(occurrence.c.hash))).all()
        cost = select(func.coalesce(func.sum(checkpoint.c.stored), 0)).where(checkpoint.c.conversation_id.in_(going))
        size = int(await connection.scalar(cost) or 0)
        await connection.execute(delete(conversation).where(conversation.c.id.in_(going)))
        gone = 0
        for some in batches(hashes):
            held_still = exists().where(occurrence.c.hash == message.c.hash)
            orphans = delete(message).where(message.c.hash.in_(some), ~held_still).returning(message.c.stored)
            taken = (await connection.scalars(orphans)).all()
            gone += len(taken)
            size += sum(taken)
    return Purged(len(going), gone, size)
