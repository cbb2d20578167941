"""SQLite's locks on its file belong to the process: nothing here may open and close that file beside SQLite."""

import asyncio
import sys
from pathlib import Path

from sqlalchemy import text

from ollama_gate.archive import migrating
from support.archives import opened

OTHER = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
print(c.execute("SELECT count(*) FROM t").fetchone()[0])
c.close()
"""


async def _another_process(file: Path) -> int:
    command = (sys.executable, "-c", OTHER, str(file))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    return int((await process.communicate())[0])


async def test_what_is_written_after_tables_were_looked_at_again_is_seen_by_others(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    async with opened(f"sqlite:///{file}") as database:
        await database.at_once(lambda c: c.execute(text("CREATE TABLE t (x)")), writes=True)
        await migrating.ready(database, migrates=True)
        assert await _another_process(file) == 0
        assert file.with_name("archive.db-wal").exists()
        await database.at_once(lambda c: c.execute(text("INSERT INTO t VALUES (1)")), writes=True)
        assert await _another_process(file) == 1
