"""What runs of gates have booked, in the database (`access.bookings` says how it is told and heard)."""

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import Connection, and_, delete, or_, select

from ollama_gate.access.bookings import SPANS, Cell, Entry, Telling
from ollama_gate.archive.database import Database
from ollama_gate.archive.schema import SECOND, run, usage

Stored = tuple[str, str, int, str, int, int]
"""Run, quota, slot, key's id, amount and version."""

_GONE: Final = 2 * 86400.0
"""Seconds after which a run that wrote nothing is over: nothing of it counts any more."""
_RUNS: Final = 100
"""Runs that are asked for in one statement."""
_ROWS: Final = 50
"""Rows that are written in one: PostgreSQL's driver works on the event loop."""


def write(connection: Connection, database: Database, telling: Telling, now: float) -> None:
    """Write what a run tells. What it wrote later stays, also when an earlier attempt arrives after it."""
    statement = database.insert(usage)
    newer = statement.on_conflict_do_update(
        index_elements=[usage.c.run, usage.c.quota, usage.c.slot, usage.c.key_id],
        set_={"amount": statement.excluded.amount, "version": statement.excluded.version},
        where=usage.c.version < statement.excluded.version,
    )
    rows = [
        {
            "run": entry.run,
            "quota": entry.cell.quota,
            "slot": entry.cell.slot,
            "key_id": entry.cell.key,
            "amount": entry.amount,
            "version": entry.version,
        }
        for entry in telling.entries
    ]
    for start in range(0, len(rows), _ROWS):
        connection.execute(newer, rows[start : start + _ROWS])
    into_run = database.insert(run)
    connection.execute(
        into_run.on_conflict_do_update(
            index_elements=[run.c.run],
            set_={"version": into_run.excluded.version, "told_at": into_run.excluded.told_at},
            where=run.c.version < into_run.excluded.version,
        ),
        {"run": telling.run, "version": telling.version, "told_at": int(now * SECOND)},
    )


def versions(connection: Connection, mine: str) -> dict[str, int]:
    """What each run but mine wrote last."""
    return {row.run: row.version for row in connection.execute(select(run.c.run, run.c.version)) if row.run != mine}


def rows(connection: Connection, since: Mapping[str, int]) -> list[Stored]:
    """What these runs wrote after a version of each."""
    found: list[Stored] = []
    asked = list(since.items())
    for start in range(0, len(asked), _RUNS):
        some = asked[start : start + _RUNS]
        of_each = (and_(usage.c.run == name, usage.c.version > version) for name, version in some)
        query = select(usage.c.run, usage.c.quota, usage.c.slot, usage.c.key_id, usage.c.amount, usage.c.version)
        found += map(tuple, connection.execute(query.where(or_(*of_each))))
    return found


def entries(stored: Iterable[Stored]) -> list[Entry]:
    """What `rows` gives. What is of no quota of this version is left out."""
    return [
        Entry(name, Cell(quota, slot, key_id), amount, version)
        for name, quota, slot, key_id, amount, version in stored
        if quota in SPANS
    ]


def forget(connection: Connection, now: float) -> None:
    """Take away what counts no longer, whoever wrote it."""
    for quota, span in SPANS.items():
        connection.execute(delete(usage).where(usage.c.quota == quota, usage.c.slot < span.oldest(now)))
    connection.execute(delete(run).where(run.c.told_at < int((now - _GONE) * SECOND)))
