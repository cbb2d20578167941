"""Databases for tests of the archive: SQLite in a directory, and PostgreSQL where one is named.

OLLAMA_GATE_TEST_POSTGRES is the address of a database whose role may create schemas; each test gets one of its own.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]
import pytest

from ollama_gate.archive import migrating
from ollama_gate.archive.database import Database
from ollama_gate.archive.store import Store
from ollama_gate.compaction.originals import Original, original_of
from ollama_gate.config.archive import SQLITE

POSTGRESQL = os.environ.get("OLLAMA_GATE_TEST_POSTGRES", "")
KINDS = ("sqlite", "postgresql") if POSTGRESQL else ("sqlite",)
needs_postgresql = pytest.mark.skipif(not POSTGRESQL, reason="OLLAMA_GATE_TEST_POSTGRES names no database")


class Clock:
    """Seconds since 1970 that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def database_url(kind: str, directory: Path) -> AsyncIterator[str]:
    """The address of an empty database, gone when the test ends."""
    if kind == "sqlite":
        yield f"{SQLITE}{directory / 'state' / 'archive.db'}"
        return

    schema = f"test_{secrets.token_hex(6)}"
    connection = await asyncpg.connect(POSTGRESQL)
    try:
        await connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{POSTGRESQL}{'&' if '?' in POSTGRESQL else '?'}search_path={schema}"
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    finally:
        await connection.close()


class Forwarder:
    """A port that leads to a database, until it does not."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def open(self) -> None:
        """Lead there, on the same port as before."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Cut what is under way, and lead nowhere."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        self._writers -= {writer, far_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()


@asynccontextmanager
async def through(url: str) -> AsyncIterator[tuple[Forwarder, str]]:
    """A way to a database that can be cut, and the address of it."""
    parts = urlsplit(url)
    forwarder = Forwarder(parts.hostname or "", parts.port or 5432)
    await forwarder.open()
    who = parts.netloc.rpartition("@")[0]
    try:
        yield forwarder, urlunsplit(parts._replace(netloc=f"{who}@127.0.0.1:{forwarder.port}"))
    finally:
        await forwarder.close()


@asynccontextmanager
async def opened(url: str, *, within: float = 20.0) -> AsyncIterator[Database]:
    """A database with tables."""
    database = Database(url, within=within)
    try:
        await migrating.migrate(database)
        yield database
    finally:
        await database.close()


def store_in(database: Database, clock: Clock | None = None) -> Store:
    """A store whose time is the test's."""
    return Store(database, clock or Clock())


def said(*contents: str, role: str = "user") -> list[Original]:
    """Messages with these contents."""
    return [original_of({"role": role, "content": content}) for content in contents]


def talk(count: int, *, start: int = 0) -> list[Original]:
    """A conversation whose messages differ."""
    roles: Sequence[str] = ("user", "assistant")
    messages: list[dict[str, Any]] = [
        {"role": roles[number % 2], "content": f"message number {number}: " + f"word{number} " * 40}
        for number in range(start, start + count)
    ]
    return [original_of(message) for message in messages]


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an empty database."""
    async with database_url(request.param, tmp_path) as address:
        yield address


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """The same, open and with its tables."""
    async with opened(url) as open_database:
        yield open_database
