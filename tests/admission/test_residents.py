import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.admission.residents import Reported, read_ps
from support.unhurried import unhurried

RECORDED = Path(__file__).parents[1] / "data" / "admission" / "ps.json"


def test_a_recorded_answer_is_read() -> None:
    answer = json.loads(RECORDED.read_text())
    # Recorded at 2026-11-30T08:23:25Z, when the first model had half an hour left.
    found = read_ps(answer, str.upper, now=100.0, wall=1_796_027_005.0)
    first = found[0]
    assert (first.model, first.size, first.size_vram, first.num_ctx) == ("GEMMA3:270M", 284101180, 0, 1024)
    assert first.expires_at == pytest.approx(100.0 + 1800, abs=1)
    assert [entry.model for entry in found[1:]] == ["ALL-MINILM:LATEST", "GATE-NATIVE-SMALL:LATEST"]


@pytest.mark.parametrize("moment", [None, "never", 7, "2318-02-30T00:00:00Z", ""])
def test_an_unreadable_expiry_is_unknown(moment: Any) -> None:
    answer = {"models": [{"model": "m", "size": 1, "expires_at": moment}]}
    assert read_ps(answer, str, now=0.0, wall=0.0) == (Reported("m", 1, 0, 0, None),)


@pytest.mark.parametrize("size", [None, -5, 1e30, "many", [7], {}])
def test_a_model_whose_size_cannot_be_read_is_loaded_all_the_same(size: Any) -> None:
    answer = {"models": [{"model": "m", "size": size, "context_length": 4096}]}
    assert read_ps(answer, str, now=0.0, wall=0.0) == (Reported("m", 0, 0, 4096, None),)


def test_a_model_kept_for_ever_expires_far_away() -> None:
    answer = {"models": [{"model": "m", "size": 1, "expires_at": "2318-04-01T00:00:00.123456789+02:00"}]}
    (entry,) = read_ps(answer, str, now=0.0, wall=1.8e9)
    assert entry.expires_at is not None
    assert entry.expires_at > 9e9


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)
entries = st.fixed_dictionaries({"model": json_values, "size": json_values, "expires_at": json_values})


@unhurried
@given(st.dictionaries(st.just("models"), json_values | st.lists(entries | json_values)))
def test_any_answer_is_survived(answer: dict[str, Any]) -> None:
    for entry in read_ps(answer, str, now=0.0, wall=0.0):
        assert entry.model
        assert entry.size >= 0
