"""What names over one file of weights get: one window and one shift, or each change of name would reload the model."""

from dataclasses import replace
from typing import Any

import pytest

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.config import Config
from ollama_gate.policies import Dispute, Policies


def card(name: str, *, blob: str = "/b/1", num_ctx: int | None = None, vision: bool = False) -> ModelCard:
    return ModelCard(
        key=name,
        name=name,
        digest=f"digest of {name}",
        mode=Mode.GO_TEMPLATE,
        trained=65536,
        num_ctx=num_ctx,
        blob=blob,
        capabilities=frozenset({"vision"} if vision else ()),
    )


class Shelf:
    """Cards that may change."""

    def __init__(self, *cards: ModelCard) -> None:
        self.cards = cards
        self.revision = 0

    def sharing(self, card: ModelCard) -> list[ModelCard]:
        return [other for other in self.cards if other.runner == card.runner]

    def add(self, card: ModelCard) -> None:
        self.cards += (card,)
        self.revision += 1


class Wished:
    """Policies over a shelf, and what they said."""

    def __init__(self, *cards: ModelCard, defaults: dict[str, Any] | None = None, **models: dict[str, Any]) -> None:
        self.shelf = Shelf(*cards)
        self.said: list[Dispute] = []
        config = Config.model_validate({"defaults": defaults or {}, "models": models})
        self.policies = Policies(config, cards=self.shelf, disputed=self.said.append)

    def windows(self) -> dict[str, tuple[int, bool]]:
        given = {card.name: self.policies.for_card(card).window for card in self.shelf.cards}
        return {name: (window.num_ctx, window.shift) for name, window in given.items() if window is not None}


def test_a_window_declared_for_one_name_is_that_of_all() -> None:
    wished = Wished(card("a"), card("b"), card("c", blob="/b/2"), b={"num_ctx": 4096})
    assert wished.windows() == {"a": (4096, False), "b": (4096, False), "c": (8192, False)}
    assert wished.said == []


def test_a_declared_window_beats_what_a_modelfile_says() -> None:
    wished = Wished(card("a", num_ctx=32768), card("b"), b={"num_ctx": 4096})
    assert {num_ctx for num_ctx, _ in wished.windows().values()} == {4096}


@pytest.mark.parametrize(("modelfile", "given"), [(2048, 8192), (16384, 16384)])
def test_where_nothing_is_declared_no_name_gets_less_than_by_itself(modelfile: int, given: int) -> None:
    assert {num_ctx for num_ctx, _ in Wished(card("a", num_ctx=modelfile), card("b")).windows().values()} == {given}


def test_of_two_declared_windows_the_larger_is_taken_and_it_is_said_once() -> None:
    wished = Wished(card("a"), card("b"), a={"num_ctx": 4096}, b={"num_ctx": 16384})
    for _ in range(3):
        assert set(wished.windows().values()) == {(16384, False)}
        wished.shelf.revision += 1
    assert wished.said == [Dispute((("a", 4096, None), ("b", 16384, None)), 16384, shift=False)]


def test_shift_declared_for_one_name_is_that_of_all() -> None:
    assert set(Wished(card("a"), card("b"), b={"shift": True}).windows().values()) == {(8192, True)}
    forbidden = Wished(card("a"), card("b"), defaults={"shift": True}, b={"shift": False})
    assert set(forbidden.windows().values()) == {(8192, False)}


def test_what_is_not_to_be_cut_under_one_name_is_cut_under_none() -> None:
    wished = Wished(card("a"), card("b"), a={"shift": False}, b={"shift": True})
    assert set(wished.windows().values()) == {(8192, False)}
    assert len(wished.said) == 1


def test_a_name_with_pictures_widens_the_least_window_of_all() -> None:
    wished = Wished(card("a"), card("b", vision=True), defaults={"num_ctx": 512})
    assert set(wished.windows().values()) == {(2048, False)}


def test_budgets_stay_those_of_the_names() -> None:
    wished = Wished(card("a"), card("b"), a={"num_ctx": 10240, "budget": 5000}, b={"budget": "50%"})
    windows = [wished.policies.for_card(card).window for card in wished.shelf.cards]
    assert [window.budget for window in windows if window] == [5000, 5120]


def test_a_name_that_comes_later_is_taken_in() -> None:
    wished = Wished(card("a"), b={"num_ctx": 4096})
    assert wished.windows() == {"a": (8192, False)}
    wished.shelf.add(card("b"))
    assert wished.windows() == {"a": (4096, False), "b": (4096, False)}


def test_a_card_that_the_shelf_has_not_yet_counts_too() -> None:
    wished = Wished(card("a"), b={"num_ctx": 4096})
    window = wished.policies.for_card(card("b")).window
    assert window is not None
    assert window.num_ctx == 4096


def test_cloud_models_share_nothing() -> None:
    remote = replace(card("r"), mode=Mode.REMOTE)
    wished = Wished(card("a"), remote, r={"num_ctx": 4096})
    assert wished.windows() == {"a": (8192, False)}
