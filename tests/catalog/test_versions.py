import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.catalog.versions import Features, version_of
from ollama_gate.config import Config
from ollama_gate.policies import Policies
from ollama_gate.upstream.client import Upstream, UpstreamSettings


def test_versions_are_read_as_numbers() -> None:
    assert version_of("0.33.1") > version_of("0.9.7-rc0+build") == (0, 9, 7)
    assert version_of("") == version_of("0.x") == version_of("0." + "9" * 5000) == ()


@pytest.mark.parametrize(
    ("version", "shows_prompts", "obeys", "one_embed_error", "takes_full_window"),
    [
        ("0.5.12", False, False, False, True),
        ("0.11.4", False, False, False, True),
        ("0.11.5", True, False, False, True),
        ("0.12.5", True, False, False, True),
        ("0.12.6", True, True, False, True),
        ("0.13.3", True, True, True, True),
        ("0.24.0", True, True, True, True),
        ("0.29.9", True, True, True, True),
        ("0.30.0-rc1", True, True, True, False),
        ("v0.33.0-rc2", True, True, True, False),
        ("1.0", True, True, True, False),
    ],
)
def test_what_is_true_of_a_version(
    version: str, *, shows_prompts: bool, obeys: bool, one_embed_error: bool, takes_full_window: bool
) -> None:
    found = Features.of(version)
    assert found == Features(version, True, shows_prompts, obeys, one_embed_error, takes_full_window)
    assert bool(found.warning) == (not obeys)


@given(st.none() | st.text() | st.sampled_from(["0.0.0", "main", "0.³3", "0.-1"]))
def test_what_is_no_release_is_taken_for_a_current_one(version: str | None) -> None:
    found = Features.of(version)
    if not found.released:
        assert found.obeys
        assert not found.takes_full_window


@pytest.mark.parametrize(("version", "largest"), [("0.29.0", 8192), ("0.30.0", 8191), (None, 8191)])
def test_the_largest_prompt_follows_the_version_of_the_moment(version: str | None, largest: int) -> None:
    met: str | None = "0.33.0"
    config = Config.model_validate({"defaults": {"budget": 8192}})
    policies = Policies(config, lambda: Features.of(met))
    card = ModelCard(key="k", name="n", digest="d", mode=Mode.JINJA)
    assert policies.for_card(card).window is not None
    met = version
    window = policies.for_card(card).window
    assert window is not None
    assert window.largest_prompt == window.budget == largest


def test_another_version_is_noticed_and_its_models_are_read_anew() -> None:
    catalog = Catalog(Upstream(UpstreamSettings(url="http://127.0.0.1:1")), clock=lambda: 0.0)
    seen: list[str | None] = []
    catalog.changed.append(lambda: seen.append(catalog.version))
    card = ModelCard(key="k", name="n", digest="d", mode=Mode.JINJA)
    catalog.met({"version": "0.29.0"})
    catalog._cards["k", "d"] = card
    catalog.met({"version": "0.29.0"})
    catalog.met(None)
    catalog.met({"version": 3})
    assert (seen, catalog._cards) == (["0.29.0"], {("k", "d"): card})
    catalog.met({"version": "0.30.0"})
    assert (seen, catalog._cards) == (["0.29.0", "0.30.0"], {})
