import json
from typing import Any

import orjson
import pytest

from ollama_gate.dialects import anthropic
from ollama_gate.dialects.translation import NOTE_CONTENT_LEFT_OUT, without_thinking
from ollama_gate.errors import Refusal
from ollama_gate.requests import AnswerFacts, Kind
from support.dialects import MESSAGES, called, done, events, parse, refusal_of, said, streamed, whole, writer_for

HELLO: dict[str, Any] = {"model": "m", "max_tokens": 32000, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


def test_a_message_becomes_a_native_chat_without_options_of_the_gates_own() -> None:
    request = parse(MESSAGES, {**HELLO, "top_k": 5, "stop_sequences": ["x"], "temperature": 0.5})
    assert request.kind is Kind.CHAT
    assert request.dialect == "anthropic"
    assert request.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
        "options": {"num_predict": 32000, "temperature": 0.5, "top_k": 5, "stop": ["x"]},
    }


def test_agents_17_what_claude_code_sends_is_accepted() -> None:
    """A system message inside the messages, adaptive thinking, marks everywhere, far more output than the window."""
    mark = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": "m",
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "You are"}, {"type": "text", "text": " an agent.", **mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "say hi", **mark}]},
            {"role": "system", "content": "Reminder."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and?"},
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r", **mark}]},
                ],
            },
        ],
        "tools": [{**TOOL, **mark}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": []},
        "metadata": {"user_id": '{"session":"x"}'},
    }
    request = parse(MESSAGES, body, {"x-claude-code-session-id": "s"})
    assert request.asked_output == 32000
    assert request.session == "s"
    assert request.notes == ()
    assert request.body["think"] == "high"
    assert request.body["messages"] == [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "say hi"},
        {"role": "system", "content": "Reminder."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "t1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "r", "tool_call_id": "t1", "tool_name": "f"},
        {"role": "user", "content": "and?"},
    ]


def test_agents_16_a_request_for_a_count_needs_no_max_tokens() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "foo"}], "tools": [TOOL], "system": "s"}
    request = anthropic.parse_count(body, {})
    assert request.asked_output is None
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]
    assert len(request.body["tools"]) == 1
    assert anthropic.counted(17) == b'{"input_tokens":17}'


def test_adaptive_thinking_leaves_it_to_the_model() -> None:
    assert "think" not in parse(MESSAGES, {**HELLO, "thinking": {"type": "adaptive"}}).body
    assert parse(MESSAGES, {**HELLO, "thinking": {"type": "enabled"}}).body["think"] is True
    assert parse(MESSAGES, {**HELLO, "thinking": {"type": "disabled"}}).body["think"] is False


def test_a_model_that_cannot_think_is_not_asked_to() -> None:
    """v1-messages-thinking-unsupported: Ollama relaxes the wish here, where /api/chat would refuse it."""
    request = parse(MESSAGES, {**HELLO, "thinking": {"type": "enabled"}})
    relaxed = without_thinking(request)
    assert "think" not in relaxed.body
    assert relaxed.notes == ("the model does not think: thinking was left out",)
    off = parse(MESSAGES, {**HELLO, "thinking": {"type": "disabled"}})
    assert without_thinking(off) is off


def test_server_side_tools_are_left_out_refused_or_passed_on() -> None:
    body = {**HELLO, "tools": [TOOL, SEARCH, {"type": "bash_20250124", "name": "bash"}]}
    dropped = parse(MESSAGES, body)
    assert [tool["function"]["name"] for tool in dropped.body["tools"]] == ["f", "bash"]
    assert dropped.notes == ("server-side tools were left out",)
    assert refusal_of(MESSAGES, body, "refuse").code == "server_tools_not_allowed"
    passed = parse(MESSAGES, {**body, "tools": [SEARCH, {"name": "web_search"}]}, server_tools="pass")
    assert [tool["function"]["parameters"]["required"] for tool in passed.body["tools"]] == [["query"]]


def test_tool_choice_none_is_honoured_and_other_forms_are_told() -> None:
    none = parse(MESSAGES, {**HELLO, "tools": [TOOL], "tool_choice": {"type": "none"}})
    assert "tools" not in none.body
    assert none.notes == ("tool_choice none: the tools were left out",)
    forced = parse(MESSAGES, {**HELLO, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}})
    assert forced.notes == ("tool_choice is not enforced by Ollama",)


def test_blocks_that_ollama_does_not_know_are_left_out_and_that_is_said() -> None:
    content = [{"type": "container_upload"}, {"type": "redacted_thinking"}, {"type": "text", "text": "x"}]
    request = parse(MESSAGES, {**HELLO, "messages": [{"role": "user", "content": content}]})
    assert request.body["messages"] == [{"role": "user", "content": "x"}]
    assert request.notes == ("content blocks of a kind Ollama does not know were left out",)


def test_what_a_user_says_in_unknown_blocks_only_is_refused_by_their_name() -> None:
    content = [{"type": "container_upload", "file_id": "f"}, {"type": "x"}]
    messages = [*HELLO["messages"], {"role": "user", "content": content}]
    refusal = refusal_of(MESSAGES, {**HELLO, "messages": messages})
    assert refusal.param == "messages[1].content[0]"
    assert '"container_upload", "x"' in refusal.message


def test_missing_content_is_told_in_plain_words() -> None:
    refusal = refusal_of(MESSAGES, {**HELLO, "messages": [{"role": "user"}]})
    assert refusal.message == "messages[0].content is required"
    assert refusal.param == "messages[0].content"


def test_better_than_ollama_the_message_starts_with_the_real_prompt_count() -> None:
    sent = dict(events(streamed(MESSAGES, HELLO, said("x"), done(), facts=AnswerFacts(prompt_tokens=4711))))
    assert sent["message_start"]["message"]["usage"] == {"input_tokens": 4711, "output_tokens": 0}
    assert sent["message_delta"]["usage"] == {"input_tokens": 11, "output_tokens": 6}


def test_a_prompt_that_was_not_counted_is_estimated_as_ollama_does() -> None:
    body = {**HELLO, "messages": [{"role": "user", "content": "é" * 100}]}
    sent = dict(events(streamed(MESSAGES, body, said("x"), done())))
    assert sent["message_start"]["message"]["usage"]["input_tokens"] == (len("user") + 200 + 4) // 4


def test_better_than_ollama_an_empty_answer_is_an_empty_list() -> None:
    assert whole(MESSAGES, HELLO, done())["content"] == []


def test_better_than_ollama_a_full_window_has_its_own_stop_reason() -> None:
    sent = dict(events(streamed(MESSAGES, HELLO, said("x"), done("length", completion=500))))
    assert sent["message_delta"]["delta"]["stop_reason"] == "model_context_window_exceeded"
    asked = {**HELLO, "max_tokens": 6}
    sent = dict(events(streamed(MESSAGES, asked, said("x"), done("length", completion=6))))
    assert sent["message_delta"]["delta"]["stop_reason"] == "max_tokens"


def test_better_than_ollama_a_death_in_mid_stream_is_an_error_event() -> None:
    sent = streamed(MESSAGES, HELLO, said("Once"), {"error": "runner stopped"}, done())
    name, data = list(events(sent))[-1]
    assert name == "error"
    assert data == {"type": "error", "error": {"type": "api_error", "message": "runner stopped"}}
    assert "message_stop" not in sent


def test_agents_15_a_stream_that_stops_early_gets_no_message_stop() -> None:
    writer = writer_for(MESSAGES, {**HELLO, "stream": True})
    assert b"message_stop" not in writer.feed(said("x"))
    assert writer.finish() is None


def test_agents_12_signs_of_life_are_deltas_without_text() -> None:
    writer = writer_for(MESSAGES, {**HELLO, "stream": True}, AnswerFacts(prompt_tokens=9))
    alive = [writer.keep_alive().decode() for _ in range(3)]
    assert [name for name, _ in events(alive[0])] == ["message_start"]
    assert [name for name, _ in events(alive[1])] == ["content_block_start", "content_block_delta"]
    assert list(events(alive[2])) == [
        (
            "content_block_delta",
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}},
        )
    ]
    rest = (writer.feed(said("Hi")) + writer.feed(done())).decode()
    assert [name for name, _ in events(rest)] == [
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert writer.keep_alive() == b""


def test_a_sign_of_life_stays_in_the_block_that_is_open() -> None:
    writer = writer_for(MESSAGES, {**HELLO, "stream": True})
    writer.feed(said(thinking="hm"))
    ((_, data),) = events(writer.keep_alive().decode())
    assert data["delta"] == {"type": "thinking_delta", "thinking": ""}


def test_blocks_follow_one_another_and_never_overlap() -> None:
    chunks = (
        said(thinking="hm"),
        said("a"),
        said(thinking="again"),
        said(tool_calls=[called("f", {"q": 1}), called("g", {}, "call_2", 1)]),
        said("b"),
        done(),
    )
    opened: list[int] = []
    closed: list[int] = []
    kinds = []
    for name, data in events(streamed(MESSAGES, HELLO, *chunks)):
        if name == "content_block_start":
            assert len(opened) == len(closed)
            opened.append(data["index"])
            kinds.append(data["content_block"]["type"])
        elif name == "content_block_delta":
            assert data["index"] == opened[-1]
        elif name == "content_block_stop":
            closed.append(data["index"])
    assert opened == closed == list(range(6))
    assert kinds == ["thinking", "text", "thinking", "tool_use", "tool_use", "text"]


def test_a_call_is_sent_once_even_if_it_comes_twice() -> None:
    call = said(tool_calls=[called("f", {"q": 1})])
    sent = streamed(MESSAGES, HELLO, call, call, done())
    assert sent.count('"type":"tool_use"') == 1
    assert '"stop_reason":"tool_use"' in sent


def test_cached_tokens_are_no_input_tokens() -> None:
    usage = whole(MESSAGES, HELLO, done(), AnswerFacts(cached_tokens=8))["usage"]
    assert usage == {"input_tokens": 3, "cache_read_input_tokens": 8, "output_tokens": 6}


def test_an_unfinished_whole_answer_has_no_stop_reason() -> None:
    assert whole(MESSAGES, HELLO, {"message": {"content": "x"}, "done": False})["stop_reason"] is None
    assert whole(MESSAGES, HELLO, {"message": {"content": "x"}, "done": True})["stop_reason"] == "end_turn"
    assert whole(MESSAGES, HELLO, done("odd"))["stop_reason"] == "stop_sequence"


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_errors_of_ollamas_keep_their_text_and_get_anthropics_type(status: int, type_: str) -> None:
    error = json.loads(writer_for(MESSAGES, HELLO).failed(status, "a <b>"))
    assert error["error"] == {"type": type_, "message": "a <b>"}
    assert error["request_id"].startswith("req_")


def test_agents_3_a_refusal_is_anthropics_error_with_the_sentence_first() -> None:
    sentence = "prompt is too long: 9000 tokens > 8000 maximum. This model's …"
    refusal = Refusal(400, "context_length_exceeded", sentence, param="messages", details={"budget": 8000})
    body, content_type = anthropic.render_refusal(refusal, "7f")
    assert content_type.startswith("application/json")
    decoded = orjson.loads(body)
    assert decoded["type"] == "error"
    assert decoded["error"] == {"type": "invalid_request_error", "message": sentence}
    assert (decoded["code"], decoded["request_id"]) == ("context_length_exceeded", "req_7f")
    assert decoded["details"] == {"budget": 8000}


@pytest.mark.parametrize("content", [[{"type": "document"}], [{"type": "audio"}], ["text"], {"a": "text"}, 5])
def test_what_is_left_out_of_a_tools_result_is_told(content: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "x", "content": content}
    messages = [{"role": "user", "content": [result, {"type": "text", "text": "Well?"}]}]
    request = parse(MESSAGES, {"model": "m", "max_tokens": 5, "messages": messages})
    assert NOTE_CONTENT_LEFT_OUT in request.notes


@pytest.mark.parametrize("kind", [None, 5, [], ["a"], {"type": "text"}])
def test_what_a_tool_gave_may_be_of_any_type(kind: Any) -> None:
    block = {"type": "tool_result", "tool_use_id": "u", "content": [{"type": kind}, {"type": "text", "text": "r"}]}
    request = parse(MESSAGES, {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [block]}]})
    assert request.body["messages"][0]["content"] == "r"
