import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, func, select, update

from ollama_gate.archive.database import Database
from ollama_gate.archive.packing import pack
from ollama_gate.archive.schema import conversation, message, occurrence, storable
from ollama_gate.archive.store import Store
from ollama_gate.compaction.originals import ArchiveFailed, Checkpoint, original_of
from support.archives import Clock, opened, said, store_in, talk

CHECKPOINT = Checkpoint(("a" * 32, "b" * 32), 1, b'{"cut":[1,2]}', "c" * 32)


async def contents(store: Store, name: str | None = None, since: float | None = None) -> list[str]:
    return [json.loads(each.body)["content"] for each in [one async for one in store.messages(name, since)]]


async def test_what_was_kept_is_found_by_its_hash_or_the_start_of_it(store: Store, clock: Clock) -> None:
    [original] = said("Where is the key? Under the mat — Ключ под ковриком 🔑")
    tally = await store.keep("talk", "m:latest", [original])
    assert (tally.new, tally.known) == (1, 0)
    for prefix in (original.hash, original.hash[:12], original.hash[:13], original.hash[:63]):
        [found] = await store.find(prefix)
        assert (found.hash, found.role, found.body) == (original.hash, "user", original.body)
        assert (found.stored_at, found.conversations) == (clock.now, ("talk",))


async def test_what_was_not_kept_is_not_found(store: Store) -> None:
    await store.keep("talk", "m", talk(3))
    assert await store.find("0" * 12) == []
    assert await store.find("f" * 64) == []


async def test_two_hashes_that_begin_alike_are_both_told(store: Store, database: Database) -> None:
    first, second = said("one", "two")
    await store.keep("talk", "m", [first, second])
    twin = bytes.fromhex(first.hash[:20]) + bytes.fromhex(second.hash[20:])
    async with database.writing() as connection:
        await connection.execute(delete(occurrence).where(occurrence.c.hash == bytes.fromhex(second.hash)))
        renamed = update(message).where(message.c.hash == bytes.fromhex(second.hash)).values(hash=twin)
        await connection.execute(renamed)
    with pytest.raises(ArchiveFailed, match="is not what its hash says"):
        await store.find(first.hash[:12])
    assert [each.hash for each in await store.find(first.hash)] == [first.hash]


async def test_a_message_is_stored_once_however_often_it_is_said(store: Store, database: Database) -> None:
    ok, system = said("ok")[0], said("Answer shortly.", role="system")[0]
    first = await store.keep("one", "m", [system, ok, *talk(4), ok])
    again = await store.keep("one", "m", [system, ok, *talk(6), ok])
    other = await store.keep("two", "m", [system, *talk(6)])
    assert [(tally.new, tally.known) for tally in (first, again, other)] == [(6, 0), (2, 6), (0, 7)]
    async with database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(message)) == 8
        assert await connection.scalar(select(func.count()).select_from(occurrence)) == 15
    [found] = await store.find(system.hash)
    assert set(found.conversations) == {"one", "two"}


async def test_a_conversation_comes_back_in_its_order(store: Store, clock: Clock) -> None:
    originals = talk(130)
    await store.keep("talk", "m", originals[:70])
    clock.now += 60
    await store.keep("talk", "m", originals)
    await store.keep("other", "m", said("elsewhere"))
    wanted = [json.loads(original.body)["content"] for original in originals]
    assert await contents(store, "talk") == wanted
    assert await contents(store, "talk", since=clock.now) == wanted[70:]
    assert sorted(await contents(store)) == sorted([*wanted, "elsewhere"])
    assert await contents(store, "nobody") == []


async def test_what_is_new_comes_after_what_was_kept_before(store: Store) -> None:
    originals = talk(9)
    await store.keep("talk", "m", originals[:4])
    await store.keep("talk", "m", originals[4:6])
    await store.keep("talk", "m", originals[5:])
    assert await contents(store, "talk") == [json.loads(original.body)["content"] for original in originals]


async def test_an_empty_conversation_is_no_mistake(store: Store) -> None:
    assert (await store.keep("talk", "m", [])).new == 0


@pytest.mark.parametrize("name", ["a\0b", "x" * 500, "\ud800", "", "Имя", "'; DROP TABLE gate_message; --"])
async def test_any_name_can_be_one_of_a_conversation(store: Store, name: str) -> None:
    await store.keep(name, name, said("hello"))
    await store.keep_checkpoint(name, name, CHECKPOINT)
    assert await contents(store, name) == ["hello"]
    assert await store.latest_checkpoint(name, name) == CHECKPOINT


@given(st.text(max_size=300), st.text(max_size=300))
def test_names_that_differ_stay_apart(one: str, other: str) -> None:
    assert (storable(one) == storable(other)) == (one == other)
    assert len(storable(one)) <= 200
    assert storable(one).isprintable()


async def test_a_role_that_is_none_is_kept_as_something_a_database_takes(store: Store) -> None:
    odd = original_of({"role": "a\0" * 90, "content": "hm"})
    await store.keep("talk", "m", [odd])
    [found] = await store.find(odd.hash)
    assert found.body == odd.body


async def test_big_and_small_bodies_come_back_whole(store: Store) -> None:
    originals = said("", "x", "a\0b", "\u2028" * 1000, "0112036789abcdef" * 200_000)
    await store.keep("talk", "m", originals)
    for original in originals:
        [found] = await store.find(original.hash)
        assert found.body == original.body


async def test_more_messages_than_one_statement_takes(store: Store) -> None:
    originals = said(*(f"message {number}" for number in range(1203)))
    assert (await store.keep("talk", "m", originals)).new == 1203
    assert (await store.keep("talk", "m", originals)).known == 1203
    assert len(await contents(store, "talk")) == 1203


async def test_two_gates_keep_the_same_messages_at_once(url: str) -> None:
    originals = talk(60)
    async with opened(url) as one, opened(url) as two:
        stores = [store_in(one), store_in(two)]
        order = [originals, list(reversed(originals))]
        await asyncio.gather(*(stores[turn % 2].keep(f"talk {turn % 3}", "m", order[turn % 2]) for turn in range(12)))
        assert (await stores[0].stats()).messages == 60
        assert (await stores[0].stats()).conversations == 3


async def test_a_conversation_that_was_purged_meanwhile_is_stored_again(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there when it was looked for, and is not when it is counted on."""
    originals = talk(5)
    await store.keep("talk", "m", originals)
    ask = store._conversation
    purged = False

    def purge_first(connection: Any, name: str, model: str, now: int) -> int:
        nonlocal purged
        if not purged:
            purged = True
            connection.execute(delete(conversation))
            connection.execute(delete(message))
        return ask(connection, name, model, now)

    monkeypatch.setattr(store, "_conversation", purge_first)
    await store.keep("other", "m", originals)
    assert len(await contents(store, "other")) == 5


async def test_the_last_checkpoint_of_each_conversation_and_model_is_kept(store: Store) -> None:
    later = Checkpoint(("d" * 32,), 0, b"{}", "e" * 32)
    assert await store.latest_checkpoint("talk", "m") is None
    await store.keep_checkpoint("talk", "m", CHECKPOINT)
    await store.keep_checkpoint("talk", "n", CHECKPOINT)
    await store.keep_checkpoint("talk", "m", later)
    assert await store.latest_checkpoint("talk", "m") == later
    assert await store.latest_checkpoint("talk", "n") == CHECKPOINT
    assert await store.latest_checkpoint("other", "m") is None


async def test_statistics_add_up(store: Store, clock: Clock) -> None:
    assert (await store.stats()).oldest is None
    originals = talk(3)
    await store.keep("one", "m", originals[:2])
    clock.now += 3600
    await store.keep("two", "m", originals)
    size = await store.keep_checkpoint("two", "m", CHECKPOINT)
    stats = await store.stats()
    assert (stats.messages, stats.conversations, stats.checkpoints) == (3, 2, 1)
    assert stats.bytes == sum(len(original.body) for original in originals)
    assert stats.stored_bytes == size + sum(len(pack(original.body)) for original in originals)
    assert stats.oldest == clock.now - 3600
    assert stats.newest == pytest.approx(clock.now)


async def test_a_damaged_body_is_told_and_not_shown(store: Store, database: Database) -> None:
    one, two = said("one", "two")
    await store.keep("talk", "m", [one, two])
    async with database.writing() as connection:
        for key, data in ((one.hash, pack(two.body)), (two.hash, b"\x28\xb5\x2f\xfdnonsense")):
            damaged = update(message).where(message.c.hash == bytes.fromhex(key)).values(data=data)
            await connection.execute(damaged)
    for original in (one, two):
        with pytest.raises(ArchiveFailed, match="damaged"):
            await store.find(original.hash)
