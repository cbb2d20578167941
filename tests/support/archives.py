"""Databases for tests of the archive: SQLite in a directory, and PostgreSQL where one is named.

OLLAMA_GATE_TEST_POSTGRES is the address of a database whose role may create schemas; each test gets one of its own.
"""

import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
