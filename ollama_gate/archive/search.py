"""Searching the archive: a walk from the newest message to the oldest that stops at a bound.

Message texts are stored compressed and in no index, so that they are in no other place; a search has to read them.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, Select, select, tuple_

from ollama_gate.archive.database import Database
from ollama_gate.archive.packing import unpack_as
from ollama_gate.archive.query import LIMIT, BadQuery, Query
from ollama_gate.archive.records import Filter, Found, Match
from ollama_gate.archive.schema import LONGEST_ROLE, SECOND, conversation, message, occurrence, storable

_MESSAGES: Final = 20_000
"""The most messages that one search reads."""
_BYTES: Final = 64 * 1024**2
"""The most bytes of messages, unpacked, that one search reads."""
_ROWS: Final = 200
"""Messages whose hashes and sizes are fetched at one time."""
_GROUP: Final = 4 * 1024**2
"""Bytes that are unpacked at one time, unless one message alone has more."""
_GROUP_ROWS: Final = 100
_CURSOR: Final = re.compile(r"(\d{1,18})-([0-9a-fA-F]{64})", re.ASCII)
_WITHIN: Final = 5.0
"""Seconds that one of a search's queries to the database may take."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a walk has come: what it saw last."""

    stored_at: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.stored_at}-{self.hash.hex()}"

    @classmethod
    def parse(cls, cursor: str) -> "_Place":
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise BadQuery("`after` takes what the answer before it gave as `next`", "after")
        return cls(int(found[1]), bytes.fromhex(found[2]))


async def search(
    database: Database, query: Query, only: Filter, *, limit: int = LIMIT, after: str | None = None
) -> Found:
    """Messages in which all terms of a query are, the newest first.

    It stops at `limit` matches, after 20,000 messages or after 64 MiB of text, whichever comes first, and `next` says
    where to go on.

    Raises:
        BadQuery: `after` is no place to go on from.
        ArchiveFailed: the archive cannot be read, or is damaged.
    """
    place = None if after is None else _Place.parse(after)
    matches: list[Match] = []
    searched = unpacked = 0
    while True:
        async with database.reading(_WITHIN) as connection:
            heads = list((await connection.execute(_heads(only, place).limit(_ROWS))).all())
        ended = len(heads) < _ROWS
        for group in _groups(heads):
            if searched and (searched >= _MESSAGES or unpacked + group[0].size > _BYTES):
                return Found(tuple(matches), searched, str(place))
            async with database.reading(_WITHIN) as connection:
                bodies = select(message.c.hash, message.c.data).where(message.c.hash.in_([row.hash for row in group]))
                packed = {row.hash: row.data for row in (await connection.execute(bodies)).all()}
            excerpts = await asyncio.to_thread(_excerpts, query, packed)
            for row in group:
                place = _Place(row.stored_at, row.hash)
                searched += 1
                unpacked += row.size
                if (excerpt := excerpts.get(row.hash)) is not None:
                    matches.append(Match(row.hash.hex(), row.role, row.stored_at / SECOND, row.size, excerpt))
                    if len(matches) >= limit:
                        return Found(tuple(matches), searched, str(place))
        if ended:
            return Found(tuple(matches), searched, None)


def _heads(only: Filter, place: _Place | None) -> Select[Any]:
    """Everything but the bodies of the messages that the filter lets through, from a place on, the newest first."""
    query = select(message.c.hash, message.c.role, message.c.stored_at, message.c.size)
    if only.conversation is not None:
        query = query.join(occurrence, occurrence.c.hash == message.c.hash).join(conversation)
        query = query.where(conversation.c.name == storable(only.conversation))
    if only.role is not None:
        query = query.where(message.c.role == storable(only.role, LONGEST_ROLE))
    if place is not None:
        query = query.where(tuple_(message.c.stored_at, message.c.hash) < tuple_(place.stored_at, place.hash))
    return query.order_by(message.c.stored_at.desc(), message.c.hash.desc())


def _groups(heads: list[Row[Any]]) -> list[list[Row[Any]]]:
    """Rows in groups whose bodies may be in memory together."""
    groups: list[list[Row[Any]]] = []
    room = 0
    for row in heads:
        if not groups or row.size > room or len(groups[-1]) >= _GROUP_ROWS:
            groups.append([])
            room = _GROUP
        groups[-1].append(row)
        room -= row.size
    return groups


def _excerpts(query: Query, packed: dict[bytes, bytes]) -> dict[bytes, str | None]:
    return {key: query.excerpt(unpack_as(key, data)) for key, data in packed.items()}
