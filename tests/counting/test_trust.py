"""What is believed of a model's counts, and how each comparison with Ollama changes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting.trust import DriftKind, Trust, compare, drift, learn
from ollama_gate.requests import Basis


@pytest.mark.parametrize(
    ("basis", "predicted", "at_most", "reported", "kind"),
    [
        (Basis.HERE, 100, 100, 100, DriftKind.EXACT),
        (Basis.HERE, 100, 102, 101, DriftKind.OFF),
        (Basis.ASKED, 100, 100, 100, DriftKind.EXACT),
        (Basis.ASKED, 100, 100, 99, DriftKind.OFF),
        (Basis.BYTES, 300, 300, 100, DriftKind.HELD),
        (Basis.BYTES, 300, 300, 300, DriftKind.HELD),
        (Basis.BYTES, 300, 300, 301, DriftKind.BROKEN),
        (Basis.BYTES, 300, 900, 301, DriftKind.HELD),
        (Basis.BYTES, 300, None, 301, DriftKind.BROKEN),
        (Basis.ESTIMATED, 100, 125, 125, DriftKind.HELD),
        (Basis.ESTIMATED, 100, 125, 126, DriftKind.BROKEN),
        (Basis.HERE, 100, 100, None, DriftKind.NO_SAMPLE),
        (Basis.HERE, 100, 100, 0, DriftKind.NO_SAMPLE),
        (Basis.HERE, None, None, 100, DriftKind.NO_SAMPLE),
    ],
)
def test_each_comparison_has_its_kind(
    basis: Basis, predicted: int | None, at_most: int | None, reported: int | None, kind: DriftKind
) -> None:
    assert compare(basis, predicted, at_most, reported) is kind


def after(trust: Trust, basis: Basis, predicted: int | None, reported: int | None, at_most: int | None = None) -> Trust:
    kind = compare(basis, predicted, at_most if at_most is not None else predicted, reported)
    return learn(trust, basis, kind, predicted, reported)


def test_agreement_is_counted() -> None:
    trust = after(after(Trust(), Basis.HERE, 10, 10), Basis.ASKED, 20, 20)
    assert (trust.agreed, trust.rendering, trust.vocabulary, trust.why) == (2, True, True, "")


def test_a_wrong_text_of_our_own_costs_the_rendering_only() -> None:
    trust = after(Trust(agreed=7), Basis.HERE, 100, 101)
    assert (trust.rendering, trust.vocabulary, trust.bound) == (False, True, True)
    assert trust.why == "counted 100, Ollama counted 101 (text rendered here)"


def test_a_wrong_count_of_ollamas_own_text_costs_the_vocabulary() -> None:
    trust = after(Trust(), Basis.ASKED, 100, 99)
    assert (trust.rendering, trust.vocabulary) == (False, False)


def test_a_bound_that_broke_is_never_used_again() -> None:
    trust = after(Trust(), Basis.BYTES, 100, 101)
    assert not trust.bound
    assert (trust.rendering, trust.vocabulary) == (True, True)
    assert "100" in trust.why
    assert not after(trust, Basis.BYTES, 100, 50).bound


def test_without_a_sample_nothing_is_learned() -> None:
    trust = Trust(agreed=3)
    assert after(trust, Basis.HERE, 100, None) is trust
    assert after(trust, Basis.BYTES, 300, 100) == trust


@pytest.mark.parametrize(
    ("samples", "margin"),
    [([], 0.25), ([(100, 100)], 0.02), ([(100, 90)], 0.02), ([(100, 120)], 0.25), ([(100, 120), (100, 140)], 0.5)],
)
def test_the_margin_is_the_worst_error_seen_and_a_quarter_more(samples: list[tuple[int, int]], margin: float) -> None:
    trust = Trust()
    for predicted, reported in samples:
        trust = after(trust, Basis.ESTIMATED, predicted, reported, at_most=10**9)
    assert trust.margin(0.25) == pytest.approx(margin)
    assert trust.samples == len(samples)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=8))
def test_with_its_margin_an_estimate_covers_every_error_that_was_seen(samples: list[tuple[int, int]]) -> None:
    trust = Trust()
    for predicted, reported in samples:
        trust = after(trust, Basis.ESTIMATED, predicted, reported, at_most=10**12)
    for predicted, reported in samples:
        assert predicted * (1 + trust.margin(0.25)) >= reported * 0.999999


BASES = st.sampled_from(sorted(Basis))


@given(st.lists(st.tuples(BASES, st.none() | st.integers(0, 99), st.none() | st.integers(0, 99)), max_size=12))
def test_trust_in_a_rendering_or_vocabulary_is_never_won_back(
    steps: list[tuple[Basis, int | None, int | None]],
) -> None:
    trust = Trust()
    for basis, predicted, reported in steps:
        before, trust = trust, after(trust, basis, predicted, reported)
        assert trust.rendering <= before.rendering
        assert trust.vocabulary <= before.vocabulary
        assert trust.bound <= before.bound
        assert trust.agreed >= before.agreed
        assert bool(trust.why) == (not (trust.rendering and trust.vocabulary and trust.bound))


@pytest.mark.parametrize(
    ("predicted", "reported", "ratio"), [(100, 50, 2.0), (50, 100, 0.5), (None, 5, None), (0, 5, None), (5, None, None)]
)
def test_a_ratio_needs_both_numbers(predicted: int | None, reported: int | None, ratio: float | None) -> None:
    assert drift(predicted, reported) == ratio
