"""The shared keys without a gate: what a command does with them."""

import asyncio
from collections.abc import Callable

from sqlalchemy import Connection

from ollama_gate.access.keys import KeyRing
from ollama_gate.archive import migrating
from ollama_gate.archive.database import Database
from ollama_gate.archive.offline import opened
from ollama_gate.config import archive
from ollama_gate.shared import keyring


def read(section: archive.Archive) -> KeyRing:
    """The keys.

    Raises:
        NotMigrated: its tables are not of this version.
        ArchiveFailed: it cannot be read.
    """

    async def work(database: Database) -> KeyRing:
        await migrating.ready(database, migrates=section.migrate)
        return keyring.found(await database.at_once(keyring.rows)).ring

    return asyncio.run(opened(section.place(), work))


def change(section: archive.Archive, make: Callable[[KeyRing], KeyRing]) -> KeyRing:
    """Replace the ring by what `make` makes of it; returns the ring as it was.

    Raises:
        NotMigrated: the database's tables are not of this version.
        ArchiveFailed: it cannot be written.
    """

    async def work(database: Database) -> KeyRing:
        await migrating.ready(database, migrates=section.migrate)

        def replaced(connection: Connection) -> KeyRing:
            return keyring.change(connection, database, make)

        return await database.at_once(replaced, writes=True)

    return asyncio.run(opened(section.place(), work))
