"""What each model gets: the operator's wishes applied to what Ollama says of it."""

from collections.abc import Sequence
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


BATCH: dict[str, Any] = {"load_options": {"num_batch": 64}}


class OneFile:
    """All names over one file."""

    revision = 1

    def __init__(self, *cards: ModelCard) -> None:
        self.cards = {one.key: cards for one in cards}

    def sharing(self, card: ModelCard) -> Sequence[ModelCard]:
        return self.cards[card.key]


@pytest.mark.parametrize(
    ("own", "others", "sections", "forced"),
    [
        ({}, {}, {}, {}),
        (BATCH, BATCH, {}, {}),
        (BATCH, {}, {}, {"num_batch": 64}),
        ({}, BATCH, {}, {"num_batch": 64}),
        ({"load_options": {"num_gpu": 0}}, {"load_options": {"num_gpu": 9}}, {}, {"num_gpu": 0}),
        (BATCH, {}, {"models": {"m": {"num_batch": 128}}}, {"num_batch": 128}),
        ({}, {}, {"models": {"twin": {"num_gpu": 7}}}, {"num_gpu": 7}),
        ({}, {}, {"defaults": {"num_thread": 2, "use_mmap": False}}, {"num_thread": 2, "use_mmap": False}),
    ],
)
def test_whatever_decides_how_a_file_is_loaded_is_the_same_for_all_its_names(
    own: dict[str, Any], others: dict[str, Any], sections: dict[str, Any], forced: dict[str, Any]
) -> None:
    one = card(**own)
    twin = card(key="registry.ollama.ai/library/twin:latest", name="twin:latest", digest="d2", **others)
    policies = Policies(config_for("http://127.0.0.1:1", **sections), cards=OneFile(one, twin))
    for name in (one, twin):
        found = policies.for_card(name).window
        assert found is not None
        assert dict(found.load_options) == forced


def test_a_declared_batch_is_the_limit_of_an_embedder() -> None:
    policies = Policies(config_for("http://127.0.0.1:1", models={"m": {"num_batch": 256}}))
    applied = policies.for_card(card(capabilities=frozenset({"embedding"}), load_options={"num_batch": 1024}))
    assert applied.embeds is not None
    assert (applied.num_batch, applied.embeds.tokens, applied.embeds.by) == (256, 256, "num_batch")


def test_drafting_is_known_from_the_modelfile() -> None:
    policies = Policies(config_for("http://127.0.0.1:1"))
    assert policies.for_card(card()).draft_tokens == 0
    assert policies.for_card(card(digest="e", load_options={"draft_num_predict": 4})).draft_tokens == 4
    assert policies.for_card(card(digest="f", load_options={"draft_num_predict": -1})).draft_tokens == 0
