"""Types of options: what Ollama answers with 500 is a 400 that names the option."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.dialects.options import BOOLEANS, FLOATS, INTEGERS, check_options
from ollama_gate.errors import Refused
from ollama_gate.requests import LOAD_OPTIONS
from support.recorded import recording


def wrong(name: str, value: object) -> str:
    with pytest.raises(Refused) as refused:
        check_options({name: value})
    refusal = refused.value.refusal
    assert (refusal.status, refusal.param) == (400, f"options.{name}")
    return refusal.message


def test_the_words_are_ollamas() -> None:
    recorded = recording("native-chat-option-wrong-type")
    options = recorded.json()["options"]
    [(name, value)] = options.items()
    assert wrong(name, value) in "".join(recorded.chunks).replace('\\"', '"')


@pytest.mark.parametrize("name", sorted(INTEGERS))
@pytest.mark.parametrize("value", ["5", True, [], {}, 2**63, -(2**63) - 1, 1e19])
def test_an_integer_is_one_that_go_can_hold(name: str, value: object) -> None:
    assert "integer" in wrong(name, value)


@pytest.mark.parametrize("name", sorted(FLOATS))
@pytest.mark.parametrize("value", ["0.5", True, [], {}, 1e39, -1e308, 10**300])
def test_a_number_is_a_number(name: str, value: object) -> None:
    assert "number" in wrong(name, value)


@pytest.mark.parametrize(
    ("name", "value"), [("use_mmap", 1), ("use_mmap", "true"), ("stop", "x"), ("stop", ["x", 5]), ("stop", {})]
)
def test_switches_and_lists_are_what_they_are(name: str, value: object) -> None:
    wrong(name, value)


@pytest.mark.parametrize(
    "options",
    [
        {"num_ctx": 4096, "num_predict": -1, "seed": 2**63 - 1, "top_k": 40.9},
        {"temperature": 0, "top_p": 0.5},
        {"use_mmap": False, "stop": ["x"]},
        {"stop": []},
        {"unknown": "x", "NUM_CTX": "x", "": None},
        dict.fromkeys((*INTEGERS, *FLOATS, *BOOLEANS, "stop")),
        {},
    ],
)
def test_what_ollama_takes_is_taken(options: dict[str, Any]) -> None:
    check_options(options)


@given(st.sampled_from(sorted(INTEGERS)), st.floats(-9e18, 9e18))
def test_a_fraction_is_cut_and_no_error(name: str, value: float) -> None:
    check_options({name: value})


def test_what_reloads_is_known_by_type_too() -> None:
    assert LOAD_OPTIONS <= INTEGERS | BOOLEANS
