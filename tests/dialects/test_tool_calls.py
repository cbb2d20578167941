from typing import Any

import pytest

from ollama_gate.dialects.tool_calls import calls_of, native_call, openai_calls, parsed_arguments
from ollama_gate.errors import Refused
from ollama_gate.routes import LANES
from ollama_gate.wire.body import BodyLimits, Census


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a":1}', {"a": 1}),
        ("{}", {}),
        ("null", None),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"a":"\\ud83d\\ude00 \\udc00"}', {"a": "😀 \ufffd"}),
    ],
)
def test_an_arguments_text_is_an_object_or_null(text: str, arguments: Any) -> None:
    assert parsed_arguments(text, Census()) == arguments


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", '"x"', "{oops", '{"a":1} x', '{"a":NaN}', "{" * 5000, "[" * 5000, '{"a":' * 241 + "1" + "}" * 241],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed_arguments(text, Census())


def test_texts_of_arguments_hold_no_more_together_than_one_body_may() -> None:
    census, text = Census(BodyLimits(objects=10)), '{"a":[{},{},{},{},{}]}'
    for _ in range(2):
        assert parsed_arguments(text, census)
    with pytest.raises(Refused, match="more than 10 objects"):
        parsed_arguments(text, census)


@pytest.mark.parametrize(
    ("item", "times", "what"),
    [
        ("{}", 21_000, "20000 objects"),
        ("1", 160_000, "300000 values"),
        ('{"a":1,"b":2,"c":3,"d":4,"e":5}', 9000, "80000 keys"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_no_text_of_arguments_makes_more_than_a_body_may_hold(path: str, item: str, times: int, what: str) -> None:
    function = {"name": "f", "arguments": '{"a":[' + ",".join([item] * times) + "]}"}
    messages = [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}] * 2
    items = [{"type": "function_call", "call_id": "a", **function}] * 2
    with pytest.raises(Refused, match=what):
        LANES[path].read({"model": "m", "messages": messages, "input": items}, {}, "drop")


def test_a_native_call_has_no_empty_id() -> None:
    assert native_call("", "f", None) == {"function": {"index": 0, "name": "f", "arguments": None}}


@pytest.mark.parametrize(
    "message", [{}, {"tool_calls": None}, {"tool_calls": "x"}, {"tool_calls": [None, 5, {}, {"function": 1}]}]
)
def test_what_is_no_call_is_passed_over(message: dict[str, Any]) -> None:
    assert calls_of(message, "7f") == []


def test_a_call_is_read_with_what_is_missing_filled_in() -> None:
    (call,) = calls_of({"tool_calls": [{"function": {"index": "x", "name": 5, "arguments": []}}]}, "7f", before=2)
    assert openai_calls([call]) == [
        {"id": "call_7f_2", "index": 2, "type": "function", "function": {"name": "", "arguments": "{}"}}
    ]


@pytest.mark.parametrize(
    ("sent", "told"),
    [([0, 1, 2], [0, 1, 2]), ([None, None, None], [0, 1, 2]), ([0, 0, 0], [0, 1, 2]), ([1, 3, 4], [1, 3, 4])],
)
def test_no_two_calls_of_an_answer_have_one_number(sent: list[int | None], told: list[int]) -> None:
    # OpenAI's clients put the pieces of a call together by its number: of two calls they would make a third.
    calls = [{"function": {"name": "f", "arguments": {}} | ({} if at is None else {"index": at})} for at in sent]
    first = calls_of({"tool_calls": calls[:1]}, "7f")
    rest = calls_of({"tool_calls": calls[1:]}, "7f", before=1)
    assert [call.index for call in first + rest] == told


@pytest.mark.parametrize(
    ("sent", "told"),
    [({"a": 1}, '{"a":1}'), ('{"a":1}', '{"a":1}'), ("null", "{}"), ("[1]", "{}"), ("{oops", "{}"), ("[" * 5000, "{}")],
)
def test_arguments_that_a_relay_made_a_text_of_are_read(sent: Any, told: str) -> None:
    (call,) = calls_of({"tool_calls": [{"function": {"name": "f", "arguments": sent}}]}, "7f")
    assert call.arguments_text == told
