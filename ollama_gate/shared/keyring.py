"""The keys in the database: read as a whole when one has changed, and changed one transaction after the other."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, func, select, text

from ollama_gate.access.keyfile import decode, encode
from ollama_gate.access.keys import KeyRing
from ollama_gate.archive.database import Database
from ollama_gate.archive.schema import key

Stamp = tuple[int, int]
"""What changes when a key does: how many there are, and the revision of the last change."""

_LOCK: Final = 0x6F6C6C616D61676B
"""Of PostgreSQL's advisory locks the one of who changes keys: "ollamagk"."""


def stamp(connection: Connection) -> Stamp:
    """How far the keys have changed."""
    count, revision = connection.execute(select(func.count(), func.max(key.c.revision)).select_from(key)).one()
    return count, revision or 0


def rows(connection: Connection) -> Sequence[bytes]:
    """Every key as it is stored, the one that was changed last at the end."""
    return connection.scalars(select(key.c.data).order_by(key.c.revision, key.c.id)).all()


def ring_of(stored: Iterable[bytes]) -> KeyRing:
    """The ring of what `rows` gives.

    Raises:
        BadKeyFile: one of them is no key of this version.
    """
    return KeyRing(tuple(one for data in stored for one in decode(data).keys))


def change(connection: Connection, database: Database, work: Callable[[KeyRing], KeyRing]) -> KeyRing:
    """Replace the ring by what `work` makes of it, while nobody else does; in a transaction that writes.

    Args:
        connection: that of the transaction.
        database: what it is connected to.
        work: gives the ring as it shall be. What it raises leaves everything as it is. Keys that it leaves out stay:
            one is revoked, never taken away.

    Returns:
        The ring as it was.

    Raises:
        BadKeyFile: what is stored is not of this version.
    """
    if database.file is None:  # SQLite has one writer
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    before = ring_of(rows(connection))
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
