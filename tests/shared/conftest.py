"""Every test of sharing that asks for a database runs on SQLite, and on PostgreSQL where one is named."""

from support.archives import database, url

__all__ = ("database", "url")
