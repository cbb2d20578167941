"""What is written and looked up: messages by hash, and the last checkpoint of each conversation."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, func, select

from ollama_gate.archive.database import Database, batches, despite_collisions
from ollama_gate.archive.packing import pack, unpack, unpack_as
from ollama_gate.archive.records import Message, Stats, Tally
from ollama_gate.archive.schema import (
    HASH_BYTES,
    LONGEST_ROLE,
    SECOND,
    checkpoint,
    conversation,
    message,
    occurrence,
    storable,
)
from ollama_gate.compaction.originals import Checkpoint, Original

_CHECKPOINT_WITHIN: Final = 1.0
"""Seconds to read or write a checkpoint, without which compaction goes on."""
_PAGE: Final = 50
"""Messages that are read in one transaction."""
_HOLDERS: Final = 50
"""The most conversations that are named for a message."""


class Store:
    """Messages and checkpoints in a database whose tables are there."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        """Keep where to write to, and who knows the time (seconds since 1970)."""
        self.database = database
        self._now = now

    async def keep(self, name: str, model: str, originals: Sequence[Original]) -> Tally:
        """Keep messages of a conversation, all of them or none. Those that are new to it come after those that it has.

        Raises:
            ArchiveFailed: none were kept.
        """
        places: dict[bytes, tuple[int, Original]] = {}
        for position, original in enumerate(originals):
            places.setdefault(bytes.fromhex(original.hash), (position, original))
        # Where a message was purged just now, what seemed to be there has to be stored again.
        return await despite_collisions(lambda: self._keep(name, model, places))

    async def _keep(self, name: str, model: str, places: Mapping[bytes, tuple[int, Original]]) -> Tally:
        known = await self.database.at_once(lambda connection: _present(connection, places))
        now = self._stamp()
        fresh = {key: place for key, place in places.items() if key not in known}
        packed = await asyncio.to_thread(_packed, fresh, now)

        def write(connection: Connection) -> None:
            holder = self._conversation(connection, name, model, now)
            mine = {row.hash: row.position for row in connection.execute(_held_by(holder))}
            after = max(mine.values(), default=-1) + 1
            into_message = self.database.insert(message).on_conflict_do_nothing()
            for rows in batches(packed):
                connection.execute(into_message, rows)
            missing = [
                {"conversation_id": holder, "hash": key, "position": after + position}
                for key, (position, _) in sorted(places.items())
                if key not in mine
            ]
            into_occurrence = self.database.insert(occurrence).on_conflict_do_nothing()
            for rows in batches(missing):
                connection.execute(into_occurrence, rows)

        await self.database.at_once(write, writes=True)
        return Tally(len(packed), len(places) - len(packed), sum(row["stored"] for row in packed))

    def _conversation(self, connection: Connection, name: str, model: str, now: int) -> int:
        """The conversation's row, which nobody else can change or purge until the transaction ends."""
        fresh = {"model": storable(model), "kept_at": now}
        statement = self.database.insert(conversation).values(name=storable(name), **fresh)
        statement = statement.on_conflict_do_update(index_elements=[conversation.c.name], set_=fresh)
        return int(connection.execute(statement.returning(conversation.c.id)).scalar_one())

    async def find(self, prefix: str) -> list[Message]:
        """The messages whose hash begins with a prefix; two at most, for two already mean that it is too short.

        Args:
            prefix: lower-case hex digits, 64 at most.

        Raises:
            ArchiveFailed: it cannot be looked up, or what is stored is damaged.
        """
        low, high = (bytes.fromhex(prefix.ljust(2 * HASH_BYTES, digit)) for digit in "0f")
        query = select(message.c.hash, message.c.role, message.c.stored_at, message.c.data)
        near = query.where(message.c.hash.between(low, high)).limit(2)
        return await asyncio.to_thread(_messages, *await self.database.at_once(partial(_read, near)))

    async def messages(self, name: str | None = None, since: float | None = None) -> AsyncIterator[Message]:
        """All messages, those of one conversation in its order, else in that of their hashes.

        Each page is read by itself, so that no transaction stays open while somebody writes them down.

        Raises:
            ArchiveFailed: they cannot be read.
        """
        query = select(message.c.hash, message.c.role, message.c.stored_at, message.c.data)
        if name is not None:
            query = query.add_columns(occurrence.c.position).join(occurrence, occurrence.c.hash == message.c.hash)
            query = query.join(conversation).where(conversation.c.name == storable(name))
            query = query.order_by(occurrence.c.position, message.c.hash)
        else:
            query = query.order_by(message.c.hash)
        if since is not None:
            query = query.where(message.c.stored_at >= int(since * SECOND))
        last: RowMapping | None = None
        while True:
            page = query
            if last is not None and name is not None:
                after = occurrence.c.position == last["position"]
                page = query.where(
                    (occurrence.c.position > last["position"]) | (after & (message.c.hash > last["hash"]))
                )
            elif last is not None:
                page = query.where(message.c.hash > last["hash"])
            rows, holders = await self.database.at_once(partial(_read, page.limit(_PAGE)))
            for each in await asyncio.to_thread(_messages, rows, holders):
                yield each
            if len(rows) < _PAGE:
                return
            last = rows[-1]

    async def stats(self) -> Stats:
        """What there is, in numbers.

        Raises:
            ArchiveFailed: it cannot be asked.
        """
        async with self.database.reading(30.0) as connection:
            kept = select(
                func.count(),
                func.coalesce(func.sum(message.c.size), 0),
                func.coalesce(func.sum(message.c.stored), 0),
                func.min(message.c.stored_at),
                func.max(message.c.stored_at),
            )
            count, size, stored, oldest, newest = (await connection.execute(kept)).one()
            made = select(func.count(), func.coalesce(func.sum(checkpoint.c.stored), 0))
            checkpoints, more = (await connection.execute(made)).one()
            holders = await connection.scalar(select(func.count()).select_from(conversation))
        return Stats(
            count,
            holders or 0,
            checkpoints,
            int(size),
            int(stored) + int(more),
            None if oldest is None else oldest / SECOND,
            None if newest is None else newest / SECOND,
        )

    async def latest_checkpoint(self, name: str, model: str) -> Checkpoint | None:
        """The last checkpoint of a conversation with a model.

        Raises:
            ArchiveFailed: it cannot be looked up.
            ValueError: what was found is none.
        """
        query = select(checkpoint.c.data).join(conversation).where(conversation.c.name == storable(name))
        query = query.where(checkpoint.c.model == storable(model))
        data = await self.database.at_once(lambda connection: connection.scalar(query), within=_CHECKPOINT_WITHIN)
        return None if data is None else Checkpoint.unpack(unpack(data))

    async def keep_checkpoint(self, name: str, model: str, made: Checkpoint) -> int:
        """Keep a checkpoint in place of the last one; returns the bytes that it takes.

        Raises:
            ArchiveFailed: it was not kept.
        """
        data, now = pack(made.pack()), self._stamp()
        fresh = {"made_at": now, "stored": len(data), "data": data}

        def write(connection: Connection) -> None:
            holder = self._conversation(connection, name, model, now)
            statement = self.database.insert(checkpoint)
            statement = statement.values(conversation_id=holder, model=storable(model), **fresh)
            keys = [checkpoint.c.conversation_id, checkpoint.c.model]
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=fresh))

        await self.database.at_once(write, writes=True, within=_CHECKPOINT_WITHIN)
        return len(data)

    def _stamp(self) -> int:
        return int(self._now() * SECOND)


def _held_by(holder: int) -> Select[Any]:
    return select(occurrence.c.hash, occurrence.c.position).where(occurrence.c.conversation_id == holder)


def _packed(fresh: Mapping[bytes, tuple[int, Original]], now: int) -> list[dict[str, Any]]:
    """Rows of new messages.

    They are in the order of their hashes: two gates that store the same ones then wait for each other, and never both.
    Times of one conversation's messages are a microsecond apart, so that they keep its order.
    """
    rows: list[dict[str, Any]] = []
    for key, (position, original) in sorted(fresh.items()):
        data = pack(original.body)
        row = {"hash": key, "role": storable(original.role, LONGEST_ROLE), "stored_at": now + position}
        rows.append({**row, "size": len(original.body), "stored": len(data), "data": data})
    return rows


def _messages(rows: Sequence[RowMapping], holders: Mapping[bytes, tuple[str, ...]]) -> list[Message]:
    return [
        Message(
            row["hash"].hex(),
            row["role"],
            row["stored_at"] / SECOND,
            unpack_as(row["hash"], row["data"]),
            holders[row["hash"]],
        )
        for row in rows
    ]


def _present(connection: Connection, keys: Iterable[bytes]) -> set[bytes]:
    """Which of these are stored."""
    found: set[bytes] = set()
    for some in batches(list(keys)):
        found.update(connection.scalars(select(message.c.hash).where(message.c.hash.in_(some))).all())
    return found


def _read(query: Select[Any], connection: Connection) -> tuple[Sequence[RowMapping], dict[bytes, tuple[str, ...]]]:
    """The rows of messages that a query finds, and who holds them."""
    rows = connection.execute(query).mappings().all()
    return rows, _holders(connection, [row["hash"] for row in rows])


def _holders(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, tuple[str, ...]]:
    """Which conversations hold these messages, the one compacted last first."""
    age = func.row_number().over(partition_by=occurrence.c.hash, order_by=conversation.c.kept_at.desc())
    ranked = select(occurrence.c.hash, conversation.c.name, age.label("age")).join(conversation)
    aged = ranked.where(occurrence.c.hash.in_(keys)).subquery()
    youngest = select(aged.c.hash, aged.c.name).where(aged.c.age <= _HOLDERS).order_by(aged.c.hash, aged.c.age)
    names: dict[bytes, list[str]] = {}
    for key, name in connection.execute(youngest):
        names.setdefault(key, []).append(name)
    return {key: tuple(names.get(key, ())) for key in keys}
