"""Every test of the archive that asks for a database runs on SQLite, and on PostgreSQL where one is named."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ollama_gate.archive.database import Database
from ollama_gate.archive.store import Store
from support.archives import KINDS, Clock, database_url, opened, store_in


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with database_url(request.param, tmp_path) as address:
        yield address


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    async with opened(url) as open_database:
        yield open_database


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: Database, clock: Clock) -> Store:
    return store_in(database, clock)
