"""What each model gets: the operator's wishes applied to what Ollama says of it."""

from typing import Any

import pytest

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.versions import Features
from ollama_gate.policies import Policies
from ollama_gate.window import Window
from support.gate import config_for


def card(**more: Any) -> ModelCard:
    key = "registry.ollama.ai/library/m:latest"
    return ModelCard(**{"key": key, "name": "m:latest", "digest": "d", "mode": Mode.GO_TEMPLATE, **more})


def window(one: ModelCard, **sections: Any) -> Window:
    found = Policies(config_for("http://127.0.0.1:1", **sections)).for_card(one).window
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sections", "more", "num_ctx", "budget"),
    [
        ({}, {}, 8192, 6553),
        ({"defaults": {"num_ctx": 4096}}, {}, 4096, 3276),
        ({"defaults": {"num_ctx": 4096}}, {"num_ctx": 2048}, 2048, 1638),
        ({"models": {"m": {"num_ctx": 1024}}}, {"num_ctx": 2048}, 1024, 819),
        ({"models": {"m": {"num_ctx": 99_999}}}, {"trained": 512}, 512, 409),
        ({"models": {"m": {"budget": 1000}}}, {}, 8192, 1000),
        ({"models": {"m": {"budget": "50%"}}}, {}, 8192, 4096),
        ({"defaults": {"budget": "50%"}, "models": {"m": {"num_ctx": 1000}}}, {}, 1000, 500),
        ({"models": {"other": {"num_ctx": 1024}}}, {}, 8192, 6553),
        ({"defaults": {"num_ctx": 512}}, {"capabilities": frozenset({"vision"})}, 2048, 1638),
    ],
)
def test_the_nearest_wish_holds(sections: dict[str, Any], more: dict[str, Any], num_ctx: int, budget: int) -> None:
    found = window(card(**more), **sections)
    assert (found.num_ctx, found.budget, found.shift) == (num_ctx, budget, False)


@pytest.mark.parametrize("name", ["m", "M:Latest", "library/m", "registry.ollama.ai/library/m:latest"])
def test_a_model_is_configured_under_any_of_its_names(name: str) -> None:
    assert window(card(), models={name: {"num_ctx": 256}}).num_ctx == 256


def test_an_embedder_has_a_limit_for_each_input() -> None:
    policies = Policies(config_for("http://127.0.0.1:1"))
    applied = policies.for_card(card(capabilities=frozenset({"embedding"}), trained=512))
    assert applied.embeds is not None
    assert (applied.embeds.tokens, applied.embeds.by) == (512, "num_ctx")
    assert policies.for_card(card(digest="other")).embeds is None


def test_a_model_in_the_cloud_is_not_pinned() -> None:
    applied = Policies(config_for("http://127.0.0.1:1")).for_card(card(mode=Mode.REMOTE))
    assert (applied.window, applied.embeds) == (None, None)


def test_what_ollama_does_not_list_still_gets_a_window() -> None:
    config = config_for("http://127.0.0.1:1", models={"m": {"num_ctx": 1024}})
    assert Policies(config).unknown("registry.ollama.ai/library/m:latest").window == Window(1024, 819)
    assert Policies(config).unknown("").window == Window(8192, 6553)


def test_it_is_worked_out_once_for_each_description_and_each_ollama() -> None:
    features = Features.of("0.33.0")
    policies = Policies(config_for("http://127.0.0.1:1"), lambda: features)
    first = policies.for_card(card())
    assert policies.for_card(card()) is first
    assert policies.for_card(card(digest="other", num_ctx=512)) is not first
    features = Features.of("0.12.0")
    old = policies.for_card(card()).window
    assert old is not None
    assert (old.old_boundary, old.guarded) == (True, False)
    features = Features.of("0.33.0")
    assert policies.for_card(card()) is first


def test_a_thousand_models_do_not_grow_it_without_bound() -> None:
    policies = Policies(config_for("http://127.0.0.1:1"))
    for number in range(1100):
        assert policies.for_card(card(digest=str(number))).window is not None
    assert len(policies._applied) <= 1025
