"""What gates share, in a database: keys, what was booked, and what was learned."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from ollama_gate.access.bookings import DAY, SPANS, Bookings, Cell, Entry, newer
from ollama_gate.access.keyfile import encode
from ollama_gate.access.keys import Key, KeyRing
from ollama_gate.archive.database import Database
from ollama_gate.archive.schema import key
from ollama_gate.archive.schema import learned as learned_table
from ollama_gate.counting.learned import Learned
from ollama_gate.counting.trust import Trust
from ollama_gate.shared import keyring, learned, usage
from support.keyring import a_key

NOW = 1_800_000_000.0
DAILY = "tokens_per_day"
SLOT = SPANS[DAILY].number(NOW)


def ring_of(*names: str) -> KeyRing:
    return KeyRing(tuple(a_key(name, limits={"tokens_per_day": 5}, models=("qwen3*",))[1] for name in names))


async def change(database: Database, make: Any) -> KeyRing:
    return await database.at_once(lambda connection: keyring.change(connection, database, make), writes=True)


async def ring(database: Database) -> KeyRing:
    return keyring.found(await database.at_once(keyring.rows)).ring


async def test_a_ring_is_read_as_it_was_written_and_its_stamp_tells_of_every_change(database: Database) -> None:
    stamps = [await database.at_once(keyring.stamp)]
    assert await ring(database) == KeyRing()
    assert await change(database, lambda _: ring_of("one", "two")) == KeyRing()
    stamps.append(await database.at_once(keyring.stamp))
    assert set((await ring(database)).keys) == set(ring_of("one", "two").keys)
    one: Key = ring_of("one").keys[0]
    await change(database, lambda there: there.with_key(replace(one, revoked=7.0)))
    stamps.append(await database.at_once(keyring.stamp))
    assert (await ring(database)).keys == (ring_of("two").keys[0], replace(one, revoked=7.0))
    await change(database, lambda there: there)
    assert await database.at_once(keyring.stamp) == stamps[-1]
    more = [f"key {number}" for number in range(6)]
    await change(database, lambda there: KeyRing((*there.keys, *ring_of(*more).keys)))
    assert [each.name for each in (await ring(database)).keys] == ["two", "one", *more]
    async with database.writing() as connection:
        await connection.execute(key.delete().where(key.c.id == one.id))
    stamps.append(await database.at_once(keyring.stamp))
    assert len(set(stamps)) == 4


async def test_what_a_change_raises_leaves_everything_as_it_is(database: Database) -> None:
    await change(database, lambda _: ring_of("one"))

    def fails(_: KeyRing) -> KeyRing:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await change(database, fails)
    assert await ring(database) == ring_of("one")


async def test_changes_at_the_same_time_are_made_one_after_the_other(database: Database) -> None:
    names = [f"key {number}" for number in range(8)]
    await asyncio.gather(*(change(database, partial(_with, name)) for name in names))
    assert {one.name for one in (await ring(database)).keys} == set(names)
    assert (await database.at_once(keyring.stamp)) == (8, 8)


def _with(name: str, there: KeyRing) -> KeyRing:
    return there.with_key(ring_of(name).keys[0])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no key", "is not JSON"),
        (b"{}", "is not a file of keys"),
        (b'{"version": 1, "keys": []}', "holds no key of its own id"),
        (encode(ring_of("one")), "holds no key of its own id"),
    ],
)
async def test_a_row_that_is_no_key_is_said_and_opens_nothing(database: Database, data: bytes, why: str) -> None:
    await change(database, lambda _: ring_of("one", "two"))
    async with database.writing() as connection:
        await connection.execute(key.insert().values(id="x", revision=1, data=data))
    found = keyring.found(await database.at_once(keyring.rows))
    [fault] = found.faults
    assert fault.startswith("'x' ")
    assert why in fault
    assert {one.id for one in found.ring.keys} == {*(one.id for one in ring_of("one", "two").keys), "x"}
    [unreadable] = [one for one in found.ring.keys if one.id == "x"]
    assert (unreadable.over(NOW), unreadable.name) == ("revoked", keyring.UNREADABLE)
    for name in ("one", "two"):
        text, whole = a_key(name, limits={"tokens_per_day": 5}, models=("qwen3*",))
        assert found.ring.find(text) == whole
    await change(database, lambda there: there.with_key(replace(ring_of("one").keys[0], revoked=7.0)))
    async with database.reading() as connection:
        stored = (await connection.execute(key.select().where(key.c.id == "x"))).one()
    assert stored.data == data, "whoever changes keys leaves it as it is"


async def test_a_ring_of_rows_that_are_no_keys_is_not_one_without_keys(database: Database) -> None:
    text, whole = a_key("one")
    async with database.writing() as connection:
        await connection.execute(key.insert().values(id=whole.id, revision=1, data=b"\xff"))
    there = await ring(database)
    assert there, "without keys the gate would be open"
    assert there.find(text) is None
    assert there.after(KeyRing((whole,)), NOW).find(text) is None


async def tell(database: Database, bookings: Bookings) -> None:
    telling = bookings.telling()
    assert telling is not None
    await database.at_once(lambda connection: usage.write(connection, database, telling, NOW), writes=True)
    bookings.told(telling)


async def hear(database: Database, bookings: Bookings) -> dict[Cell, int]:
    def read(connection: Any) -> tuple[Mapping[str, int], Iterable[Entry]]:
        versions = usage.versions(connection, bookings.run)
        return versions, usage.entries(usage.rows(connection, newer(versions, bookings.heard_of)))

    differences: Counter[Cell] = Counter()
    versions, entries = await database.at_once(read)
    for heard in bookings.hear(entries):
        differences[heard.cell] += heard.difference
    bookings.heard(versions)
    return dict(differences)


async def test_what_one_run_tells_all_others_hear_once(database: Database) -> None:
    runs = [Bookings(f"run {number}") for number in range(3)]
    for number, run in enumerate(runs):
        run.add(DAILY, SLOT, "k", 10**number)
        await tell(database, run)
    whole = Cell(DAILY, SLOT, "k")
    assert [await hear(database, run) for run in runs] == [{whole: 110}, {whole: 101}, {whole: 11}]
    assert [await hear(database, run) for run in runs] == [{}, {}, {}]


async def test_what_is_told_later_wins_whatever_arrives_last(database: Database) -> None:
    one, two = Bookings("one"), Bookings("two")
    one.add(DAILY, SLOT, "k", 5)
    early = one.telling()
    assert early is not None
    one.add(DAILY, SLOT, "k", 3)
    await tell(database, one)
    await database.at_once(lambda connection: usage.write(connection, database, early, NOW), writes=True)
    assert await hear(database, two) == {Cell(DAILY, SLOT, "k"): 8}
    one.amend(DAILY, SLOT, "k", -6)
    await tell(database, one)
    assert await hear(database, two) == {Cell(DAILY, SLOT, "k"): -6}


async def test_after_a_long_outage_everything_is_told(database: Database) -> None:
    one, two = Bookings("one"), Bookings("two")
    for quota, span in SPANS.items():
        for number in range(400):
            one.add(quota, span.number(NOW - number % 50), f"key {number % 8}", 1)
    await tell(database, one)
    assert sum((await hear(database, two)).values()) == 400 * len(SPANS)


async def test_what_counts_no_longer_is_taken_away(database: Database) -> None:
    one = Bookings("one")
    for quota, span in SPANS.items():
        one.add(quota, span.number(NOW), "k", 1)
    await tell(database, one)
    for later, left in ((100.0, 4), (300.0, 2), (DAY + 1000, 0)):
        await database.at_once(partial(usage.forget, now=NOW + later), writes=True)
        assert len(await hear(database, Bookings("another"))) == left
    await database.at_once(partial(usage.forget, now=NOW + 3 * DAY), writes=True)
    assert await database.at_once(partial(usage.versions, mine="another")) == {}
    one.add(DAILY, SLOT + 10_000, "k", 1)
    await tell(database, one)
    assert len(await hear(database, Bookings("another"))) == 1


SURE = Learned(Trust(agreed=3, ratio=1.1), checked=True)
BAD = Learned(Trust(vocabulary=False, ratio=1.3, samples=4, why="it was off"), image_tokens=300.0)


async def learn(database: Database, mine: Mapping[str, Learned], version: str) -> learned.Known:
    there = learned.known(await database.at_once(learned.rows), version)
    fresh = learned.unwritten(mine, there)
    await database.at_once(lambda connection: learned.write(connection, database, fresh, version, NOW), writes=True)
    return learned.known(await database.at_once(learned.rows), version)


async def test_what_was_learned_is_read_as_it_was_written(database: Database) -> None:
    there = await learn(database, {"a": SURE, "b": BAD}, "1")
    assert there == learned.Known({"a": SURE, "b": BAD}, {"a": SURE, "b": BAD})
    assert learned.unwritten({"a": SURE}, there) == {}
    assert set(learned.unwritten({"a": BAD, "c": SURE}, there)) == {"a", "c"}


async def test_of_another_version_only_what_it_measured_counts_and_its_row_stays(database: Database) -> None:
    await learn(database, {"a": SURE}, "1")
    there = await learn(database, {"a": BAD}, "2")
    assert there.same == {"a": BAD}
    assert there.everybody == {"a": BAD}
    assert (await learn(database, {}, "1")).everybody == {
        "a": Learned(Trust(agreed=3, ratio=1.3), checked=True, image_tokens=300.0)
    }


async def test_a_row_that_makes_no_sense_is_as_good_as_none(database: Database) -> None:
    rows = [b"", b"[", b"{}", orjson.dumps({"trust": {"ratio": -1}})]
    async with database.writing() as connection:
        for number, data in enumerate(rows):
            await connection.execute(
                learned_table.insert().values(model=str(number), gate="1", learned_at=0, data=data)
            )
    assert await learn(database, {"a": SURE}, "1") == learned.Known({"a": SURE}, {"a": SURE})


def test_what_was_learned_with_a_file_of_this_machine_is_not_told() -> None:
    assert learned.unwritten({"sha256:1 jinja 0.33 file:/etc/tokenizer.json": SURE}, learned.Known({}, {})) == {}
