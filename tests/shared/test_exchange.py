"""The sharing of a running gate: what it does when the database, or what is in it, is not as it should be."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from ollama_gate.access.bookings import Bookings
from ollama_gate.access.keys import Key, KeyRing
from ollama_gate.access.quotas import Quotas
from ollama_gate.archive.database import Database
from ollama_gate.archive.schema import key
from ollama_gate.config.archive import Archive
from ollama_gate.counting.learned import Learned
from ollama_gate.counting.trust import Trust
from ollama_gate.observe import log
from ollama_gate.observe.metrics import Metrics
from ollama_gate.shared import exchange as module
from ollama_gate.shared import keyring
from ollama_gate.shared.exchange import Exchange
from support.archives import Clock
from support.keyring import a_key
from support.waiting import until

_, LAPTOP = a_key("laptop", limits={"requests_per_day": 5, "tokens_per_minute": 100})


@dataclass
class Gate:
    """What the exchange serves."""

    name: str
    rings: list[KeyRing] = field(default_factory=list)
    models: dict[str, Learned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bookings = Bookings(self.name)
        self.quotas = Quotas(self.bookings)

    def take_keys(self, ring: KeyRing) -> None:
        self.rings.append(ring)

    def learned(self) -> Mapping[str, Learned]:
        return self.models

    def hear(self, theirs: Mapping[str, Learned]) -> None:
        self.models.update(theirs)


@asynccontextmanager
async def sharing(gate: Gate, url: str, wall: Callable[[], float] | None = None) -> AsyncIterator[Exchange]:
    section = Archive.model_validate({"url": url})
    made = Exchange(
        section,
        ring=gate,
        quotas=gate.quotas,
        bookings=gate.bookings,
        counter=lambda: gate,
        metrics=Metrics(),
        log=log.logger(),
        wall=wall or Clock(),
        clock=Clock(),
    )
    try:
        yield made
    finally:
        await made.close()


async def put(database: Database, *keys: Key) -> None:
    def work(connection: Any) -> None:
        keyring.change(connection, database, lambda ring: KeyRing((*ring.keys, *keys)))

    await database.at_once(work, writes=True)


async def test_it_makes_its_tables_and_reads_the_keys_only_when_they_have_changed(url: str) -> None:
    gate = Gate("one")
    async with sharing(gate, url) as made:
        await made.once()
        await made.once()
        assert gate.rings == [KeyRing()]
        assert made._database is not None
        await put(made._database, LAPTOP)
        await made.once()
        await made.once()
        assert gate.rings == [KeyRing(), KeyRing((LAPTOP,))]
        assert (made.problem, made.behind) == ("", 0.0)


async def test_a_gate_that_ends_tells_its_last_bookings_and_what_it_learned(url: str) -> None:
    one, two, clock = Gate("one"), Gate("two"), Clock()
    async with sharing(one, url, clock) as made:
        await made.once()
        one.quotas.begin(LAPTOP, clock())
        one.quotas.book(LAPTOP, 30, clock())
        one.models["a"] = Learned(Trust(ratio=1.5))
    async with sharing(two, url, clock) as made:
        await made.once()
        assert two.quotas.of(LAPTOP).requests_day.used(clock()) == 1
        assert two.quotas.of(LAPTOP).tokens_minute.used(clock()) == 30
        assert two.models == one.models
        clock.now += 62
        await made.once()
        assert two.quotas.of(LAPTOP).tokens_minute.used(clock()) == 0


async def test_what_a_failed_exchange_did_not_tell_is_told_later(
    database: Database, url: str, written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, clock = Gate("one"), Gate("two"), Clock()

    def fails(*_: object) -> None:
        raise RuntimeError("a bug, say")

    async with sharing(one, url, clock) as telling, sharing(two, url, clock) as hearing:
        one.quotas.begin(LAPTOP, clock())
        with monkeypatch.context() as patched:
            patched.setattr(keyring, "stamp", fails)  # after the writing: it is undone
            await telling.once()
            await telling.once()
        assert "RuntimeError" in telling.problem
        await hearing.once()
        assert two.quotas.of(LAPTOP).requests_day.used(clock()) == 0
        await telling.once()
        await hearing.once()
        assert two.quotas.of(LAPTOP).requests_day.used(clock()) == 1
        assert telling._metrics.shared_failures.labels().value == 2
    events = [json.loads(line)["event"] for line in written_log.getvalue().splitlines()]
    assert events.count("not shared") == 1
    assert events.count("shared again") == 1


async def test_a_row_that_is_no_key_is_named_and_all_else_is_shared(
    database: Database, url: str, written_log: io.StringIO
) -> None:
    gate, other = Gate("one"), Gate("two")
    await put(database, LAPTOP)
    async with sharing(gate, url) as made, sharing(other, url) as there:
        await made.once()
        async with database.writing() as connection:
            await connection.execute(insert(key).values(id="x", revision=9, data=b"no key"))
        gate.quotas.begin(LAPTOP, Clock()())
        for _ in range(3):
            await made.once()
        await there.once()
        for one in (made, there):
            assert "'x' is not JSON" in one.status()["problem"]
            assert (one.problem, one.behind) == ("", 0.0)
        for rings in (gate.rings, other.rings):
            assert [key.id for key in rings[-1].keys if key.over(0.0) is None] == [LAPTOP.id]
        assert other.quotas.of(LAPTOP).requests_day.used(Clock()()) == 1, "usage is shared"
        assert len(gate.rings) == 2, "keys are taken when they change"
        async with database.writing() as connection:
            await connection.execute(delete(key).where(key.c.id == "x"))
        await made.once()
        assert made.status()["problem"] is None
    assert gate.rings[-1] == KeyRing((LAPTOP,))
    told = [line for line in map(json.loads, written_log.getvalue().splitlines()) if "shared keys" in line["event"]]
    assert [line["event"] for line in told].count("shared keys that cannot be read") == 2, "once by each gate"
    assert [line["event"] for line in told].count("all shared keys can be read again") == 2


async def test_a_row_that_is_mended_by_hand_opens_again(database: Database, url: str) -> None:
    gate = Gate("one")
    await put(database, LAPTOP)
    async with database.reading() as connection:
        whole = (await connection.execute(select(key.c.data))).scalar_one()
    async with sharing(gate, url) as made:
        for data in (whole, b"\x00", whole):
            async with database.writing() as connection:
                await connection.execute(update(key).values(data=data, revision=key.c.revision + int(data != whole)))
            await made.once()
    assert [bool(ring.named("laptop", 0.0)) for ring in gate.rings] == [True, False, True]


@pytest.mark.slow
async def test_a_database_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    monkeypatch.setattr(module, "_START_WITHIN", 0.1)
    held: list[asyncio.StreamWriter] = []

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    gate = Gate("one")
    async with (
        await asyncio.start_server(say_nothing, "127.0.0.1", unused_tcp_port),
        sharing(gate, f"postgresql://gate@127.0.0.1:{unused_tcp_port}/gate") as made,
    ):
        await made.start()
        assert "in time" in made.problem
        assert gate.rings == []
        for writer in held:
            writer.transport.abort()


async def test_it_goes_on_by_itself(database: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", 0.01)
    gate = Gate("one")
    async with sharing(gate, url) as made:
        await made.start()
        await put(database, LAPTOP)
        await until(lambda: len(gate.rings) == 2)
    assert gate.rings[-1] == KeyRing((LAPTOP,))
