import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.dialects.native import FIELDS
from ollama_gate.errors import Refusal, Refused
from ollama_gate.wire.body import decode_json
from ollama_gate.wire.folding import first_duplicate, fold

RECORDED = Path(__file__).parent.parent / "data" / "wire"
CHAT = FIELDS["/api/chat"]


def recorded_body(name: str) -> dict[str, Any]:
    return fold(decode_json(json.loads((RECORDED / f"{name}.json").read_text())["request"]["body"].encode()), CHAT)


def refusal_of(body: dict[str, Any]) -> Refusal:
    with pytest.raises(Refused) as caught:
        fold(body, CHAT)
    return caught.value.refusal


def test_a_body_with_its_keys_in_place_is_left_alone() -> None:
    body = recorded_body("native-chat-tools-call")
    before = copy.deepcopy(body)
    assert fold(body, CHAT) is body
    assert body == before


def test_the_long_s_that_ollama_read_as_shift_is_read_as_shift() -> None:
    assert recorded_body("key-fold-long-s")["shift"] is False


def test_the_odd_case_that_ollama_read_as_truncate_is_read_as_truncate() -> None:
    body = recorded_body("key-odd-case-truncate")
    assert body["truncate"] is False
    assert list(body) == ["model", "stream", "truncate", "messages", "options"]


def test_keys_inside_options_are_left_as_ollama_leaves_them() -> None:
    assert recorded_body("key-case-in-options")["options"] == {"NUM_PREDICT": 1, "num_predict": 3, "temperature": 0}


def test_a_second_model_in_other_letters_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        recorded_body("key-duplicate-model")
    refusal = caught.value.refusal
    assert (refusal.status, refusal.code, refusal.param) == (400, "ambiguous_keys", "model")
    assert "'model'" in refusal.message
    assert "'MODEL'" in refusal.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [], "Messages": []}, "messages"),
        ({"Messages": [], "MESSAGES": []}, "messages"),
        ({"messages": [], "me\u017f\u017fages": []}, "messages"),
        ({"keep_alive": 1, "\u212aeep_alive": 2}, "keep_alive"),
        ({"truncate": False, "Truncate": True}, "truncate"),
        ({"messages": [{}, {"content": "short", "Content": "long"}]}, "messages[1].content"),
        (
            {"messages": [{"tool_calls": [{"function": {"name": "a", "Name": "b"}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        ({"messages": [{"content": [{"type": "text", "text": "a", "Text": "b"}]}]}, "messages[0].content[0].text"),
        ({"Tools": [{"function": {"description": "", "Description": "long"}}]}, "tools[0].function.description"),
        (
            {"tools": [{"function": {"parameters": {"properties": {"x": {"enum": [], "Enum": ["long"]}}}}}]},
            "tools[0].function.parameters.properties.x.enum",
        ),
        (
            {"tools": [{"function": {"parameters": {"properties": {"x": {"anyOf": [{"type": "a", "TYPE": "b"}]}}}}}]},
            "tools[0].function.parameters.properties.x.anyOf[0].type",
        ),
        ({"input": [{"role": "user", "content": "a", "CONTENT": "b"}]}, "input[0].content"),
    ],
)
def test_two_keys_for_one_field_are_refused_at_every_level_that_is_read(body: dict[str, Any], param: str) -> None:
    refusal = refusal_of(body)
    assert (refusal.status, refusal.code, refusal.param) == (400, "ambiguous_keys", param)


def test_odd_keys_below_are_renamed_in_their_place() -> None:
    schema = {"Type": "object", "Properties": {"Path": {"Description": "where", "ANYOF": [{"tyPe": "string"}]}}}
    body = {
        "messages": [
            {"ROLE": "user", "Content": "hi", "tool_calls": [{"Function": {"NAME": "f", "arguments": {"A": 1}}}]}
        ],
        "tools": [{"Function": {"Name": "f", "Parameters": schema}}],
    }
    assert fold(body, CHAT) == {
        "messages": [
            {"role": "user", "content": "hi", "tool_calls": [{"function": {"name": "f", "arguments": {"A": 1}}}]}
        ],
        "tools": [
            {
                "function": {
                    "name": "f",
                    "parameters": {
                        "type": "object",
                        "properties": {"Path": {"description": "where", "anyOf": [{"type": "string"}]}},
                    },
                }
            }
        ],
    }


@pytest.mark.parametrize(
    "body",
    [
        {"options": {"Seed": 1, "seed": 2}},
        {"format": {"Type": "object", "type": "object"}},
        {"messages": [{"tool_calls": [{"function": {"arguments": {"a": 1, "A": 2}}}]}]},
        {"tools": [{"function": {"parameters": {"properties": {"a": {"items": {"x": 1, "X": 2}}, "A": {}}}}}]},
        {"unknown": 1, "Unknown": 2},
        {"messages": None, "tools": "none", "input": ["a", "b"]},
        {"messages": ["text", 7, None, []], "tools": {"function": []}},
        {"ſ": 1, "s": 2, "": 3, "MODEL\u0130": 4},
    ],
)
def test_maps_and_what_is_no_field_keep_their_keys(body: dict[str, Any]) -> None:
    assert fold(copy.deepcopy(body), CHAT) == body


@given(st.dictionaries(st.sampled_from(sorted(CHAT)), st.integers(), max_size=6), st.data())
def test_any_spelling_of_each_field_folds_to_the_field(body: dict[str, Any], data: st.DataObject) -> None:
    def respell(name: str) -> str:
        swap = {"s": "sS\u017f", "k": "kK\u212a"}
        return "".join(data.draw(st.sampled_from(swap.get(letter, letter + letter.upper()))) for letter in name)

    assert fold({respell(name): value for name, value in body.items()}, CHAT) == body


def test_the_first_duplicate_is_found_wherever_it_is() -> None:
    assert first_duplicate(b'{"a":[{"b":1},{"b":1,"c":{"d":1.5,"d":2}}],"a":3}') == "d"
    assert first_duplicate(b'{"a":{"b":1},"b":2,"c":"a"}') is None
