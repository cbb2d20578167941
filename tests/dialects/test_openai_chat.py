import json
from typing import Any

import orjson
import pytest

from ollama_gate.dialects import openai
from ollama_gate.dialects.translation import NOTE_NO_FORMAT
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import AnswerFacts, Control, Kind
from support.dialects import CHAT, called, done, events, parse, refusal_of, said, streamed, whole, writer_for

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def test_a_chat_becomes_a_native_chat_with_ollamas_defaults() -> None:
    request = parse(CHAT, HELLO)
    assert request.kind is Kind.CHAT
    assert request.path == "/api/chat"
    assert request.dialect == "openai"
    assert request.control is Control.NONE
    assert not request.stream
    assert request.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
        "options": {"temperature": 1.0, "top_p": 1.0},
    }


def test_better_than_ollama_max_completion_tokens_is_honoured() -> None:
    """Case 28: Ollama has no such field and runs until the window is full."""
    request = parse(CHAT, {**HELLO, "max_completion_tokens": 7})
    assert request.asked_output == 7
    assert request.body["options"]["num_predict"] == 7


def test_max_completion_tokens_goes_before_the_older_name() -> None:
    assert parse(CHAT, {**HELLO, "max_completion_tokens": 7, "max_tokens": 9}).asked_output == 7
    assert parse(CHAT, {**HELLO, "max_completion_tokens": None, "max_tokens": 9}).asked_output == 9


def test_better_than_ollama_tool_choice_none_leaves_the_tools_out() -> None:
    request = parse(CHAT, {**HELLO, "tools": [TOOL], "tool_choice": "none"})
    assert "tools" not in request.body
    assert request.notes == ("tool_choice none: the tools were left out",)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_other_tool_choices_are_taken_as_ollama_takes_them_and_that_is_said(choice: Any) -> None:
    request = parse(CHAT, {**HELLO, "tools": [TOOL], "tool_choice": choice})
    assert request.body["tools"] == [TOOL]
    assert request.notes == ("tool_choice is not enforced by Ollama",)


def test_tool_choice_auto_and_none_without_tools_say_nothing() -> None:
    assert parse(CHAT, {**HELLO, "tools": [TOOL], "tool_choice": "auto"}).notes == ()
    assert parse(CHAT, {**HELLO, "tools": [], "tool_choice": "none"}).notes == ()


def test_more_than_one_choice_is_not_made_and_that_is_said() -> None:
    assert parse(CHAT, {**HELLO, "n": 2}).notes == ("n is ignored: Ollama gives one choice",)


def test_case_02_a_window_of_the_clients_own_is_told_and_never_sent() -> None:
    for asked in ({"num_ctx": 8192}, {"options": {"num_ctx": 8192}}):
        request = parse(CHAT, {**HELLO, **asked})
        assert request.asked_num_ctx == 8192
        assert "num_ctx" not in request.body["options"]
        assert request.body.keys() == {"model", "messages", "stream", "options"}


def test_case_16_null_content_with_calls_is_no_text_and_without_them_is_refused_as_ollama_does() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "list_buses", "arguments": '{"stop":"mill"}'}}
    messages = [
        {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "4, 17"},
    ]
    native = parse(CHAT, {"model": "m", "messages": messages}).body["messages"]
    assert native[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call_1", "function": {"index": 0, "name": "list_buses", "arguments": {"stop": "mill"}}}
            ],
        },
        {"role": "tool", "content": "4, 17", "tool_name": "list_buses", "tool_call_id": "call_1"},
    ]
    messages.append({"role": "assistant", "content": None, "reasoning_content": "Answer is known."})
    refusal = refusal_of(CHAT, {"model": "m", "messages": messages})
    assert (refusal.status, refusal.message) == (400, "invalid message content type: <nil>")


def test_case_17_each_content_part_is_a_message_of_its_own_and_an_empty_list_adds_none() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "First,"}, {"type": "text", "text": " second?"}],
            },
            {"role": "user", "content": []},
        ],
    }
    assert parse(CHAT, body).body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "First,"},
        {"role": "user", "content": " second?"},
    ]


def test_images_and_sound_go_on_as_base64_in_messages_of_their_own() -> None:
    parts = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
    ]
    assert parse(CHAT, {"model": "m", "messages": [{"role": "user", "content": parts}]}).body["messages"] == [
        {"role": "user", "content": "what?"},
        {"role": "user", "content": "", "images": ["YWJj"]},
        {"role": "user", "content": "", "images": ["YWJj"]},
    ]


def test_better_than_ollama_nothing_but_empty_parts_is_no_call_to_load_the_model() -> None:
    assert refusal_of(CHAT, {"model": "m", "messages": [{"role": "user", "content": []}]}).param == "messages"


CALL = {"name": "f", "arguments": '{"a":1}'}
NATIVE_CALL = {"index": 0, "name": "f", "arguments": {"a": 1}}


def test_better_than_ollama_calls_beside_an_empty_list_stay_with_who_made_them() -> None:
    called = {"role": "assistant", "content": [], "tool_calls": [{"id": "c", "type": "function", "function": CALL}]}
    request = parse(CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}, called]})
    assert request.body["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": NATIVE_CALL}]},
    ]


def test_functions_of_old_are_left_out_and_that_is_said_but_earlier_calls_are_kept() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "function_call": CALL},
        {"role": "function", "name": "f", "content": "5"},
    ]
    body = {"model": "m", "messages": messages, "functions": [{"name": "f"}], "function_call": "auto"}
    request = parse(CHAT, body)
    assert request.notes == ("function_call, functions left out: Ollama has nothing of the kind",)
    assert request.body["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [{"function": NATIVE_CALL}]},
        {"role": "tool", "content": "5", "tool_name": "f"},
    ]
    assert parse(CHAT, {**HELLO, "functions": [], "function_call": None}).notes == ()


@pytest.mark.parametrize("schema", ["x", [1], 5, True, [], 0])
def test_a_schema_that_is_none_is_refused_by_name(schema: object) -> None:
    wish = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    refusal = refusal_of(CHAT, {**HELLO, "response_format": wish})
    assert (refusal.status, refusal.param) == (400, "response_format.json_schema.schema")


@pytest.mark.parametrize("wish", [{"type": "json_schema"}, {"type": "xml"}, {"type": "json_schema", "schema": {}}])
def test_a_format_that_is_not_enforced_is_told(wish: dict[str, Any]) -> None:
    request = parse(CHAT, {**HELLO, "response_format": wish})
    assert "format" not in request.body
    assert request.notes == (NOTE_NO_FORMAT,)
    assert parse(CHAT, {**HELLO, "response_format": {"type": "text"}}).notes == ()


@pytest.mark.parametrize("field", ["temperature", "top_p", "frequency_penalty", "presence_penalty"])
def test_a_number_that_ollama_would_fail_on_is_refused_by_name(field: str) -> None:
    assert refusal_of(CHAT, {**HELLO, field: 1e300}).param == field


@pytest.mark.parametrize(
    ("effort", "think"),
    [("none", False), ("minimal", "low"), ("low", "low"), ("high", "high"), ("xhigh", "max"), ("ultra", "max")],
)
def test_case_19_reasoning_effort_becomes_the_level_that_ollama_knows(effort: str, think: Any) -> None:
    assert parse(CHAT, {**HELLO, "reasoning_effort": effort}).body["think"] == think
    assert parse(CHAT, {**HELLO, "reasoning": {"effort": effort}}).body["think"] == think


def test_case_19_an_unknown_effort_is_refused_in_ollamas_words() -> None:
    assert refusal_of(CHAT, {**HELLO, "reasoning_effort": 'a"b'}).message.startswith(
        'invalid reasoning value: "a\\"b" (must be "minimal", '
    )


def test_the_developer_role_goes_on_as_it_is() -> None:
    body = {"model": "m", "messages": [{"role": "developer", "content": "rules"}]}
    assert parse(CHAT, body).body["messages"] == [{"role": "developer", "content": "rules"}]


def test_the_last_message_that_made_a_call_gives_the_result_its_name() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"id": "c", "function": {"name": name, "arguments": "{}"}}

    body = {
        "model": "m",
        "messages": [
            {"role": "assistant", "content": "", "tool_calls": [call("old"), call("older")]},
            {"role": "assistant", "content": "", "tool_calls": [call("new"), call("later")]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
    }
    assert parse(CHAT, body).body["messages"][2]["tool_name"] == "new"


def test_a_broken_surrogate_in_arguments_is_mended_and_not_refused() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a":"x\\ud800"}'}}
    body = {"model": "m", "messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
    assert parse(CHAT, body).body["messages"][0]["tool_calls"][0]["function"]["arguments"] == {"a": "x\ufffd"}


def test_the_keep_alive_header_is_the_only_way_to_say_how_long() -> None:
    headers = {"x-ollama-gate-keep-alive": "5m"}
    assert parse(CHAT, HELLO, headers).body["keep_alive"] == "5m"
    assert "keep_alive" not in parse(CHAT, {**HELLO, "keep_alive": "5m"}).body


def test_a_stream_opens_with_the_role_and_closes_with_finish_usage_and_done() -> None:
    body = {**HELLO, "stream_options": {"include_usage": True}}
    sent = list(events(streamed(CHAT, body, said("Hel"), said("lo"), done())))
    assert [data["choices"][0]["delta"] for _, data in sent[:3]] == [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert sent[2][1]["choices"][0]["finish_reason"] == "stop"
    assert sent[3][1]["choices"] == []
    assert sent[3][1]["usage"] == {"prompt_tokens": 11, "completion_tokens": 6, "total_tokens": 17}
    assert sent[4][1] == "[DONE]"
    assert len({(data["id"], data["created"]) for _, data in sent[:4]}) == 1


def test_usage_is_not_streamed_unasked() -> None:
    assert "usage" not in streamed(CHAT, HELLO, said("x"), done())


def test_the_end_mark_comes_with_the_last_chunk_and_not_later() -> None:
    writer = writer_for(CHAT, {**HELLO, "stream": True})
    writer.feed(said("x"))
    assert writer.feed(done()).endswith(b"data: [DONE]\n\n")
    assert writer.finish() == b""
    assert writer.feed(said("late")) == b""


def test_agents_15_a_stream_that_stops_early_gets_no_end_mark() -> None:
    writer = writer_for(CHAT, {**HELLO, "stream": True})
    assert b"[DONE]" not in writer.feed(said("x"))
    assert writer.finish() is None


@pytest.mark.parametrize(
    "line", [{"error": "runner stopped"}, {"error": {"odd": 1}}, {"error": "x", "message": {"content": "lo"}}]
)
def test_case_29_an_error_line_becomes_an_error_event_and_an_honest_end(line: dict[str, Any]) -> None:
    sent = streamed(CHAT, HELLO, said("Once"), line, done())
    last = list(events(sent))[-1][1]
    assert last["error"]["type"] == "api_error"
    assert "[DONE]" not in sent
    assert '"finish_reason":"' not in sent


def test_an_error_is_told_only_once() -> None:
    writer = writer_for(CHAT, {**HELLO, "stream": True})
    assert json.loads(writer.error(500, "a <b>").decode().removeprefix("data: "))["error"]["message"] == "a <b>"
    assert writer.error(500, "again") == b""
    assert writer.finish() == b""


def test_agents_12_a_comment_is_the_sign_of_life() -> None:
    assert writer_for(CHAT, HELLO).keep_alive() == b": keep-alive\n\n"


def test_agents_24_the_last_chunk_has_true_usage_even_where_ollama_is_silent() -> None:
    body = {**HELLO, "stream_options": {"include_usage": True}}
    silent = {"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3}
    sent = list(events(streamed(CHAT, body, said("x"), silent, facts=AnswerFacts(prompt_tokens=40))))
    assert sent[-2][1]["usage"] == {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43}


def test_better_than_ollama_cached_tokens_are_reported_where_they_are_known() -> None:
    answer = {**done(), "message": {"role": "assistant", "content": "x"}}
    known = whole(CHAT, HELLO, answer, AnswerFacts(cached_tokens=8))
    assert known["usage"]["prompt_tokens_details"] == {"cached_tokens": 8}
    reported = whole(CHAT, HELLO, {**answer, "prompt_eval_cached_count": 9}, AnswerFacts(cached_tokens=8))
    assert reported["usage"]["prompt_tokens_details"] == {"cached_tokens": 9}
    assert "prompt_tokens_details" not in whole(CHAT, HELLO, answer)["usage"]


def test_reasoning_and_answer_never_share_a_chunk() -> None:
    sent = list(events(streamed(CHAT, HELLO, said("so", thinking="hm"), done())))
    assert [data["choices"][0]["delta"] for _, data in sent[:2]] == [
        {"role": "assistant", "reasoning": "hm"},
        {"content": "so"},
    ]


def test_calls_end_with_tool_calls_unless_the_answer_was_cut() -> None:
    call = said(tool_calls=[called("f", {"a": "<b>"})])
    assert '"finish_reason":"tool_calls"' in streamed(CHAT, HELLO, call, done())
    assert '"finish_reason":"length"' in streamed(CHAT, HELLO, call, done("length"))


def test_arguments_are_a_text_that_survives_two_decoders() -> None:
    _, data = next(events(streamed(CHAT, HELLO, said(tool_calls=[called("f", {"z": "<&>\u2028", "a": 1})]))))
    function = data["choices"][0]["delta"]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"z": "<&>\u2028", "a": 1}
    assert function["arguments"].startswith('{"z":')  # the model's order


def test_a_call_without_an_id_gets_one_and_no_two_are_equal() -> None:
    anonymous = {"function": {"name": "f", "arguments": {}}}
    sent = events(streamed(CHAT, HELLO, said(tool_calls=[anonymous]), said(tool_calls=[anonymous, anonymous]), done()))
    ids = [
        call["id"] for _, data in sent if data != "[DONE]" for call in data["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert len(ids) == 3
    assert len(set(ids)) == 3
    assert all(ids)


def test_html_in_an_answer_is_escaped_as_go_escapes_it() -> None:
    sent = streamed(CHAT, HELLO, said("x"), said("<b>&\u2028\u2029"), done())
    assert '"content":"\\u003cb\\u003e\\u0026\\u2028\\u2029"' in sent


def test_an_unfinished_whole_answer_is_not_called_finished() -> None:
    """The repeat guard gives 200 with done:false (recorded: repeat-guard-*)."""
    answer = {"message": {"role": "assistant", "content": "x"}, "done": False}
    assert whole(CHAT, HELLO, answer)["choices"][0]["finish_reason"] is None


def test_case_35_a_refusal_is_an_error_object_with_the_code_and_the_facts() -> None:
    refusal = Refusal(
        400,
        "context_length_exceeded",
        "prompt is too long: 9 tokens > 8 maximum.",
        param="messages",
        details={"prompt_tokens": 9, "budget": 8, "message": "never over the message"},
    )
    body, content_type = openai.render_refusal(refusal, "7f")
    assert content_type.startswith("application/json")
    assert orjson.loads(body) == {
        "error": {
            "message": "prompt is too long: 9 tokens > 8 maximum.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
            "prompt_tokens": 9,
            "budget": 8,
        }
    }


def test_a_bad_keep_alive_names_its_header() -> None:
    with pytest.raises(Refused) as caught:
        parse(CHAT, HELLO, {"x-ollama-gate-keep-alive": "soon"})
    assert caught.value.refusal.param == "x-ollama-gate-keep-alive"


@pytest.mark.parametrize(
    ("message", "note"),
    [
        (
            {"role": "assistant", "content": "x", "toolCalls": [{"name": "f"}]},
            "toolCalls of messages ignored: this route reads tool_calls",
        ),
        (
            {"role": "tool", "content": "5", "toolCallId": "c"},
            "toolCallId of messages ignored: this route reads tool_call_id",
        ),
        ({"role": "tool", "content": "5", "tool_name": "f"}, "tool_name of messages ignored: this route reads name"),
        (
            {"role": "assistant", "content": "x", "thinking": "because"},
            "thinking of messages ignored: this route reads reasoning",
        ),
    ],
)
def test_what_a_message_says_in_another_apis_field_is_said(message: dict[str, Any], note: str) -> None:
    assert parse(CHAT, {**HELLO, "messages": [*HELLO["messages"], message, message]}).notes == (note,)


def test_parameters_beside_a_tools_function_are_said_to_be_ignored() -> None:
    beside = {"type": "function", "function": {"name": "f"}, "parameters": {"type": "object"}}
    note = "parameters of tools ignored: this route reads function.parameters"
    assert parse(CHAT, {**HELLO, "tools": [TOOL, beside, beside]}).notes == (note,)


def test_a_call_whose_name_stands_elsewhere_is_refused() -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "name": "f", "arguments": "{}"}]
    body = {**HELLO, "messages": [*HELLO["messages"], {"role": "assistant", "tool_calls": calls}]}
    with pytest.raises(Refused) as refused:
        parse(CHAT, body)
    assert refused.value.refusal.param == "messages[1].tool_calls[1].function.name"
