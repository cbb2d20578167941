"""The archive of a running gate: ready when it can be, within its limits, and well again by itself."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from ollama_gate.archive.database import Database
from ollama_gate.archive.keeper import Keeper
from ollama_gate.archive.query import Query
from ollama_gate.archive.records import Filter
from ollama_gate.archive.schema import VERSION_TABLE
from ollama_gate.compaction.originals import ArchiveFailed, Checkpoint
from ollama_gate.config.archive import SQLITE, Archive
from ollama_gate.observe import log
from ollama_gate.observe.metrics import Metrics
from support.archives import KINDS, Clock, database_url, needs_postgresql, opened, said, talk, through
from support.waiting import until

CHECKPOINT = Checkpoint(("a" * 32,), 1, b"{}", "c" * 32)


@asynccontextmanager
async def keeper_for(
    url: str,
    *,
    start: bool = False,
    now: Callable[[], float] | None = None,
    clock: Clock | None = None,
    **keys: object,
) -> AsyncIterator[Keeper]:
    section = Archive.model_validate({"enabled": True, "url": url, **keys})
    keeper = Keeper(section, metrics=Metrics(), log=log.logger(), now=now or Clock(), clock=clock or Clock())
    if start:
        keeper.start()
    try:
        yield keeper
    finally:
        await keeper.close()


def failures(keeper: Keeper, what: str) -> float:
    return keeper._metrics.archive_failures.labels(what).value


def kept(keeper: Keeper, kind: str) -> float:
    return keeper._metrics.archive_messages.labels(kind).value


async def test_it_makes_its_tables_and_keeps(url: str) -> None:
    async with keeper_for(url) as keeper:
        await keeper.keep("talk", "m", talk(4))
        await keeper.keep("talk", "m", talk(6))
        assert (kept(keeper, "new"), kept(keeper, "known")) == (6, 4)
        [found] = await keeper.find(talk(1)[0].hash)
        assert found.body == talk(1)[0].body
        assert len((await keeper.search(Query.parse("message"), Filter())).matches) == 6
        assert keeper.problem == ""


async def test_checkpoints_are_kept_for_the_next_gate(url: str) -> None:
    async with keeper_for(url) as keeper:
        assert await keeper.latest_checkpoint("talk", "m") is None
        await keeper.keep_checkpoint("talk", "m", CHECKPOINT)
    async with keeper_for(url) as keeper:
        assert await keeper.latest_checkpoint("talk", "m") == CHECKPOINT


async def test_a_checkpoint_that_cannot_be_kept_or_read_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    async with keeper_for(str(tmp_path / "in the way" / "archive.db")) as keeper:
        await keeper.keep_checkpoint("talk", "m", CHECKPOINT)
        assert await keeper.latest_checkpoint("talk", "m") is None
        assert failures(keeper, "checkpoint") == 2


async def test_a_stored_checkpoint_of_another_form_is_none(url: str) -> None:
    class Odd(Checkpoint):
        def pack(self) -> bytes:
            return b'{"of": "another version"}'

    async with keeper_for(url) as keeper:
        await keeper.keep_checkpoint("talk", "m", Odd((), 0, b"", ""))
        assert await keeper.latest_checkpoint("talk", "m") is None


async def test_a_place_that_becomes_usable_is_used(tmp_path: Path, written_log: io.StringIO) -> None:
    obstacle, clock = tmp_path / "state", Clock()
    obstacle.write_text("in the way")
    async with keeper_for(str(obstacle / "archive.db"), clock=clock) as keeper:
        for _ in range(3):
            with pytest.raises(ArchiveFailed, match="cannot be opened"):
                await keeper.keep("talk", "m", talk(2))
        obstacle.unlink()
        with pytest.raises(ArchiveFailed):  # one attempt stands for all of the next seconds
            await keeper.keep("talk", "m", talk(2))
        clock.now += 3
        await keeper.keep("talk", "m", talk(2))
        assert (failures(keeper, "keep"), keeper.problem) == (4, "")
    events = [json.loads(line)["event"] for line in written_log.getvalue().splitlines()]
    assert events == ["archive failed", "archive tables made", "archive works again"]


async def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    async with keeper_for(str(file)) as keeper:
        await keeper.keep("talk", "m", talk(2))
        for path in tmp_path.iterdir():
            path.unlink()
        with pytest.raises(ArchiveFailed, match="is gone"):
            await keeper.keep("talk", "m", talk(3))
        await keeper.keep("talk", "m", talk(4))
    async with opened(f"{SQLITE}{file}") as database, database.reading() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM gate_message")) == 4
        assert await connection.scalar(text("PRAGMA integrity_check")) == "ok"


async def test_tables_of_a_newer_version_are_left_alone(url: str) -> None:
    async with opened(url) as database, database.writing() as connection:
        await connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    async with keeper_for(url) as keeper:
        with pytest.raises(ArchiveFailed, match="newer version of ollama-gate"):
            await keeper.keep("talk", "m", talk(2))
        assert "newer version" in keeper.problem


async def test_a_gate_that_may_not_make_tables_says_who_does(url: str) -> None:
    clock = Clock()
    async with keeper_for(url, migrate=False, clock=clock) as keeper:
        with pytest.raises(ArchiveFailed, match="ollama-gate archive migrate"):
            await keeper.keep("talk", "m", talk(2))
        async with opened(url):
            clock.now += 3
            await keeper.keep("talk", "m", talk(2))


async def test_what_is_too_old_or_too_much_goes(url: str) -> None:
    now = Clock()
    async with keeper_for(url, now=now, keep_for=1000.0, max_size=6000) as keeper:
        await keeper.keep("old", "m", talk(3))
        now.now += 2000
        for number in range(10):
            now.now += 1
            await keeper.keep(f"talk {number}", "m", said(os.urandom(600).hex()))
        purged = await keeper.purge()
        assert 1 < purged.conversations < 6
        stored = keeper._metrics.registry.get_sample_value("ollama_gate_archive_stored_bytes")
        assert stored is not None
        assert 4000 < stored <= 6000
        assert keeper._metrics.archive_purged.labels().value == purged.messages


async def test_a_gate_looks_after_its_archive_by_itself(url: str) -> None:
    now = Clock()
    async with keeper_for(url, now=now) as keeper:
        await keeper.keep("old", "m", talk(3))
    now.now += 40 * 86400
    async with keeper_for(url, now=now, start=True) as keeper:
        await until(lambda: keeper._metrics.archive_purged.labels().value == 3)


@pytest.mark.slow
async def test_much_that_is_added_is_looked_at_before_the_timer(url: str) -> None:
    async with keeper_for(url, start=True, max_size=30_000) as keeper:
        for number in range(30):
            await keeper.keep(f"talk {number}", "m", talk(20, start=number * 20))
        await until(lambda: keeper._metrics.archive_purged.labels().value > 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_limits_of_nothing_are_no_limits(kind: str, tmp_path: Path) -> None:
    now = Clock()
    async with database_url(kind, tmp_path) as url, keeper_for(url, now=now, keep_for=0.0, max_size=0) as keeper:
        await keeper.keep("talk", "m", talk(3))
        now.now += 10 * 365 * 86400
        assert (await keeper.purge()).conversations == 0


@needs_postgresql
async def test_a_database_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    clock = Clock()
    async with database_url("postgresql", tmp_path) as url, through(url) as (forwarder, way):
        async with keeper_for(way, clock=clock) as keeper:
            await keeper.keep("talk", "m", talk(2))
            await forwarder.close()
            with pytest.raises(ArchiveFailed):
                await keeper.keep("talk", "m", talk(3))
            await forwarder.open()
            clock.now += 3
            await keeper.keep("talk", "m", talk(4))
            assert keeper.problem == ""
        async with opened(url) as database, database.reading() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM gate_message")) == 4


@pytest.mark.slow
async def test_a_database_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    monkeypatch.setattr("ollama_gate.archive.keeper.WITHIN", 0.1)
    held: list[asyncio.StreamWriter] = []

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    async with await asyncio.start_server(say_nothing, "127.0.0.1", unused_tcp_port):
        async with keeper_for(f"postgresql://gate@127.0.0.1:{unused_tcp_port}/gate") as keeper:
            with pytest.raises(ArchiveFailed, match="did not answer in time"):
                await keeper.keep("talk", "m", talk(2))
        for writer in held:
            writer.transport.abort()


async def test_one_that_was_never_used_closes(url: str) -> None:
    async with keeper_for(url):
        pass


async def test_two_gates_share_one_archive(url: str) -> None:
    async with keeper_for(url, start=True) as one, keeper_for(url, start=True) as two:
        works: list[Awaitable[None]] = [
            keeper.keep(f"talk {number % 3}", "m", talk(10, start=number))
            for number in range(8)
            for keeper in (one, two)
        ]
        await asyncio.gather(*works)
        await one.keep_checkpoint("talk 0", "m", CHECKPOINT)
        assert await two.latest_checkpoint("talk 0", "m") == CHECKPOINT
        assert kept(one, "new") + kept(two, "new") >= 17


async def test_an_archive_of_postgresql_without_its_driver_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ArchiveFailed, match=r"ollama-gate\[postgresql\]"):
        Database("postgresql://gate@127.0.0.1/gate")
