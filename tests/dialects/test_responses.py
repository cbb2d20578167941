import json
from typing import Any

import orjson
import pytest

from ollama_gate.dialects import responses
from ollama_gate.requests import AnswerFacts, Control, Kind
from support.dialects import RESPONSES, called, done, events, parse, refusal_of, said, streamed, whole, writer_for

HELLO: dict[str, Any] = {"model": "m", "input": "hi"}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}


def names(sent: str) -> list[str]:
    return [name for name, _ in events(sent)]


def test_a_text_becomes_a_native_chat_without_a_top_p_of_the_gates_own() -> None:
    request = parse(RESPONSES, {**HELLO, "instructions": "Be brief.", "max_output_tokens": 9})
    assert request.kind is Kind.CHAT
    assert request.dialect == "responses"
    assert request.asked_output == 9
    assert request.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": False,
        "options": {"temperature": 1.0, "num_predict": 9},
    }


def test_no_input_is_a_call_to_load_the_model() -> None:
    assert parse(RESPONSES, {"model": "m"}).control is Control.LOAD
    assert parse(RESPONSES, {"model": "m", "input": []}).control is Control.LOAD


def test_agents_18_what_codex_sends_is_accepted() -> None:
    """Developer role, item ids, namespace tools, a nameless web_search, and fields without meaning here."""
    body = {
        "model": "m",
        "input": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "developer",
                "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
            },
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do it"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "hm"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ns.f", "arguments": '{"a":1}'},
            {"type": "function_call_output", "id": "o_1", "call_id": "c1", "output": "done"},
        ],
        "tools": [
            FUNCTION,
            {"type": "namespace", "name": "ns", "description": "d", "tools": [{"type": "function", "name": "f"}]},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"turn": "1"},
    }
    request = parse(RESPONSES, body, {"session-id": "s1", "thread-id": "t1"})
    assert request.session == "s1"
    assert request.stream
    assert request.body["think"] == "medium"
    assert request.body["messages"] == [
        {"role": "developer", "content": "ab"},
        {"role": "user", "content": "do it"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "ns.f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "done", "tool_call_id": "c1", "tool_name": "ns.f"},
    ]
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["f", "ns.f"]
    assert request.notes == ("server-side tools were left out",)


def test_parameters_reach_the_model_in_the_order_that_ollama_gives_them() -> None:
    (tool,) = parse(RESPONSES, {**HELLO, "tools": [FUNCTION]}).body["tools"]
    assert list(tool["function"]["parameters"]["properties"]) == ["a", "b"]


def test_server_side_tools_are_refused_or_passed_on_as_the_operator_says() -> None:
    body = {**HELLO, "tools": [{"type": "web_search"}, {"type": "function", "name": "web_search"}]}
    refusal = refusal_of(RESPONSES, body, "refuse")
    assert (refusal.status, refusal.code, refusal.param) == (400, "server_tools_not_allowed", "tools")
    dropped = parse(RESPONSES, body, server_tools="drop")
    assert [tool["function"] for tool in dropped.body["tools"]] == [{"name": "web_search"}]
    passed = parse(RESPONSES, body, server_tools="pass")
    (tool,) = passed.body["tools"]
    assert tool["function"]["parameters"]["required"] == ["query"]
    assert passed.notes == ("server-side tools are run by Ollama, unguarded",)


def test_tool_choice_none_is_honoured_and_other_forms_are_told() -> None:
    assert "tools" not in parse(RESPONSES, {**HELLO, "tools": [FUNCTION], "tool_choice": "none"}).body
    assert parse(RESPONSES, {**HELLO, "tools": [FUNCTION], "tool_choice": "required"}).notes == (
        "tool_choice is not enforced by Ollama",
    )


def test_a_prompt_that_is_stored_elsewhere_is_refused_in_plain_words() -> None:
    refusal = refusal_of(RESPONSES, {**HELLO, "prompt": {"id": "pmpt_1", "version": "2"}})
    assert (refusal.status, refusal.param) == (400, "prompt")
    assert "stored at OpenAI" in refusal.message


@pytest.mark.parametrize("said", [{"messages": [{"role": "user", "content": "hi"}]}, {"prompt": "hi"}])
def test_what_stands_in_another_routes_field_loads_nothing(said: dict[str, Any]) -> None:
    assert refusal_of(RESPONSES, {"model": "m", **said}).param == "input"
    assert parse(RESPONSES, {**HELLO, **said}).notes == (
        f"{next(iter(said))} left out: Ollama has nothing of the kind",
    )


@pytest.mark.parametrize("schema", ["x", [1], 5, False])
def test_a_schema_that_is_none_is_refused_by_name(schema: object) -> None:
    wish = {"text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}
    assert refusal_of(RESPONSES, {**HELLO, **wish}).param == "text.format.schema"


def test_better_than_ollama_json_without_a_schema_is_honoured() -> None:
    assert parse(RESPONSES, {**HELLO, "text": {"format": {"type": "json_object"}}}).body["format"] == "json"


def test_an_image_that_only_has_the_id_of_a_file_is_refused() -> None:
    image = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
    refusal = refusal_of(RESPONSES, {"model": "m", "input": [{"role": "user", "content": [image]}]})
    assert refusal.message == "file inputs are not currently supported"


def test_a_conversation_that_ollama_does_not_keep_is_not_missed_in_silence() -> None:
    (note,) = parse(RESPONSES, {**HELLO, "conversation": {"id": "c"}}).notes
    assert "Ollama keeps no responses" in note


@pytest.mark.parametrize("previous", ["", None])
def test_no_earlier_response_is_none(previous: str | None) -> None:
    assert parse(RESPONSES, {**HELLO, "previous_response_id": previous}).notes == ()


def test_unknown_items_and_parts_are_refused_with_their_place() -> None:
    bad_item = {"model": "m", "input": [{"role": "user", "content": "x"}, {"type": "computer_call"}]}
    assert refusal_of(RESPONSES, bad_item).message == 'input[1]: unknown input item type: "computer_call"'
    bad_part = {"model": "m", "input": [{"role": "user", "content": [{"type": "audio"}]}]}
    assert refusal_of(RESPONSES, bad_part).message == "input[0]: content[0]: unknown content type: audio"


def test_what_is_said_between_a_call_and_its_output_joins_the_call() -> None:
    body = {
        "model": "m",
        "input": [
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""},
            {"role": "assistant", "content": "wait"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]},
        ],
    }
    call, output = parse(RESPONSES, body).body["messages"]
    assert call["content"] == "wait"
    assert call["tool_calls"][0]["function"]["arguments"] == {}
    assert output == {"role": "tool", "content": "r", "tool_call_id": "c1", "tool_name": "f"}


def test_broken_arguments_are_refused() -> None:
    body = {"model": "m", "input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{oops"}]}
    assert refusal_of(RESPONSES, body).message.startswith("failed to parse function call arguments: ")


def test_a_stream_has_every_named_event_in_order_and_numbered() -> None:
    sent = streamed(RESPONSES, HELLO, said(thinking="hm"), said("Hel"), said("lo"), done())
    assert names(sent) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [data["sequence_number"] for _, data in events(sent)] == list(range(14))
    assert all(data["type"] == name for name, data in events(sent))


def test_better_than_ollama_an_answer_that_was_cut_is_incomplete() -> None:
    sent = list(events(streamed(RESPONSES, HELLO, said("Hel"), done("length"))))
    name, last = sent[-1]
    assert name == "response.incomplete"
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["completed_at"] is None
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert "response.completed" not in [name for name, _ in sent]
    answer = whole(RESPONSES, HELLO, {**done("length"), "message": {"content": "Hel"}})
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"


def test_better_than_ollama_text_beside_a_call_is_not_lost() -> None:
    call = called("f", {"a": 1})
    sent = list(events(streamed(RESPONSES, HELLO, said("Let me look."), said(tool_calls=[call]), said("Ok"), done())))
    output = sent[-1][1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert [output[0]["content"][0]["text"], output[2]["content"][0]["text"]] == ["Let me look.", "Ok"]
    assert len({item["id"] for item in output}) == 3
    added = [data for name, data in sent if name == "response.output_item.added"]
    ended = [data for name, data in sent if name == "response.output_item.done"]
    assert [data["output_index"] for data in added] == [data["output_index"] for data in ended] == [0, 1, 2]
    assert [data["item"] for data in ended] == output
    answer = whole(RESPONSES, HELLO, {**done(), "message": {"content": "Let me look.", "tool_calls": [call]}})
    assert [item["type"] for item in answer["output"]] == ["message", "function_call"]


def test_better_than_ollama_a_death_in_mid_stream_is_response_failed() -> None:
    sent = list(events(streamed(RESPONSES, HELLO, said("Once"), {"error": "runner stopped"}, done())))
    name, last = sent[-1]
    assert name == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "runner stopped"}
    assert last["sequence_number"] == len(sent) - 1


def test_a_failure_before_the_first_token_still_opens_the_response() -> None:
    writer = writer_for(RESPONSES, {**HELLO, "stream": True})
    sent = writer.error(429, "slow down").decode()
    assert names(sent) == ["response.created", "response.in_progress", "response.failed"]
    assert list(events(sent))[-1][1]["response"]["error"]["code"] == "rate_limit_exceeded"
    assert writer.error(500, "again") == writer.keep_alive() == writer.feed(done()) == b""
    assert writer.finish() == b""


def test_agents_15_a_stream_that_stops_early_gets_no_end_mark() -> None:
    writer = writer_for(RESPONSES, {**HELLO, "stream": True})
    writer.feed(said("x"))
    assert writer.finish() is None


def test_agents_12_signs_of_life_are_events_of_an_unknown_type_after_the_opening() -> None:
    writer = writer_for(RESPONSES, {**HELLO, "stream": True})
    sent = (writer.keep_alive() + writer.keep_alive() + writer.feed(said("x")) + writer.feed(done())).decode()
    assert names(sent)[:4] == [
        "response.created",
        "response.in_progress",
        "keepalive",
        "response.output_item.added",
    ]
    assert [data["sequence_number"] for _, data in events(sent)] == list(range(len(names(sent))))


def test_usage_is_true_and_knows_cached_tokens() -> None:
    answer = {**done(), "message": {"content": "x"}}
    usage = whole(RESPONSES, HELLO, answer, AnswerFacts(cached_tokens=8))["usage"]
    assert usage == {
        "input_tokens": 11,
        "output_tokens": 6,
        "total_tokens": 17,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def test_the_request_is_echoed_with_the_clients_own_tools() -> None:
    body = {
        **HELLO,
        "tools": [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": [FUNCTION]}],
        "temperature": 0.0,
        "truncation": "auto",
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"z": 1, "a": 2}, "strict": True}},
    }
    answer = whole(RESPONSES, body, {**done(), "message": {"content": "x"}})
    assert [tool["type"] for tool in answer["tools"]] == ["web_search", "namespace"]
    assert answer["tools"][1]["tools"][0]["name"] == "f"
    assert answer["truncation"] == "auto"
    assert list(answer["text"]["format"]["schema"]) == ["z", "a"]
    assert b'"temperature":0,' in writer_for(RESPONSES, body).whole({"message": {}})


def test_a_percent_sign_in_a_name_does_no_harm() -> None:
    sent = streamed(RESPONSES, {**HELLO, "model": "100%d"}, said("50%s"), done())
    assert next(data["delta"] for name, data in events(sent) if name.endswith("text.delta")) == "50%s"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("upstream_broken", "server_error"),
        (None, "server_error"),
        ("context_length_exceeded", "context_length_exceeded"),
    ],
)
def test_a_failure_is_told_by_a_code_that_clients_know(code: str | None, told: str) -> None:
    sent = list(events(writer_for(RESPONSES, HELLO).error(502, "no", code).decode()))
    assert sent[-1][1]["response"]["error"]["code"] == told


def test_the_completion_time_is_that_of_the_last_chunk() -> None:
    sent = list(events(streamed(RESPONSES, HELLO, said("x"), done(created_at="2026-11-30T08:20:45.5Z"))))
    assert sent[-1][1]["response"]["completed_at"] == 1796026845


def test_a_count_is_answered_in_openais_shape() -> None:
    assert responses.counted(345) == b'{"object":"response.input_tokens","input_tokens":345}'


@pytest.mark.parametrize("field", ["instructions", "tools", "text", "reasoning", "input"])
def test_a_field_of_the_wrong_type_is_refused_as_go_refuses_it(field: str) -> None:
    refusal = refusal_of(RESPONSES, {**HELLO, field: 5})
    assert refusal.status == 400
    assert "json: cannot unmarshal number into Go " in refusal.message
    assert json.loads(responses.LANE.render_refusal(refusal, "7f")[0])["error"]["code"] is None


def test_the_function_call_events_carry_its_arguments_three_times() -> None:
    sent = list(events(streamed(RESPONSES, HELLO, said(tool_calls=[called("f", {"q": "<x>"})]), done())))
    arguments = [
        data.get("delta") or data.get("arguments") or data["item"]["arguments"]
        for name, data in sent
        if "arguments" in name or name == "response.output_item.done"
    ]
    assert [orjson.loads(each) for each in arguments] == [{"q": "<x>"}] * 3


def test_a_custom_tool_is_said_to_be_offered_as_a_function() -> None:
    custom = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}}
    request = parse(RESPONSES, {**HELLO, "tools": [custom, custom]})
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["apply_patch", "apply_patch"]
    assert request.notes == ("custom tools are offered as functions: Ollama takes no free text for a call",)
