"""The keys in the database: read as a whole when one has changed, and changed one transaction after the other."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select, text

from ollama_gate.access.keyfile import BadKeyFile, decode, encode
from ollama_gate.access.keys import Key, KeyRing
from ollama_gate.archive.database import Database
from ollama_gate.archive.schema import key

Stamp = tuple[int, int]
"""What changes when a key does: how many there are, and the revision of the last change."""

Row = tuple[str, bytes]
"""A key's id, and the key as `keyfile.encode` writes it."""

UNREADABLE: Final = "(cannot be read)"
"""What a key is called whose row is not one of this version."""
_SHOWN: Final = 16
_LONGEST_FAULT: Final = 120
_LOCK: Final = 0x6F6C6C616D61676B
"""Of PostgreSQL's advisory locks the one of who changes keys: "ollamagk"."""


@dataclass(frozen=True, slots=True)
class Found:
    """The keys that are stored."""

    ring: KeyRing
    faults: tuple[str, ...]
    """What is wrong with rows that are no keys, each by its id."""


def stamp(connection: Connection) -> Stamp:
    """How far the keys have changed."""
    count, revision = connection.execute(select(func.count(), func.max(key.c.revision)).select_from(key)).one()
    return count, revision or 0


def rows(connection: Connection) -> Sequence[Row]:
    """Every key as it is stored, the one that was changed last at the end."""
    query = select(key.c.id, key.c.data).order_by(key.c.revision, key.c.id)
    return [(key_id, data) for key_id, data in connection.execute(query)]


def found(stored: Iterable[Row]) -> Found:
    """What `rows` gives. A row that is no key of this version stands in the ring as one that opens nothing.

    So it shuts out whoever has that key and nobody else, and a ring of such rows alone is not one without keys.
    """
    keys: list[Key] = []
    faults: list[str] = []
    for key_id, data in stored:
        try:
            held = decode(data).keys
            fault = "" if [one.id for one in held] == [key_id] else "holds no key of its own id"
        except BadKeyFile as bad:
            held, fault = (), str(bad)
        if fault:
            faults.append(f"{key_id[:_SHOWN]!r} {fault}"[:_LONGEST_FAULT])
            held = (Key(id=key_id, name=UNREADABLE, digest=bytes(32), created=0.0, revoked=0.0),)
        keys += held
    return Found(KeyRing(tuple(keys)), tuple(faults))


def change(connection: Connection, database: Database, work: Callable[[KeyRing], KeyRing]) -> KeyRing:
    """Replace the ring by what `work` makes of it, while nobody else does; in a transaction that writes.

    Args:
        connection: that of the transaction.
        database: what it is connected to.
        work: gives the ring as it shall be. What it raises leaves everything as it is. Keys that it leaves out stay:
            one is revoked, never taken away.

    Returns:
        The ring as it was.
    """
    if database.file is None:  # SQLite has one writer
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    before = found(rows(connection)).ring
    known = frozenset(before.keys)
    changed = [one for one in work(before).keys if one not in known]
    if changed:
        statement = database.insert(key)
        fresh = {name: statement.excluded[name] for name in ("revision", "data")}
        connection.execute(
            statement.on_conflict_do_update(index_elements=[key.c.id], set_=fresh),
            [
                {"id": one.id, "revision": number, "data": encode(KeyRing((one,)))}
                for number, one in enumerate(changed, stamp(connection)[1] + 1)  # their order is kept
            ],
        )
    return before
