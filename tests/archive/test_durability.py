"""What `keep` said is kept stays kept when the process is killed."""

import asyncio
import sys

import pytest

from support.archives import opened, store_in, talk

PROGRAM = """
import asyncio, sys
from ollama_gate.archive.database import Database
from ollama_gate.archive.migrating import migrate
from ollama_gate.archive.store import Store
from support.archives import talk

async def main():
    database = Database(sys.argv[1])
    await migrate(database)
    store = Store(database, lambda: 1.0)
    for number in range(10**6):
        await store.keep(f"talk {number}", "m", talk(3, start=number * 3))
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 17])
async def test_nothing_that_was_kept_is_lost_when_the_process_is_killed(url: str, lines: int) -> None:
    search_path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", search_path + PROGRAM, url, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    told = [await process.stdout.readline() for _ in range(lines)]
    process.kill()
    told += (await process.stdout.read()).splitlines()
    assert await process.wait() == -9
    kept = max(int(line) for line in told if line.strip())
    assert kept >= lines - 1
    async with opened(url) as database:
        store = store_in(database)
        for number in range(kept + 1):
            bodies = [each.body async for each in store.messages(f"talk {number}")]
            assert bodies == [original.body for original in talk(3, start=number * 3)]
        await store.keep("talk", "m", talk(2))
