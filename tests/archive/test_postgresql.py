"""What is true of PostgreSQL alone. Every other test of the archive runs on it too, where there is one."""

from pathlib import Path

import pytest

from ollama_gate.archive.database import Database
from ollama_gate.compaction.originals import ArchiveFailed
from support.archives import POSTGRESQL, database_url, needs_postgresql, opened


@needs_postgresql
async def test_it_is_there() -> None:
    database = Database(POSTGRESQL)
    async with database.reading() as connection:
        assert connection.dialect.name == "postgresql"
    await database.close()


async def test_what_is_shown_of_an_address_holds_no_password() -> None:
    database = Database("postgresql://gate:s3cr%40t@db.example:5432/gate?sslmode=require&password=s3cret")
    assert database.shown == "postgresql://db.example:5432/gate"
    await database.close()


async def test_nobody_listening_is_told_without_the_password(unused_tcp_port: int) -> None:
    database = Database(f"postgresql://gate:s3cret@127.0.0.1:{unused_tcp_port}/gate")
    with pytest.raises(ArchiveFailed, match="Connect call failed") as failed:
        async with database.reading():
            pass
    await database.close()
    assert "s3cret" not in str(failed.value)


async def test_an_address_that_makes_no_sense_is_told_without_the_password() -> None:
    database = Database("postgresql://gate:s3cret@127.0.0.1:port/gate")
    with pytest.raises(ArchiveFailed) as failed:
        async with database.reading():
            pass
    await database.close()
    assert "s3cret" not in str(failed.value)


@needs_postgresql
async def test_another_database_of_the_operators_own_is_left_alone(tmp_path: Path) -> None:
    async with database_url("postgresql", tmp_path) as url:
        plain = Database(url)
        async with plain.writing() as connection:
            await connection.exec_driver_sql("CREATE TABLE message (id integer)")
            await connection.exec_driver_sql("CREATE TABLE alembic_version (version_num text)")
            await connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('theirs')")
        async with opened(url), plain.reading() as connection:
            theirs = await connection.exec_driver_sql("SELECT version_num FROM alembic_version")
            assert theirs.scalar() == "theirs"
        await plain.close()
