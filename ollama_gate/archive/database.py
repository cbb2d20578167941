"""One database, SQLite or PostgreSQL: how it is reached, and how its failures become `ArchiveFailed`.

SQLite is written with `synchronous=FULL` in WAL mode, so what was committed survives a killed process and a power cut
alike, with one writer at a time; what is deleted is overwritten (`secure_delete`). Its file is made with mode 0600
before SQLite opens it, and SQLite gives its -wal and -shm the mode of the file (`os_unix.c:findCreateFileMode`).

A driver that is awaited passes each statement of SQLite to another thread and back, several times. On a busy machine
each of them waits its turn; so what a compaction waits for is done in one thread from begin to commit (`at_once`).
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar

import aiosqlite
from sqlalchemy import URL, Connection, QueuePool, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from ollama_gate.compaction.originals import ArchiveFailed
from ollama_gate.config.archive import sqlite_file
from ollama_gate.files import private_directory

WITHIN: Final = 3.0
"""Seconds for one transaction, the wait for others included; a whole compaction has four."""
_CONNECT_WITHIN: Final = 2.0
_POOL: Final = 4
_PAGES: Final = 4096
"""Pages that are given back in one transaction, so that writers do not wait long for it."""
_PRAGMAS: Final = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "secure_delete=ON",
    "journal_size_limit=67108864",
)
_AGAIN: Final = frozenset({"23503", "40001", "40P01"})
"""PostgreSQL's codes for what comes of working beside another gate: a foreign key, serialization, a deadlock."""
_TRIES: Final = 5
_ROWS: Final = 500
"""Values in one statement; SQLite of old takes 999."""

T = TypeVar("T")


class Collided(ArchiveFailed):
    """Another gate was at the same rows; nothing was changed, and trying again helps."""


class Gone(ArchiveFailed):
    """The file that was written to is not there any more, or is another one."""


class Database:
    """A pool of connections to one database. Nothing is opened before the first transaction."""

    def __init__(self, url: str, *, within: float = WITHIN) -> None:
        """Make the pool.

        Args:
            url: as `config.archive.archive_url` writes it.
            within: seconds that a transaction may take.

        Raises:
            ArchiveFailed: the driver for PostgreSQL is not installed.
        """
        self.url = url
        self.within = within
        self.file = sqlite_file(url)
        """The SQLite file; None for PostgreSQL."""
        self._engine = _postgresql(url) if self.file is None else _sqlite(self.file, within)
        self.threads = None if self.file is None else Threads(self.file, within)
        """Where SQLite's `at_once` is done; None for PostgreSQL."""
        self._failures = _failures(self.file)
        self._writer = asyncio.Lock()
        self._inode: tuple[int, int] | None = None

    @property
    def shown(self) -> str:
        """The address without what is secret in it."""
        if self.file is not None:
            return str(self.file)
        head, _, tail = self.url.partition("://")
        return f"{head}://{tail.split('?')[0].rpartition('@')[2]}"

    def insert(self, table: Any) -> Any:
        """An INSERT that knows ON CONFLICT, in this database's words."""
        return (postgresql if self.file is None else sqlite).insert(table)

    @asynccontextmanager
    async def reading(self, within: float | None = None) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads.

        Raises:
            ArchiveFailed: it could not be done, or took longer than `within` seconds.
        """
        async with self._boundary(within):
            self._check_file()
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def writing(self, within: float | None = None) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes; what it wrote is on the disk when it ends without an error.

        Raises:
            Collided: another gate was at the same rows.
            ArchiveFailed: it could not be done, or took longer than `within` seconds; nothing was changed.
        """
        async with self._boundary(within):
            if self.file is None:
                async with self._engine.begin() as connection:
                    yield connection
                return
            self._check_file()
            # SQLite has one writer. Those of this process wait here, in turn, and not in SQLite's own loop of naps.
            async with self._writer, self._engine.execution_options(writes=True).begin() as connection:
                yield connection

    async def at_once(self, work: Callable[[Connection], T], *, writes: bool = False, within: float | None = None) -> T:
        """What `work` returns, which is a transaction of its own; SQLite's takes one thread, once.

        Args:
            work: what is done with the connection; with SQLite in another thread than the loop's.
            writes: whether it writes; then what it wrote is on the disk when this returns.
            within: seconds that it may take; those of the database without it.

        Raises:
            Collided: another gate was at the same rows.
            ArchiveFailed: it could not be done, or took longer; nothing was changed.
        """
        threads = self.threads
        if threads is None:
            async with self.writing(within) if writes else self.reading(within) as connection:
                return await connection.run_sync(work)
        turn: AbstractAsyncContextManager[Any] = self._writer if writes else nullcontext()
        async with self._boundary(within):
            self._check_file()
            async with turn:
                return await threads.run(work, writes=writes)

    async def prepare(self) -> None:
        """Make the file, readable by its owner only, where there is none. For PostgreSQL there is nothing to do.

        Raises:
            ArchiveFailed: it cannot be made.
        """
        if self.file is None:
            return
        try:
            self._check_file()
        except Gone:
            # Before there is another one: SQLite takes away what it finds under its names when it closes.
            await self._dispose()
        try:
            private_directory(self.file.parent)
            # A file that is there is not opened here: closing it again would take all of this process's locks on it
            # away from SQLite, and another process that closes it would then remove the log in which this one goes on.
            with suppress(FileExistsError):
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            found = self.file.stat()
            if found.st_mode & 0o077:
                self.file.chmod(0o600)
            if os.geteuid() == 0 and not found.st_size:
                owner = self.file.parent.stat()  # a service with a user of its own has to open it
                os.chown(self.file, owner.st_uid, owner.st_gid)
        except OSError as failure:
            raise ArchiveFailed(f"{self.file} cannot be opened: {failure.strerror}") from failure
        self._inode = (found.st_dev, found.st_ino)

    def _check_file(self) -> None:
        """Never write into a file that was deleted or replaced: what is kept there is lost."""
        if self._inode is None or self.file is None:
            return
        try:
            found = os.stat(self.file)  # noqa: PTH116 - a thousandth of what a thread would cost
        except OSError as failure:
            raise Gone(f"{self.file} is gone: {failure.strerror}") from failure
        if (found.st_dev, found.st_ino) != self._inode:
            raise Gone(f"{self.file} was replaced by another file")

    @asynccontextmanager
    async def _boundary(self, within: float | None) -> AsyncIterator[None]:
        """The one place where the drivers' failures become ours, without statements, values or passwords."""
        try:
            async with asyncio.timeout(self.within if within is None else within):
                yield
        except TimeoutError as late:
            raise ArchiveFailed(f"{self.shown} did not answer in time") from late
        except DBAPIError as failure:
            kind = Collided if _collided(failure) else ArchiveFailed
            raise kind(f"{self.shown}: {_reason(failure.orig)}") from failure
        except self._failures as failure:
            raise ArchiveFailed(f"{self.shown}: {_reason(failure)}") from failure

    async def shrink(self) -> None:
        """Give free pages back to the disk and empty the log of changes; PostgreSQL does both by itself.

        Raises:
            ArchiveFailed: it could not be done.
        """
        if self.file is None:
            return
        freed = True
        while freed:
            async with self.writing() as connection:
                before = await connection.scalar(text("PRAGMA freelist_count"))
                # Each step frees one page and gives no row, so SQLAlchemy would end it after the first.
                driver: Any = (await connection.get_raw_connection()).driver_connection
                await driver.execute_fetchall(f"PRAGMA incremental_vacuum({_PAGES})")
                freed = before > await connection.scalar(text("PRAGMA freelist_count")) > 0
        async with self._boundary(None), self._engine.connect() as plain:
            await plain.execution_options(isolation_level="AUTOCOMMIT")
            await plain.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        """Close all connections. There is no transaction afterwards."""
        if self.threads is not None:
            await asyncio.to_thread(self.threads.end)
        await self._dispose()

    async def _dispose(self) -> None:
        await self._engine.dispose()
        if self.threads is not None:
            await asyncio.to_thread(self.threads.engine.dispose)


class Threads:
    """Transactions of one SQLite file, each in one thread from its begin to its end."""

    def __init__(self, file: Path, within: float) -> None:
        """Start and open nothing yet.

        Args:
            file: the file.
            within: seconds that a transaction may take.
        """
        connect = partial(
            sqlite3.connect, file, factory=_prepared(within), isolation_level=None, check_same_thread=False
        )
        self.engine = create_engine(
            URL.create("sqlite", database=str(file)),
            creator=connect,
            hide_parameters=True,
            poolclass=QueuePool,
            pool_size=_POOL,
            max_overflow=0,
        )
        event.listen(self.engine, "begin", _began)
        self._pool = ThreadPoolExecutor(_POOL, "archive")

    async def run(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        """What `work` returns. Whoever gives up meanwhile leaves nothing changed behind."""
        left = Event()

        def transaction() -> T:
            with self.engine.connect().execution_options(writes=writes) as connection, connection.begin():
                found = work(connection)
                if left.is_set():
                    raise ArchiveFailed("nobody waits for it any more")  # nor hears of it: it only undoes what was done
                return found

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, transaction)
        finally:
            left.set()

    def end(self) -> None:
        """Wait for what runs, and take nothing more."""
        self._pool.shutdown()


async def despite_collisions(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns; it is done again, up to four times, while another gate is at the same rows.

    Raises:
        Collided: it was so each time.
    """
    for _ in range(_TRIES - 1):
        try:
            return await work()
        except Collided:
            continue
    return await work()


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut rows, or values of a condition, into parts that one statement takes."""
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


def _prepared(within: float) -> type[sqlite3.Connection]:
    class Prepared(sqlite3.Connection):
        """A connection that is set up by the thread that opens it: whoever gives up meanwhile leaves nothing behind."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            try:
                # Shorter than a transaction may take: the thread does not hear that nobody waits for it any more.
                self.execute(f"PRAGMA busy_timeout={int(within * 600)}")
                if not self.execute("PRAGMA page_count").fetchone()[0]:
                    self.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of an empty file only: it takes a writer's lock
                for pragma in _PRAGMAS:
                    self.execute(f"PRAGMA {pragma}")
            except BaseException:
                self.close()
                raise

    return Prepared


def _began(connection: Connection) -> None:
    """Begin a transaction of SQLite: when we say so (isolation_level), not when the driver thinks fit."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _sqlite(file: Path, within: float) -> AsyncEngine:
    prepared = _prepared(within)

    async def connect() -> aiosqlite.Connection:
        opening = aiosqlite.connect(file, factory=prepared, isolation_level=None)
        thread: Thread = getattr(opening, "_thread", opening)  # type: ignore[arg-type]  # it was one before 0.22
        thread.daemon = True
        try:
            return await opening
        except Exception:
            # Its thread has one thing left to tell the loop, which may be closed by then.
            await asyncio.to_thread(thread.join, 1.0)
            raise

    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(file)),
        async_creator=connect,
        hide_parameters=True,
        pool_size=_POOL,
        max_overflow=0,
    )
    event.listen(engine.sync_engine, "begin", _began)
    return engine


def _postgresql(url: str) -> AsyncEngine:
    try:
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise ArchiveFailed("PostgreSQL needs the extra ollama-gate[postgresql], which is not installed") from missing

    async def connect() -> Any:
        # asyncpg reads the whole address as libpq does, sslmode, passfile and socket directories included.
        settings = {"application_name": "ollama-gate"}
        try:
            return await asyncpg.connect(url, timeout=_CONNECT_WITHIN, server_settings=settings)
        except ValueError as odd:  # an address or option that it does not understand
            raise ArchiveFailed("archive.url is not an address that PostgreSQL's driver understands") from odd

    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        hide_parameters=True,
        pool_size=_POOL,
        max_overflow=0,
        pool_pre_ping=True,
    )


def _failures(file: Path | None) -> tuple[type[Exception], ...]:
    """What the drivers raise where SQLAlchemy has not wrapped it: while connecting."""
    if file is not None:
        return (SQLAlchemyError, OSError, sqlite3.Error)
    import asyncpg  # noqa: PLC0415 - an extra

    return (SQLAlchemyError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


def _collided(failure: DBAPIError) -> bool:
    if getattr(failure.orig, "sqlstate", None) in _AGAIN:
        return True
    return "FOREIGN KEY constraint failed" in str(failure.orig)


def _reason(failure: BaseException | None) -> str:
    """A failure in one line. Messages of both databases name tables and keys, never values that hold text."""
    if getattr(failure, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
        return f"{failure}: another process was writing to it all the time. Gates that share much share PostgreSQL"
    text = str(failure).splitlines()[0] if failure is not None and str(failure) else type(failure).__name__
    return text.rpartition(">: ")[2][:300]  # SQLAlchemy puts "<class …>: " before what asyncpg says
