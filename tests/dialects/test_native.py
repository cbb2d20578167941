"""Ollama's own API read: what must be understood to count, what is left to Ollama, and the gate's errors."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.dialects import native
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import Control, InferenceRequest, Kind

HI = [{"role": "user", "content": "hi"}]


def parse(path: str, **body: Any) -> InferenceRequest:
    return native.parse(path, {"model": "m", **body})


def refusal(path: str, **body: Any) -> Refusal:
    with pytest.raises(Refused) as refused:
        native.parse(path, {"model": "m", **body})
    found = refused.value.refusal
    assert (found.status, found.code, found.type) == (400, "invalid_request", "invalid_request_error")
    return found


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/api/chat", {"messages": HI}, Kind.CHAT),
        ("/api/generate", {"prompt": "x"}, Kind.GENERATE),
        ("/api/embed", {"input": "x"}, Kind.EMBED),
        ("/api/embeddings", {"prompt": "x"}, Kind.EMBED),
    ],
)
@pytest.mark.parametrize(("stream", "streams"), [(None, True), (True, True), (False, False)])
def test_a_stream_is_what_comes_unless_it_is_switched_off(
    path: str, body: dict[str, Any], kind: Kind, stream: object, *, streams: bool
) -> None:
    found = parse(path, **body, **({} if stream is None else {"stream": stream}))
    assert found.kind is kind
    assert found.stream is (streams and kind is not Kind.EMBED)
    assert (found.path, found.model, found.dialect, found.control) == (path, "m", "native", Control.NONE)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/api/chat", {"messages": "x"}, "messages"),
        ("/api/chat", {"messages": {}}, "messages"),
        ("/api/chat", {"messages": ["x"]}, "messages[0]"),
        ("/api/chat", {"messages": [None]}, "messages[0]"),
        ("/api/chat", {"messages": [*HI, {"content": []}]}, "messages[1].content"),
        ("/api/chat", {"messages": [{"content": 5}]}, "messages[0].content"),
        ("/api/chat", {"messages": [{"role": 5}]}, "messages[0].role"),
        ("/api/chat", {"messages": [{"thinking": []}]}, "messages[0].thinking"),
        ("/api/chat", {"messages": [{"images": "x"}]}, "messages[0].images"),
        ("/api/chat", {"messages": [{"tool_calls": {}}]}, "messages[0].tool_calls"),
        ("/api/chat", {"messages": [{"tool_calls": ["x"]}]}, "messages[0].tool_calls[0]"),
        ("/api/chat", {"messages": [{"tool_calls": [{"function": 1}]}]}, "messages[0].tool_calls[0].function"),
        (
            "/api/chat",
            {"messages": [{"tool_calls": [{"function": {"arguments": "{}"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ("/api/chat", {"messages": HI, "tools": {}}, "tools"),
        ("/api/chat", {"messages": HI, "tools": ["x"]}, "tools[0]"),
        ("/api/chat", {"messages": HI, "stream": "yes"}, "stream"),
        ("/api/chat", {"messages": HI, "options": []}, "options"),
        ("/api/chat", {"messages": HI, "options": "x"}, "options"),
        ("/api/chat", {"messages": HI, "options": {"num_ctx": "x"}}, "options.num_ctx"),
        ("/api/generate", {"prompt": 5}, "prompt"),
        ("/api/generate", {"prompt": "x", "suffix": []}, "suffix"),
        ("/api/generate", {"prompt": "x", "system": 1}, "system"),
        ("/api/generate", {"prompt": "x", "template": {}}, "template"),
        ("/api/generate", {"prompt": "x", "context": "x"}, "context"),
        ("/api/generate", {"prompt": "x", "context": [1, "x"]}, "context"),
        ("/api/generate", {"prompt": "x", "context": [1, True]}, "context"),
        ("/api/generate", {"prompt": "x", "images": {}}, "images"),
        ("/api/generate", {"prompt": "x", "raw": 1}, "raw"),
        ("/api/embed", {"input": 5}, "input"),
        ("/api/embed", {"input": {}}, "input"),
        ("/api/embed", {"input": ["x", 5]}, "input[1]"),
        ("/api/embed", {"input": [[1, 2]]}, "input[0]"),
        ("/api/embeddings", {"prompt": ["x"]}, "prompt"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(path: str, body: dict[str, Any], param: str) -> None:
    found = refusal(path, **body)
    assert found.param == param
    assert param.rpartition(".")[2].partition("[")[0] in found.message
    for gibberish in ("unmarshal", "Go ", "NoneType", "int object"):
        assert gibberish not in found.message


@pytest.mark.parametrize("model", [None, 5, [], {}, True])
def test_a_model_must_be_named(model: object) -> None:
    assert refusal("/api/chat", model=model, messages=HI).param == "model"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": HI, "think": "maximal"},
        {"messages": HI, "format": ""},
        {"messages": HI, "format": {"type": 5}},
        {"messages": HI, "keep_alive": "soon"},
        {"messages": HI, "unknown": [1]},
        {"messages": [{"role": "critic", "content": None, "name": 5}]},
        {"messages": HI, "options": {"unknown": "x", "temperature": None}},
        {"messages": HI, "options": None, "tools": None, "stream": None},
    ],
)
def test_what_need_not_be_understood_is_left_to_ollama(body: dict[str, Any]) -> None:
    assert parse("/api/chat", **body).body == {"model": "m", **body}


@pytest.mark.parametrize("wish", ["xml", 5, 0, False, True, [], [1], ["json"]])
@pytest.mark.parametrize("route", [{"path": "/api/chat", "messages": HI}, {"path": "/api/generate", "prompt": "hi"}])
def test_a_format_that_ollama_would_fail_on_is_refused_by_name(wish: object, route: dict[str, Any]) -> None:
    """native-chat-format-bad: 500 there."""
    assert refusal(**route, format=wish).param == "format"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/chat", {"prompt": "hi"}, "messages"),
        ("/api/chat", {"messages": [], "input": ["hi"]}, "messages"),
        ("/api/generate", {"messages": HI}, "prompt"),
        ("/api/generate", {"prompt": "", "messages": HI}, "prompt"),
        ("/api/embed", {"prompt": "hi"}, "input"),
        ("/api/embeddings", {"input": "hi"}, "prompt"),
        ("/api/chat", {"message": HI}, "messages"),
        ("/api/generate", {"content": "hi"}, "prompt"),
        ("/api/embed", {"inputs": ["hi"]}, "input"),
    ],
)
def test_what_stands_in_another_routes_field_is_refused_and_loads_nothing(
    path: str, body: dict[str, Any], field: str
) -> None:
    assert refusal(path, **body).param == field


@pytest.mark.parametrize("empty", [{"messages": []}, {"messages": None}, {}])
@pytest.mark.parametrize(
    ("keep_alive", "control"),
    [
        (None, Control.LOAD),
        (0, Control.UNLOAD),
        (0.0, Control.UNLOAD),
        (-0.0, Control.UNLOAD),
        ("0", Control.UNLOAD),
        ("0s", Control.UNLOAD),
        ("0h0m", Control.UNLOAD),
        ("-0m", Control.UNLOAD),
        ("0.0s", Control.UNLOAD),
        (5, Control.LOAD),
        (-1, Control.LOAD),
        (0.5, Control.LOAD),
        ("5m", Control.LOAD),
        ("0s1ms", Control.LOAD),
        ("", Control.LOAD),
        ("s", Control.LOAD),
        ("00", Control.LOAD),
        (True, Control.LOAD),
        (False, Control.LOAD),
        ([], Control.LOAD),
    ],
)
def test_a_request_without_a_prompt_is_a_message_to_the_scheduler(
    empty: dict[str, Any], keep_alive: object, control: Control
) -> None:
    more = {} if keep_alive is None else {"keep_alive": keep_alive}
    assert parse("/api/chat", **empty, **more).control is control
    assert parse("/api/chat", messages=HI, **more).control is Control.NONE


@pytest.mark.parametrize(
    ("path", "body", "control"),
    [
        ("/api/generate", {}, Control.LOAD),
        ("/api/generate", {"prompt": ""}, Control.LOAD),
        ("/api/generate", {"prompt": "", "suffix": "x", "images": ["x"]}, Control.LOAD),
        ("/api/generate", {"prompt": "", "keep_alive": 0}, Control.UNLOAD),
        ("/api/generate", {"prompt": " "}, Control.NONE),
        ("/api/embed", {"input": []}, Control.LOAD),
        ("/api/embed", {"input": ""}, Control.LOAD),
        ("/api/embed", {"input": [""]}, Control.NONE),
        ("/api/embeddings", {"prompt": ""}, Control.LOAD),
    ],
)
def test_each_route_has_its_own_kind_of_nothing(path: str, body: dict[str, Any], control: Control) -> None:
    assert parse(path, **body).control is control


@pytest.mark.parametrize(
    ("options", "output", "num_ctx"),
    [
        (None, None, None),
        ({}, None, None),
        ({"num_predict": 5, "num_ctx": 9}, 5, 9),
        ({"num_predict": -1}, -1, None),
        ({"num_predict": 5.9, "num_ctx": 4096.5}, 5, 4096),
        ({"num_predict": None, "num_ctx": None}, None, None),
        ({"num_predict": 0}, 0, None),
    ],
)
def test_what_a_client_asked_for_is_known(
    options: dict[str, Any] | None, output: int | None, num_ctx: int | None
) -> None:
    found = parse("/api/chat", messages=HI, options=options)
    assert (found.asked_output, found.asked_num_ctx) == (output, num_ctx)


def test_the_texts_to_embed_are_found() -> None:
    assert native.inputs(parse("/api/embed", input="x")) == ["x"]
    assert native.inputs(parse("/api/embed", input=["x", ""])) == ["x", ""]
    assert native.inputs(parse("/api/embed", input=[])) == []
    assert native.inputs(parse("/api/embeddings", prompt="x")) == ["x"]


def test_a_refusal_keeps_error_a_string_and_the_facts_beside_it() -> None:
    body, content_type = native.render_refusal(
        Refusal(400, "context_length_exceeded", "too \u00e9 long", param="messages", details={"budget": 5}), "7f"
    )
    assert content_type == "application/json; charset=utf-8"
    assert json.loads(body) == {
        "error": "too \u00e9 long",
        "code": "context_length_exceeded",
        "type": "invalid_request_error",
        "param": "messages",
        "details": {"budget": 5},
    }
    assert "details" not in json.loads(native.render_refusal(Refusal(400, "x", "y"), "7f")[0])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(native.FIELDS))
@given(data=st.data())
def test_no_body_makes_it_fail_in_any_other_way(path: str, data: st.DataObject) -> None:
    keys = st.sampled_from(sorted(native.FIELDS[path])) | st.text(max_size=4)
    body = data.draw(st.dictionaries(keys, JSON, max_size=6))
    assert _outcome(path, {"model": "m", **body}) in (200, 400)


def _outcome(path: str, body: dict[str, Any]) -> int:
    try:
        native.parse(path, body)
    except Refused as no:
        return no.refusal.status if no.refusal.param else 0
    return 200


@pytest.mark.parametrize("token", [-1, 2**31, 10**30, True, "1", 1.5, None])
def test_a_context_is_of_tokens_that_can_be(token: object) -> None:
    assert refusal("/api/generate", prompt="hi", context=[1, token]).param == "context"
    assert parse("/api/generate", prompt="hi", context=[0, 2**31 - 1]).body["context"]


def test_what_stands_where_ollama_does_not_read_it_is_said() -> None:
    body = {"temperature": 0, "num_predict": 5, "stop": ["x"], "response_format": {"type": "json_object"}}
    notes = (
        "num_predict, stop, temperature ignored: this route reads options",
        "response_format ignored: this route reads format",
    )
    assert sorted(parse("/api/chat", messages=HI, **body).notes) == sorted(notes)
    assert sorted(parse("/api/generate", prompt="x", **body).notes) == sorted(notes)
    lost = parse("/api/chat", messages=HI, system="Be brief.")
    assert lost.notes == ("system ignored: this route reads messages of the role system",)
    assert parse("/api/generate", prompt="x", system="Be brief.").notes == ()
    assert parse("/api/chat", messages=HI, options={"temperature": 0}, system="", stop=None).notes == ()


@pytest.mark.parametrize(
    ("message", "note"),
    [
        ({"role": "tool", "content": "5", "name": "ask"}, "name of messages ignored: this route reads tool_name"),
        (
            {"role": "tool", "content": "5", "toolCallId": "c"},
            "toolCallId of messages ignored: this route reads tool_call_id",
        ),
        (
            {"role": "assistant", "toolCalls": [{"name": "ask"}]},
            "toolCalls of messages ignored: this route reads tool_calls",
        ),
        (
            {"role": "assistant", "function_call": {"name": "ask"}},
            "function_call of messages ignored: this route reads tool_calls",
        ),
        (
            {"role": "assistant", "content": "x", "reasoning_content": "because"},
            "reasoning_content of messages ignored: this route reads thinking",
        ),
    ],
)
def test_what_a_message_says_in_another_apis_field_is_said(message: dict[str, Any], note: str) -> None:
    assert parse("/api/chat", messages=[*HI, message, message, *HI]).notes == (note,)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hi", "name": "Ann"},
        {"role": "tool", "content": "5", "name": "ask", "tool_name": "ask"},
        {"role": "assistant", "content": "x", "function_call": None, "toolCalls": [], "reasoning": ""},
        {"role": "assistant", "content": "x", "reasoning": "because", "thinking": "because"},
    ],
)
def test_a_message_that_loses_nothing_has_no_note(message: dict[str, Any]) -> None:
    assert parse("/api/chat", messages=[*HI, message]).notes == ()


def test_parameters_beside_a_tools_function_are_said_to_be_ignored() -> None:
    beside = {"type": "function", "function": {"name": "ask"}, "parameters": {"type": "object"}}
    inside = {"type": "function", "function": {"name": "ask", "parameters": {"type": "object"}}, "parameters": {}}
    note = "parameters of tools ignored: this route reads function.parameters"
    assert parse("/api/chat", messages=HI, tools=[inside, None, beside, beside]).notes == (note,)
    assert parse("/api/chat", messages=HI, tools=[inside]).notes == ()
    assert parse("/api/chat", messages=HI, tools=[{"function": "x", "parameters": {"a": 1}}]).notes == ()


def test_a_call_whose_name_stands_elsewhere_is_refused() -> None:
    calls = [{"function": {"name": "ask"}}, {"name": "ask", "arguments": {}}]
    found = refusal("/api/chat", messages=[*HI, {"role": "assistant", "tool_calls": calls}])
    assert found.param == "messages[1].tool_calls[1].function.name"
    assert "is missing" in found.message


def test_what_stands_beside_no_prompt_is_said_to_be_ignored() -> None:
    note = "suffix, images ignored: without a prompt the model is only loaded"
    assert parse("/api/generate", prompt="", suffix="x", images=["AAAA"]).notes == (note,)
    assert parse("/api/generate", suffix="", system=None, keep_alive=-1).notes == ()
    assert parse("/api/generate", prompt="p", suffix="x").notes == ()
