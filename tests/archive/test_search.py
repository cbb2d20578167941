import pytest

from ollama_gate.archive import search as searches
from ollama_gate.archive.database import Database
from ollama_gate.archive.query import BadQuery, Query
from ollama_gate.archive.records import Filter, Found
from ollama_gate.archive.search import search
from ollama_gate.archive.store import Store
from support.archives import Clock, said, talk

ALL = Filter()


async def pages(database: Database, query: str, only: Filter = ALL, limit: int = 20) -> list[Found]:
    found = [await search(database, Query.parse(query), only, limit=limit)]
    while (after := found[-1].next) is not None:
        found.append(await search(database, Query.parse(query), only, limit=limit, after=after))
    return found


async def test_the_newest_come_first_in_the_order_of_their_conversation(
    store: Store, database: Database, clock: Clock
) -> None:
    older, newer = talk(5), talk(5, start=5)
    await store.keep("talk", "m", older)
    clock.now += 60
    await store.keep("talk", "m", [*older, *newer])
    [found] = await pages(database, "message")
    assert [match.hash for match in found.matches] == [each.hash for each in reversed([*older, *newer])]
    assert found.searched == 10
    first = found.matches[0]
    assert (first.role, first.size) == (newer[-1].role, len(newer[-1].body))


@pytest.mark.parametrize("limit", [1, 3, 7, 200])
async def test_a_search_that_goes_on_finds_each_match_once(store: Store, database: Database, limit: int) -> None:
    originals = talk(20)
    await store.keep("talk", "m", originals)
    found = [match.hash for page in await pages(database, "message", limit=limit) for match in page.matches]
    assert found == [each.hash for each in reversed(originals)]


async def test_only_what_the_filter_lets_through_is_looked_at(store: Store, database: Database) -> None:
    await store.keep("one", "m", talk(6))
    await store.keep("two", "m", talk(9, start=3))
    [found] = await pages(database, "message", Filter(conversation="two"))
    assert len(found.matches) == found.searched == 9
    [found] = await pages(database, "message", Filter(conversation="two", role="assistant"))
    assert len(found.matches) == found.searched == 5
    assert (await pages(database, "message", Filter(conversation="nobody")))[0].searched == 0


@pytest.mark.parametrize(("bound", "value", "searched"), [("_MESSAGES", 10, 10), ("_BYTES", 3000, 10)])
async def test_a_search_stops_at_its_bound_and_says_where(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, searched: int
) -> None:
    monkeypatch.setattr(searches, bound, value)
    monkeypatch.setattr(searches, "_GROUP_ROWS", 2)
    await store.keep("talk", "m", talk(30))
    found = await search(database, Query.parse('"number 0:"'), ALL)
    assert (found.matches, found.searched) == ((), searched)
    assert found.next is not None
    everything = await pages(database, '"number 0:"')
    assert [len(page.matches) for page in everything][-1] == 1
    assert sum(page.searched for page in everything) == 30


async def test_more_messages_than_one_look_takes(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "_ROWS", 7)
    await store.keep("talk", "m", talk(28))
    [found] = await pages(database, '"number 0:"')
    assert (len(found.matches), found.searched, found.next) == (1, 28, None)


async def test_a_message_larger_than_the_bound_is_still_looked_at(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "_BYTES", 1000)
    monkeypatch.setattr(searches, "_GROUP", 1000)
    await store.keep("talk", "m", said("x" * 5000 + " needle", "y" * 5000 + " needle"))
    assert [len(page.matches) for page in await pages(database, "needle")] == [1, 1]


@pytest.mark.parametrize(
    "after", ["", "-", "1", "x-" + "0" * 64, "1-" + "0" * 63, "1-" + "zz" * 32, "9" * 30 + "-" + "0" * 64]
)
async def test_a_place_that_is_none_is_told(database: Database, after: str) -> None:
    with pytest.raises(BadQuery, match="`after`"):
        await search(database, Query.parse("x"), ALL, after=after)


async def test_a_place_whose_message_was_purged_is_still_one(store: Store, database: Database) -> None:
    await store.keep("talk", "m", talk(3))
    found = await search(database, Query.parse("message"), ALL, after=f"{10**16}-{'f' * 64}")
    assert len(found.matches) == 3
