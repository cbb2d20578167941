"""The archive without a gate: what a command does with the database itself."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import BinaryIO, Final, TypeVar

import orjson

from ollama_gate.archive import migrating, retention
from ollama_gate.archive.database import Database
from ollama_gate.archive.query import MOST_LIMIT, Query
from ollama_gate.archive.records import Filter, Found, Match, Purged
from ollama_gate.archive.search import search
from ollama_gate.archive.store import Store
from ollama_gate.compaction.originals import ArchiveFailed
from ollama_gate.config.archive import sqlite_file

T = TypeVar("T")
Advance = Callable[[int], None]
"""Told how many have been done so far."""
_WITHIN: Final = 60.0
_FOREVER: Final = 366 * 86400.0


class NoArchive(Exception):
    """There is no file where the archive is said to be."""


def visit(address: str, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do something with an archive that exists and whose tables are of this version.

    Raises:
        NoArchive: there is no such file.
        NotMigrated: its tables are not of this version.
        ArchiveFailed: it cannot be read.
    """

    async def checked(database: Database) -> T:
        if database.file is not None and not database.file.exists():
            raise NoArchive(str(database.file))
        await migrating.require(database)
        return await work(Store(database, time.time))

    return asyncio.run(opened(address, checked))


def migrate(address: str) -> tuple[str, bool]:
    """Bring the tables to this version; returns which archive that is, and whether there was anything to do.

    Raises:
        NotMigrated: the tables were made by a newer version.
        ArchiveFailed: the database cannot be reached, or its role may not.
    """

    async def work(database: Database) -> tuple[str, bool]:
        return database.shown, await migrating.migrate(database)

    return asyncio.run(opened(address, work))


def problem(address: str, *, migrates: bool) -> str:
    """Why a gate could not use an archive; empty when it could, or when that cannot be told from here.

    Args:
        address: the archive's.
        migrates: whether the gate may make and alter the tables.
    """

    async def ask(database: Database) -> None:
        if migrates:
            await migrating.require_known(database)
        else:
            await migrating.require(database)

    file = sqlite_file(address)
    if file is not None and not os.access(file, os.R_OK | os.W_OK):
        return ""  # made when the gate starts, or the service's own
    try:
        asyncio.run(opened(address, ask))
    except ArchiveFailed as failure:
        return str(failure)
    return ""


async def opened(address: str, work: Callable[[Database], Awaitable[T]]) -> T:
    """What `work` returns, with time enough for it; the database is closed afterwards."""
    database = Database(address, within=_WITHIN)
    try:
        return await work(database)
    finally:
        await database.close()


async def search_on(store: Store, query: Query, only: Filter, limit: int, advance: Advance) -> Found:
    """Search, and go on where a search stopped at its bound, until there are `limit` matches or nothing is left."""
    matches: list[Match] = []
    searched = 0
    after: str | None = None
    while True:
        some = min(limit - len(matches), MOST_LIMIT)
        found = await search(store.database, query, only, limit=some, after=after)
        matches += found.matches
        searched += found.searched
        after = found.next
        advance(searched)
        if after is None or len(matches) >= limit:
            return Found(tuple(matches), searched, after)


async def export(
    store: Store, file: BinaryIO, *, conversation: str | None, since: float | None, advance: Advance
) -> int:
    """Write messages as one JSON object a line.

    Args:
        store: where they are.
        file: what they are written to.
        conversation: only messages of this one, in its order; None for all, in no order that means anything.
        since: only messages that were first kept at this time or later, in seconds since 1970.
        advance: told the number of messages written.

    Returns:
        How many were written.
    """
    count = 0
    async for message in store.messages(conversation, since):
        file.write(orjson.dumps(message.told(), option=orjson.OPT_APPEND_NEWLINE))
        count += 1
        advance(count)
    return count


async def purge(
    store: Store,
    advance: Advance,
    *,
    conversation: str | None = None,
    age: float | None = None,
    size: int | None = None,
    everything: bool = False,
) -> Purged:
    """Take conversations away, by any of the arguments, and give their room back to the disk.

    Args:
        store: where it is.
        advance: told the number of conversations that went.
        conversation: one, by its name.
        age: those that were not compacted for so many seconds.
        size: the oldest, until what is left takes so many bytes.
        everything: all of them.
    """
    database, total = store.database, Purged()

    def report(purged: Purged) -> None:
        advance(total.conversations + purged.conversations)

    if conversation is not None:
        total += await retention.purge_conversation(database, conversation)
    if everything:
        age = -_FOREVER
    if age is not None:
        total += await retention.purge_older(database, time.time() - age, report)
    if size is not None:
        total += await retention.purge_larger(database, size, report)
    if total.conversations:
        await database.shrink()
    return total
