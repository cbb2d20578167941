"""Requests decoded as Go decodes them into Ollama's structs, against what Ollama's own structs held."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting.structs import (
    Message,
    ToolCall,
    clean_text,
    decode_free,
    decode_messages,
    decode_text,
    decode_tools,
    lower_text,
)
from ollama_gate.errors import RenderError, TemplateRefused
from support.gotemplates import recorded, render

DECODING = recorded("decoding")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(["type", "role"]), inner),
    max_leaves=12,
)


@pytest.mark.slow
def test_bodies_decode_as_in_ollama() -> None:
    for body, truth in DECODING["rows"]:
        if truth is None:
            with pytest.raises(TemplateRefused):
                render(DECODING["template"], body)
        else:
            assert render(DECODING["template"], body) == truth


def test_what_depends_on_the_order_of_keys_is_given_up() -> None:
    assert DECODING["unknown"]
    for body in DECODING["unknown"]:
        with pytest.raises(RenderError):
            render(DECODING["template"], body)


@given(json_values)
def test_any_value_decodes_or_is_refused(value: Any) -> None:
    for decode in (decode_messages, decode_tools, decode_free):
        try:
            decode(value)
        except RenderError:
            continue


def test_keys_match_whatever_their_case() -> None:
    (message,) = decode_messages([{"ROLE": "User", "Content": "hi", "Tool_Name": "f", "Tool_Call_Id": "c"}])
    assert message == Message(role="user", content="hi", tool_name="f", tool_call_id="c")
    (tool,) = decode_tools([{"FUNCTION": {"de\u017fcription": "d"}}]) or ()
    assert tool.function.description == "d"


def test_of_two_texts_the_last_one_counts() -> None:
    (message,) = decode_messages([{"content": "a", "Content": "B"}])
    assert message.content == "B"


def test_a_null_leaves_a_field_empty_and_a_missing_one_too() -> None:
    assert decode_messages([{"role": None, "content": None}, None, {}]) == (Message(), Message(), Message())


def test_absent_arguments_are_told_from_null_and_from_empty() -> None:
    calls = [{"function": {"arguments": {}}}, {"function": {"arguments": None}}, {"function": {}}, None]
    (message,) = decode_messages([{"tool_calls": calls}])
    assert message.tool_calls == (ToolCall(arguments={}), ToolCall(null_arguments=True), ToolCall(), ToolCall())


@pytest.mark.parametrize("arguments", ["{}", [], 1, True])
def test_arguments_are_an_object(arguments: object) -> None:
    with pytest.raises(TemplateRefused, match="arguments"):
        decode_messages([{"tool_calls": [{"function": {"arguments": arguments}}]}])


@pytest.mark.parametrize("index", [1.0, "1", True, 2**63])
def test_an_index_is_an_int(index: object) -> None:
    with pytest.raises(TemplateRefused, match="index"):
        decode_messages([{"tool_calls": [{"function": {"index": index}}]}])


def test_content_is_a_text() -> None:
    contents: list[object] = [[{"type": "text", "text": "x"}], 1, {}]
    for content in contents:
        with pytest.raises(TemplateRefused, match="content"):
            decode_messages([{"content": content}])


def test_images_are_counted_and_an_empty_list_is_kept() -> None:
    one, none, empty = decode_messages([{"images": ["aGk=", None]}, {"images": None}, {"images": []}])
    assert (one.images, none.images, empty.images) == (2, 0, 0)
    assert (one.empty_images, none.empty_images, empty.empty_images) == (False, False, True)


def test_absent_tools_are_told_from_none() -> None:
    assert decode_tools(None) is None
    assert decode_tools([]) == ()


def test_numbers_are_floats_and_finite() -> None:
    assert decode_free({"a": [1, 2**70]}) == {"a": [1.0, float(2**70)]}
    assert isinstance(decode_free(1), float)
    for number in (float("inf"), float("nan"), 10**400):
        with pytest.raises(TemplateRefused):
            decode_free(number)


def test_a_lone_surrogate_is_repaired_but_not_in_an_ordered_key() -> None:
    assert decode_text("a\ud800b\udc00", "content") == "a\ufffdb\ufffd"
    assert decode_free({"\ud800": 1}) == {"\ufffd": 1.0}
    broken: dict[str, object] = {"\ud800": {}}
    for properties in (broken, {"a": {"properties": broken}}):
        with pytest.raises(TemplateRefused, match="escape"):
            decode_tools([{"function": {"parameters": {"properties": properties}}}])


@given(st.text())
def test_clean_text_can_be_encoded_and_leaves_the_rest(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert clean == "".join("\ufffd" if "\ud800" <= rune <= "\udfff" else rune for rune in text) or any(
        "\ud800" <= rune <= "\udbff"
        for rune in text  # two halves side by side are one character, in Go too
    )


def test_roles_are_lowered_rune_by_rune() -> None:
    assert lower_text("SYSTEM") == "system"
    assert lower_text("ΑΣ") == "ας".replace("ς", "σ")
    assert lower_text("İ") == "i"


def offering(value: Any) -> list[Any]:
    """One tool, one of whose properties has this value among those it may take."""
    return [{"function": {"parameters": {"properties": {"p": {"enum": [value]}}}}}]


@given(json_values)
def test_tools_that_come_again_decode_to_the_same(value: Any) -> None:
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append(repr(decode_tools(offering(value))))
        except RenderError as refused:
            outcomes.append(repr(refused))
    assert outcomes[0] == outcomes[1]


def test_tools_that_python_calls_equal_are_told_apart() -> None:
    decoded = [decode_tools(offering(value)) for value in (1, True, 1, "1")]
    held = [(tools or ())[0].function.parameters.properties["p"].enum for tools in decoded]  # type: ignore[index]
    assert list(map(repr, held)) == ["[1.0]", "[True]", "[1.0]", "['1']"]
    assert decode_tools(offering(None)) is not None
    with pytest.raises(TemplateRefused):
        decode_tools(offering(float("nan")))


def test_what_is_done_to_a_request_later_is_not_kept() -> None:
    tools = offering("a")
    before = decode_tools(tools)
    tools[0]["function"]["parameters"]["properties"]["p"]["enum"].append("b")
    assert decode_tools(offering("a")) == before
    assert decode_tools(tools) != before


def test_tools_too_big_to_be_kept_are_decoded_all_the_same() -> None:
    (tool,) = decode_tools([{"type": "function", "items": "x" * 200_000}]) or ()
    assert tool.items == "x" * 200_000
