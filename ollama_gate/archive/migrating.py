"""Bringing the tables to what this version of the gate needs, whoever else does so at the same time."""

import asyncio
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from ollama_gate.archive.database import Database
from ollama_gate.archive.schema import REVISION, VERSION_TABLE
from ollama_gate.compaction.originals import ArchiveFailed

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_WITHIN: Final = 120.0
_LOCK: Final = 0x6F6C6C616D616761
"""Of PostgreSQL's advisory locks the one that migrations take: "ollamaga"."""


class NotMigrated(ArchiveFailed):
    """The tables are not those of this version, and this gate may not or cannot change that."""


async def revision(database: Database) -> str | None:
    """The migration that the tables are at; None where there are none.

    Raises:
        ArchiveFailed: the database cannot be asked.
    """
    async with database.reading() as connection:
        return await _revision(connection)


async def require(database: Database) -> None:
    """Raise unless the tables are those of this version.

    Raises:
        NotMigrated: they are not; the message says what to do.
        ArchiveFailed: the database cannot be asked.
    """
    found = await revision(database)
    if found != REVISION:
        raise NotMigrated(_what_to_do(database, found))


async def require_known(database: Database) -> None:
    """Raise if the tables are of a newer version; there may be none yet.

    Raises:
        NotMigrated: they are of a newer one.
        ArchiveFailed: the database cannot be asked.
    """
    found = await revision(database)
    if found is not None and found != REVISION and found not in await asyncio.to_thread(_known):
        raise NotMigrated(_what_to_do(database, found))


async def ready(database: Database, *, migrates: bool) -> bool:
    """See to it that the tables are there and of this version.

    Args:
        database: where they are.
        migrates: whether they may be made and altered.

    Returns:
        Whether they were.

    Raises:
        NotMigrated: they are of another version, and may not be or cannot be altered.
        ArchiveFailed: the database cannot be reached, or its role may not.
    """
    if migrates:
        return await migrate(database)
    await database.prepare()
    await require(database)
    return False


async def migrate(database: Database) -> bool:
    """Bring the tables to this version, in one transaction that others wait for.

    Returns:
        Whether there was anything to do.

    Raises:
        NotMigrated: the tables were made by a newer version.
        ArchiveFailed: the database cannot be reached, or its role may not.
    """
    await database.prepare()
    if await revision(database) == REVISION:
        return False  # without loading Alembic
    async with database.writing(_WITHIN) as connection:
        if database.file is None:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = await _revision(connection)  # again, now that nobody else migrates
        if found == REVISION:
            return False
        known = await asyncio.to_thread(_known)
        if found is not None and found not in known:
            raise NotMigrated(_what_to_do(database, found))
        await connection.run_sync(_upgrade)
    return True


async def _revision(connection: AsyncConnection) -> str | None:
    def ask(plain: Connection) -> str | None:
        if not plain.dialect.has_table(plain, VERSION_TABLE):
            return None
        found = plain.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608  a constant
        return None if found is None else str(found)

    return await connection.run_sync(ask)


def _known() -> frozenset[str]:
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - loaded only where there is something to do

    return frozenset(script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - as above
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _what_to_do(database: Database, found: str | None) -> str:
    if found is None:
        return f"{database.shown} has no tables yet: run `ollama-gate archive migrate` with a role that may make them"
    if found > REVISION:
        return (
            f"{database.shown} was written by a newer version of ollama-gate (its tables are at {found}, this version "
            f"knows {REVISION}): run that version, or name another database in archive.url"
        )
    return (
        f"{database.shown} is of an older version (its tables are at {found}, this version needs {REVISION}): "
        "run `ollama-gate archive migrate`"
    )
