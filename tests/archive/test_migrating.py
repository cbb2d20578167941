import asyncio
import sys
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from ollama_gate.archive import migrating
from ollama_gate.archive.database import Database
from ollama_gate.archive.migrating import NotMigrated
from ollama_gate.archive.schema import REVISION, VERSION_TABLE, metadata
from ollama_gate.compaction.originals import ArchiveFailed
from support.archives import opened, store_in, talk


async def test_the_migrations_make_what_the_schema_says(database: Database) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": VERSION_TABLE})
        return list(compare_metadata(context, metadata))

    async with database.reading() as connection:
        assert await connection.run_sync(differences) == []
    assert await migrating.revision(database) == REVISION


async def test_each_migration_can_be_taken_back(database: Database) -> None:
    from alembic import command  # noqa: PLC0415 - only this test goes down
    from alembic.config import Config  # noqa: PLC0415

    def down(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(migrating.MIGRATIONS))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    async with database.writing() as connection:
        await connection.run_sync(down)
        names = await connection.run_sync(lambda plain: plain.dialect.get_table_names(plain))
    assert {name for name in names if name.startswith("gate_")} == {VERSION_TABLE}
    assert await migrating.migrate(database)
    await store_in(database).keep("talk", "m", talk(2))


async def test_the_newest_migration_is_the_one_that_the_gate_asks_for() -> None:
    assert max(migrating._known()) == REVISION


async def test_gates_that_start_at_once_make_the_tables_once(url: str) -> None:
    databases = [Database(url, within=30.0) for _ in range(4)]
    try:
        done = await asyncio.gather(*(migrating.migrate(database) for database in databases))
    finally:
        for database in databases:
            await database.close()
    assert sorted(done) == [False, False, False, True]


@pytest.mark.slow
async def test_processes_that_start_at_once_make_the_tables_once(url: str) -> None:
    command = (sys.executable, "-m", "ollama_gate", "archive", "migrate", "--url", url)
    processes = [
        await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        for _ in range(3)
    ]
    told = [(await process.communicate())[0].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], told
    assert sum("the tables were made" in each for each in told) == 1


async def test_what_a_newer_version_made_is_refused_in_plain_words(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for attempt in (migrating.migrate, migrating.require):
        with pytest.raises(NotMigrated, match="was written by a newer version of ollama-gate"):
            await attempt(database)
    assert await migrating.revision(database) == "9999"


async def test_tables_that_are_not_the_gates_to_make_are_asked_for(url: str) -> None:
    database = Database(url)
    await database.prepare()
    with pytest.raises(NotMigrated, match="run `ollama-gate archive migrate`"):
        await migrating.require(database)
    await database.close()
    async with opened(url) as ready:
        await migrating.require(ready)


async def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(url, within=20.0)
    upgrade = migrating._upgrade

    def broken(connection: Connection) -> None:
        upgrade(connection)
        raise OSError("the power went")

    monkeypatch.setattr(migrating, "_upgrade", broken)
    with pytest.raises(ArchiveFailed, match="the power went"):
        await migrating.migrate(database)
    assert await migrating.revision(database) is None
    monkeypatch.undo()
    assert await migrating.migrate(database)
    await database.close()
