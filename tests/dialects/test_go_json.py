import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.dialects.go_json import go_json, go_number, sorted_keys


def test_what_html_would_read_is_escaped_everywhere() -> None:
    assert go_json({"<k>": ["&", "\u2028\u2029"]}) == b'{"\\u003ck\\u003e":["\\u0026","\\u2028\\u2029"]}'


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_comes_back_as_it_was(text: str) -> None:
    written = go_json(text)
    assert json.loads(written) == text
    assert not set(b"<>&") & set(written)


@pytest.mark.parametrize(("value", "written"), [(1.0, b"1"), (0.5, b"0.5"), (2, b"2"), (-0.0, b"0"), (1e22, b"1e+22")])
def test_numbers_have_a_fraction_only_when_they_need_one(value: float, written: bytes) -> None:
    assert go_json(go_number(value)) == written


def test_keys_are_sorted_all_the_way_down() -> None:
    value: Any = {"b": [{"z": 1, "y": 2}], "a": None}
    assert go_json(sorted_keys(value)) == b'{"a":null,"b":[{"y":2,"z":1}]}'


@pytest.mark.parametrize("value", [2**70, "half \ud800"])
def test_what_orjson_cannot_write_is_written_all_the_same(value: Any) -> None:
    assert json.loads(go_json([value])) == ["half ?"] if isinstance(value, str) else [value]
