"""SQLite's file, and how failures of a database become ours."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import Connection, Engine, event, func, select

from ollama_gate.archive.database import Database
from ollama_gate.archive.retention import purge_conversation
from ollama_gate.archive.schema import message
from ollama_gate.compaction.originals import ArchiveFailed, Checkpoint
from ollama_gate.config.archive import SQLITE
from support.archives import opened, said, store_in, talk

ROW = {"hash": bytes(32), "role": "user", "stored_at": 1, "size": 1, "stored": 1, "data": b"x"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "archive.db"


async def test_only_its_owner_reads_the_file_from_the_first_moment(file: Path, open_umask: None) -> None:
    modes: set[int] = set()

    @event.listens_for(Engine, "connect")
    def connected(*_: object) -> None:
        modes.update(mode(path) for path in file.parent.iterdir())

    try:
        async with opened(f"{SQLITE}{file}") as database:
            assert mode(file.parent) == 0o700
            await store_in(database).keep("talk", "m", talk(3))
            beside = {path.name: mode(path) for path in file.parent.iterdir()}
    finally:
        event.remove(Engine, "connect", connected)
    assert modes == {0o600}
    assert beside == {"archive.db": 0o600, "archive.db-wal": 0o600, "archive.db-shm": 0o600}


async def test_a_file_that_others_could_read_is_closed_to_them(file: Path) -> None:
    file.parent.mkdir()
    file.touch(0o666)
    file.chmod(0o666)
    async with opened(f"{SQLITE}{file}"):
        assert mode(file) == 0o600


async def test_what_is_committed_is_synced(file: Path) -> None:
    async with opened(f"{SQLITE}{file}") as database, database.reading() as connection:
        pragmas = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "auto_vacuum")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "auto_vacuum": 2}


async def test_what_is_purged_is_in_no_file_any_more(file: Path) -> None:
    secret = os.urandom(40_000).hex()
    async with opened(f"{SQLITE}{file}") as database:
        await database.shrink()
        empty = file.stat().st_size
        store = store_in(database)
        await store.keep("talk", "m", said(secret))
        [row] = await store.find(said(secret)[0].hash)
        assert secret.encode() in row.body
        async with database.reading() as connection:
            data = (await connection.execute(select(message.c.data))).scalar_one()
        assert data[200:300] in b"".join(path.read_bytes() for path in file.parent.iterdir())
        await purge_conversation(database, "talk")
        await database.shrink()
        held = b"".join(path.read_bytes() for path in file.parent.iterdir())
        assert data[200:300] not in held
        assert file.stat().st_size <= empty + len(data) / 4


async def test_a_transaction_that_fails_changes_nothing(database: Database) -> None:
    await store_in(database).keep("talk", "m", talk(2))

    async def half() -> None:
        async with database.writing() as connection:
            await connection.execute(message.update().values(role="changed"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await half()
    async with database.reading() as connection:
        assert set((await connection.scalars(select(message.c.role))).all()) == {"user", "assistant"}


async def test_a_full_disk_is_told_and_passes(file: Path) -> None:
    async with opened(f"{SQLITE}{file}") as database:
        store = store_in(database)
        await store.keep("talk", "m", talk(3))
        full = True

        assert database.threads is not None

        @event.listens_for(database.threads.engine, "checkout")
        def limited(connection: sqlite3.Connection, *_: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA page_count")
            pages = cursor.fetchone()[0] if full else 1_000_000
            cursor.execute(f"PRAGMA max_page_count={pages}")
            cursor.close()

        with pytest.raises(ArchiveFailed, match="database or disk is full"):
            await store.keep("talk", "m", said(os.urandom(400_000).hex()))
        assert len([each async for each in store.messages()]) == 3
        full = False
        await store.keep("talk", "m", said(os.urandom(400_000).hex()))
        assert len([each async for each in store.messages()]) == 4


async def test_a_file_that_somebody_locks_is_waited_for_and_no_longer(file: Path) -> None:
    async with opened(f"{SQLITE}{file}") as ready, opened(f"{SQLITE}{file}", within=0.2) as database:
        store = store_in(database)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveFailed, match=r"did not answer in time|is locked: another process was writing"):
            await store.keep("talk", "m", talk(2))
        with pytest.raises(ArchiveFailed, match=r"is locked: another process was writing .* share PostgreSQL"):
            await database.at_once(lambda _: None, writes=True, within=30.0)
        assert (await store.stats()).messages == 0
        other.execute("ROLLBACK")
        other.close()
        await store_in(ready).keep("talk", "m", talk(2))
        assert (await store.stats()).messages == 2


async def test_what_a_compaction_waits_for_passes_few_times_between_threads(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time may wait long where the machine is busy, and a compaction has four seconds."""
    passed: list[str] = []
    async with opened(f"{SQLITE}{file}") as database:
        loop, store = asyncio.get_running_loop(), store_in(database)
        given = loop.run_in_executor
        told: Any = aiosqlite.Connection._execute

        def give(executor: Any, work: Any, *arguments: Any) -> Any:
            passed.append("thread")
            return given(executor, work, *arguments)

        async def tell(self: aiosqlite.Connection, work: Any, *arguments: Any, **named: Any) -> Any:
            passed.append("driver")
            return await told(self, work, *arguments, **named)

        monkeypatch.setattr(loop, "run_in_executor", give)
        monkeypatch.setattr(aiosqlite.Connection, "_execute", tell)
        await store.keep("talk", "m", talk(1200))
        assert passed == ["thread"] * 3, "looked up, packed, written"
        passed.clear()
        checkpoint = Checkpoint(("0" * 32,), 1, b"{}", "1" * 32)
        await store.keep_checkpoint("talk", "m", checkpoint)
        assert await store.latest_checkpoint("talk", "m") == checkpoint
        assert passed == ["thread"] * 2


async def test_whoever_gives_up_leaves_nothing_behind(file: Path) -> None:
    begun, may = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        connection.execute(message.insert(), ROW)
        begun.set()
        assert may.wait(20)

    async with opened(f"{SQLITE}{file}") as database:
        writing = asyncio.create_task(database.at_once(slow, writes=True))
        await asyncio.to_thread(begun.wait, 20)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        may.set()
    async with opened(f"{SQLITE}{file}") as database:
        assert (await store_in(database).stats()).messages == 0
        await database.at_once(lambda connection: connection.execute(message.insert(), ROW), writes=True)
        assert (await store_in(database).stats()).messages == 1


async def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    await store_in(database).keep("talk", "m", talk(2))
    async with database.writing() as writing:
        await writing.execute(message.delete().where(message.c.size < 0))
        async with database.reading() as reading:
            assert await reading.scalar(select(func.count()).select_from(message)) == 2


async def test_many_writers_of_one_process_take_turns(database: Database) -> None:
    store = store_in(database)
    await asyncio.gather(*(store.keep(f"talk {number}", "m", talk(8, start=number * 4)) for number in range(12)))
    assert (await store.stats()).messages == 52
    assert (await store.stats()).conversations == 12


async def test_nothing_is_written_into_a_file_that_was_deleted(file: Path) -> None:
    async with opened(f"{SQLITE}{file}") as database:
        store = store_in(database)
        await store.keep("talk", "m", talk(2))
        file.unlink()
        with pytest.raises(ArchiveFailed, match="is gone"):
            await store.keep("talk", "m", talk(4))
        file.write_bytes(b"")
        with pytest.raises(ArchiveFailed, match="was replaced"):
            await store.stats()


@pytest.mark.parametrize("obstacle", ["a file", "not a database"])
async def test_a_place_that_cannot_be_is_told(tmp_path: Path, obstacle: str) -> None:
    if obstacle == "a file":
        (tmp_path / "state").write_text("in the way")
        place, says = tmp_path / "state" / "archive.db", r"cannot be opened: (Not a directory|File exists)"
    else:
        place, says = tmp_path / "archive.db", "not a database"
        place.write_bytes(b"something else\n" * 500)
    with pytest.raises(ArchiveFailed, match=says):
        async with opened(f"{SQLITE}{place}"):
            pass


async def test_what_failed_holds_no_text_of_a_message(database: Database) -> None:
    async def twice() -> None:
        async with database.writing() as connection:
            row = {"hash": b"k" * 32, "role": "user", "stored_at": 1, "size": 1, "stored": 1, "data": b"secret words"}
            await connection.execute(message.insert(), [row, row])

    with pytest.raises(ArchiveFailed) as failed:
        await twice()
    chain: BaseException | None = failed.value
    while chain is not None:
        assert "secret words" not in str(chain)
        chain = chain.__cause__
