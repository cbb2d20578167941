"""Cards of models: asked for once, by digest, over a listing that is never old; with a fake Ollama and a fake clock."""

# ruff: noqa: ARG002 - the fake takes what the real one takes

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ollama_gate.catalog.card import Mode
from ollama_gate.catalog.catalog import FRESH, STALE, Catalog
from ollama_gate.catalog.names import InvalidName
from ollama_gate.errors import UpstreamBroken, UpstreamError, UpstreamUnreachable
from support.waiting import until


@dataclass(slots=True)
class FakeOllama:
    """Answers at once, or when `gate` is opened; counts what it is asked."""

    models: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """(digest, description) by listed name."""
    version: str = "0.33.0"
    asked: Counter[str] = field(default_factory=Counter)
    failure: UpstreamError | None = None
    status: int = 200
    rows: Any = None
    told: Any = None
    """The whole answer of /api/tags and /api/ps, instead of one that is made of `models`."""
    described: tuple[int, bytes] | None = None
    """The answer of /api/show to everything."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def get_json(self, path: str, *, within: float = 10.0) -> Any:
        self.asked[path] += 1
        if self.failure is not None:
            raise self.failure
        if path == "/api/version":
            return {"version": self.version}
        if self.told is not None:
            return self.told
        return {"models": [{"digest": digest} for digest, _ in self.models.values()]}

    async def exchange(
        self, method: str, path: str, payload: Mapping[str, Any] | None, *, within: float
    ) -> tuple[int, bytes]:
        if payload is not None:
            return await self._show(path, payload["model"])
        self.asked[path] += 1
        rows = self.rows
        if rows is None:
            # Sizes far apart, so that no model may lie over another's file.
            sizes = {name: (at + 1) * 10**9 for at, name in enumerate(self.models)}
            rows = [
                {"name": name, "model": name, "digest": digest, "size": sizes[name]}
                for name, (digest, _) in self.models.items()
            ]
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return self.status, json.dumps({"models": rows} if self.told is None else self.told).encode()

    async def _show(self, path: str, name: str) -> tuple[int, bytes]:
        self.asked[f"{path} {name}"] += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.described is not None:
            return self.described
        return (200, json.dumps(self.models[name][1]).encode()) if name in self.models else (404, b"{}")


@dataclass(slots=True)
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ollama() -> FakeOllama:
    show = {"template": "{{ range .Messages }}x{{ end }}", "capabilities": ["completion"]}
    return FakeOllama({"llama3.2:latest": ("d1", show), "mine/other:7b": ("d2", show)})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(ollama: FakeOllama, clock: Clock) -> Catalog:
    return Catalog(ollama, clock=clock)


async def test_every_spelling_has_one_card_that_is_asked_for_once(catalog: Catalog, ollama: FakeOllama) -> None:
    spellings = ["llama3.2", "llama3.2:latest", "library/llama3.2", "registry.ollama.ai/library/LLAMA3.2:Latest"]
    found = {id(await catalog.card(name)) for name in spellings}
    assert len(found) == 1
    assert ollama.asked["/api/show llama3.2:latest"] == 1
    assert ollama.asked["/api/tags"] == 1
    card = catalog.at_hand("llama3.2")
    assert card is not None
    assert (card.key, card.name, card.digest) == ("registry.ollama.ai/library/llama3.2:latest", "llama3.2:latest", "d1")


async def test_many_at_once_ask_once(catalog: Catalog, ollama: FakeOllama) -> None:
    ollama.gate.clear()
    waiting = [asyncio.ensure_future(catalog.card("llama3.2")) for _ in range(50)]
    await until(lambda: ollama.asked["/api/tags"])
    ollama.gate.set()
    cards = await asyncio.gather(*waiting)
    assert len({id(card) for card in cards}) == 1
    assert (ollama.asked["/api/tags"], ollama.asked["/api/show llama3.2:latest"]) == (1, 1)


async def test_one_that_gives_up_does_not_spoil_it_for_the_others(catalog: Catalog, ollama: FakeOllama) -> None:
    ollama.gate.clear()
    first, second = (asyncio.ensure_future(catalog.card("llama3.2")) for _ in range(2))
    await until(lambda: ollama.asked["/api/tags"])
    first.cancel()
    ollama.gate.set()
    assert await second is not None
    assert first.cancelled()
    assert ollama.asked["/api/tags"] == 1


async def test_a_fresh_listing_is_used_as_it_is(catalog: Catalog, ollama: FakeOllama, clock: Clock) -> None:
    await catalog.card("llama3.2")
    clock.now += FRESH
    assert catalog.at_hand("llama3.2") is not None
    await catalog.card("llama3.2")
    assert ollama.asked["/api/tags"] == 1


async def test_a_model_replaced_past_the_gate_is_known_with_the_first_request_after_a_pause(
    catalog: Catalog, ollama: FakeOllama, clock: Clock
) -> None:
    await catalog.card("llama3.2")
    clock.now += FRESH + 0.1
    ollama.models["llama3.2:latest"] = ("d9", {})
    card = await catalog.card("llama3.2")
    assert card is not None
    assert card.digest == "d9"


async def test_an_older_one_is_used_while_a_new_one_does_not_come(
    catalog: Catalog, ollama: FakeOllama, clock: Clock
) -> None:
    await catalog.card("llama3.2")
    clock.now += FRESH + 0.1
    assert catalog.at_hand("llama3.2") is None
    ollama.gate.clear()
    card = await asyncio.wait_for(catalog.card("llama3.2"), 1)
    assert card is not None
    await until(lambda: ollama.asked["/api/tags"] == 2)
    ollama.gate.set()
    await until(lambda: catalog.at_hand("llama3.2") is card)
    assert ollama.asked["/api/show llama3.2:latest"] == 1


async def test_one_that_is_too_old_is_waited_for(catalog: Catalog, ollama: FakeOllama, clock: Clock) -> None:
    await catalog.card("llama3.2")
    clock.now += STALE + 0.1
    ollama.models["llama3.2:latest"] = ("d9", {"capabilities": ["embedding"]})
    card = await catalog.card("llama3.2")
    assert card is not None
    assert (card.digest, card.embeds) == ("d9", True)


async def test_a_model_that_was_replaced_gets_a_new_card_and_everybody_is_told(
    catalog: Catalog, ollama: FakeOllama, clock: Clock
) -> None:
    told: list[int] = []
    catalog.changed.append(lambda: told.append(1))
    await catalog.card("llama3.2")
    told.clear()
    clock.now += FRESH + 0.1
    await catalog.card("llama3.2")
    await until(lambda: catalog.at_hand("llama3.2") is not None)
    assert told == []
    ollama.models["llama3.2:latest"] = ("d9", {})
    clock.now += FRESH + 0.1
    await catalog.card("llama3.2")
    await until(lambda: told)
    card = await catalog.card("llama3.2")
    assert card is not None
    assert card.digest == "d9"


async def test_a_model_that_is_new_is_found_at_once(catalog: Catalog, ollama: FakeOllama, clock: Clock) -> None:
    await catalog.card("llama3.2")
    ollama.models["new:latest"] = ("d3", {})
    assert await catalog.card("new") is None, "a listing of this very second is believed"
    clock.now += 1.1
    assert await catalog.card("new") is not None


async def test_what_changes_models_through_the_gate_is_seen_by_the_next_request(
    catalog: Catalog, ollama: FakeOllama
) -> None:
    told: list[int] = []
    await catalog.card("llama3.2")
    catalog.changed.append(lambda: told.append(1))
    ollama.models["llama3.2:latest"] = ("d9", {})
    catalog.invalidate()
    assert told == [1]
    assert catalog.at_hand("llama3.2") is None
    card = await catalog.card("llama3.2")
    assert card is not None
    assert card.digest == "d9"


async def test_a_listing_that_was_under_way_then_does_not_hide_the_change(catalog: Catalog, ollama: FakeOllama) -> None:
    ollama.gate.clear()
    early = asyncio.ensure_future(catalog.card("llama3.2"))
    await until(lambda: ollama.asked["/api/tags"])
    catalog.invalidate()
    ollama.models["llama3.2:latest"] = ("d9", {})
    late = asyncio.ensure_future(catalog.card("llama3.2"))
    await until(lambda: ollama.asked["/api/tags"] == 2)
    ollama.gate.set()
    await early
    card = await late
    assert card is not None
    assert card.digest == "d9"
    assert catalog.at_hand("llama3.2") is card


async def test_another_version_of_ollama_describes_everything_anew(
    catalog: Catalog, ollama: FakeOllama, clock: Clock
) -> None:
    first = await catalog.card("llama3.2")
    assert catalog.version == "0.33.0"
    ollama.version = "0.34.0"
    clock.now += STALE + 1
    second = await catalog.card("llama3.2")
    assert catalog.version == "0.34.0"
    assert second is not None
    assert second is not first
    assert ollama.asked["/api/show llama3.2:latest"] == 2


async def test_a_card_that_is_in_doubt_is_read_again_and_serves_until_then(
    catalog: Catalog, ollama: FakeOllama
) -> None:
    card = await catalog.card("llama3.2")
    assert card is not None
    ollama.models["llama3.2:latest"] = (card.digest, {"template": "{% for message in messages %}{% endfor %}"})
    catalog.doubt(card)
    assert catalog.at_hand("llama3.2") is card
    await until(lambda: catalog.at_hand("llama3.2") is not card)
    again = catalog.at_hand("llama3.2")
    assert again is not None
    assert (again.digest, str(again.mode)) == (card.digest, "jinja")


async def test_all_are_described_anew_after_they_were_forgotten(catalog: Catalog, ollama: FakeOllama) -> None:
    card = await catalog.card("llama3.2")
    catalog.forget()
    assert catalog.at_hand("llama3.2") is None
    again = await catalog.card("llama3.2")
    assert again == card
    assert again is not card
    assert ollama.asked["/api/show llama3.2:latest"] == 2


async def test_without_ollama_the_failure_is_told_and_the_next_lookup_tries_again(
    catalog: Catalog, ollama: FakeOllama
) -> None:
    ollama.failure = UpstreamUnreachable("refused")
    for _ in range(2):
        with pytest.raises(UpstreamUnreachable):
            await catalog.card("llama3.2")
    ollama.failure = None
    assert await catalog.card("llama3.2") is not None
    assert ollama.asked["/api/tags"] == 3


async def test_an_error_says_nothing_of_the_models(catalog: Catalog, ollama: FakeOllama, clock: Clock) -> None:
    ollama.status = 500
    with pytest.raises(UpstreamBroken):
        await catalog.card("llama3.2")
    ollama.status = 200
    card = await catalog.card("llama3.2")
    ollama.status = 500
    clock.now += STALE + 1
    assert await catalog.card("llama3.2") is card
    assert await catalog.tags() is None
    with pytest.raises(UpstreamBroken):
        await catalog.card("nowhere")


@pytest.mark.parametrize(
    "described",
    [(500, b'{"error":"a broken file"}'), (503, b"<html>"), (200, b"[]"), (200, b"null"), (200, b"{"), (200, b"")],
)
async def test_a_model_that_is_listed_and_not_described_is_not_taken_for_one_that_is_not_there(
    catalog: Catalog, ollama: FakeOllama, described: tuple[int, bytes]
) -> None:
    ollama.described = described
    for _ in range(2):
        with pytest.raises(UpstreamBroken, match="api/show"):
            await catalog.card("llama3.2")
    ollama.described = None
    assert await catalog.card("llama3.2") is not None


async def test_one_that_was_removed_after_it_was_listed_is_not_there(catalog: Catalog, ollama: FakeOllama) -> None:
    ollama.described = (404, b'{"error":"model not found"}')
    assert await catalog.card("llama3.2") is None


NO_LISTS: list[Any] = [{}, [], "x", 5, {"models": 5}, {"models": {"a": 1}}, {"models": "alpha"}]


@pytest.mark.parametrize("told", [*NO_LISTS, {"models": None}, {"models": [1]}, {"models": [None, {}]}])
async def test_what_is_loaded_is_not_known_from_an_answer_that_lists_nothing(
    catalog: Catalog, ollama: FakeOllama, told: Any
) -> None:
    ollama.told = told
    with pytest.raises(UpstreamBroken):
        await catalog.residents()


@pytest.mark.parametrize("told", NO_LISTS)
async def test_a_listing_that_is_none_does_not_forget_the_models(
    catalog: Catalog, ollama: FakeOllama, clock: Clock, told: Any
) -> None:
    ollama.told = told
    with pytest.raises(UpstreamBroken):
        await catalog.card("llama3.2")
    ollama.told = None
    card = await catalog.card("llama3.2")
    ollama.told = told
    clock.now += FRESH + 1
    assert await catalog.card("llama3.2") is card


async def test_null_is_how_go_lists_nothing(catalog: Catalog, ollama: FakeOllama) -> None:
    ollama.told = {"models": None}
    assert await catalog.card("llama3.2") is None


@pytest.mark.parametrize("name", ["", " ", "../etc/passwd", "a b", "x" * 400, "a//b"])
async def test_what_is_no_name_is_never_asked_for(catalog: Catalog, ollama: FakeOllama, name: str) -> None:
    with pytest.raises(InvalidName):
        await catalog.card(name)
    assert catalog.at_hand(name) is None
    assert not ollama.asked


async def test_a_cloud_model_needs_no_listing_of_its_own(catalog: Catalog) -> None:
    card = await catalog.card("gpt-oss:120b-cloud")
    assert card is not None
    assert (card.mode, card.digest) == (Mode.REMOTE, "")


@pytest.mark.parametrize(
    "rows", [[], [None, 5, "x", {}, {"name": "a"}, {"name": 5, "digest": "d"}, {"name": "a b", "digest": "d"}]]
)
async def test_rows_of_any_shape_are_read(catalog: Catalog, ollama: FakeOllama, rows: Any) -> None:
    ollama.rows = rows
    assert await catalog.card("llama3.2") is None
    assert catalog.known() == []


async def test_cards_that_are_at_hand(catalog: Catalog, clock: Clock) -> None:
    assert catalog.known() == []
    for name in ("llama3.2", "mine/other:7b"):
        await catalog.card(name)
    assert {card.name for card in catalog.known()} == {"llama3.2:latest", "mine/other:7b"}
    clock.now += 10 * STALE
    assert catalog.at_hand("llama3.2") is None
    last = catalog.last_known("llama3.2")
    assert last is not None
    assert last.digest == "d1"
    assert catalog.last_known("nowhere") is None
    assert catalog.last_known("a b") is None
