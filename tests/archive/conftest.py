"""Every test of the archive that asks for a database runs on SQLite, and on PostgreSQL where one is named."""

import pytest

from ollama_gate.archive.database import Database
from ollama_gate.archive.store import Store
from support.archives import Clock, database, store_in, url

__all__ = ("clock", "database", "store", "url")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: Database, clock: Clock) -> Store:
    return store_in(database, clock)
