"""Every test of sharing that asks for a database runs on SQLite, and on PostgreSQL where one is named."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ollama_gate.archive.database import Database
from support.archives import KINDS, database_url, opened


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with database_url(request.param, tmp_path) as address:
        yield address


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    async with opened(url) as open_database:
        yield open_database
