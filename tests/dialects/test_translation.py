from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from ollama_gate.dialects.translation import (
    Usage,
    message_of,
    quoted,
    session_of,
    think_of_effort,
    unix_seconds,
    usage_of,
    window_is_full,
)
from ollama_gate.errors import Refused
from ollama_gate.requests import AnswerFacts
from support.dialects import CHAT, COMPLETIONS, MESSAGES, RESPONSES, parse

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
KEEP_ALIVE = "x-ollama-gate-keep-alive"
ROUTES = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("5m", "5m"),
        ("1h30m", "1h30m"),
        ("-1s", "-1s"),
        (" 60 ", 60),
        ("-1", -1),
        ("0.5", 0.5),
        ("0s", 0),
        ("1.5h", "1.5h"),
    ],
)
def test_keep_alive_is_seconds_or_a_go_duration(value: str, sent: Any) -> None:
    assert parse(CHAT, HELLO, {KEEP_ALIVE: value}).body["keep_alive"] == sent


@pytest.mark.parametrize("value", ["soon", "5 m", "m", "1e3", "٥", "5m\n5m", "9" * 40])
def test_what_is_no_duration_is_refused(value: str) -> None:
    with pytest.raises(Refused, match="seconds or a duration"):
        parse(CHAT, HELLO, {KEEP_ALIVE: value})


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({}, None),
        ({"x-session-id": "  "}, None),
        ({"x-session-id": "a", "x-session-affinity": "b"}, "a"),
        ({"session-id": "s", "thread-id": "t"}, "s"),
        ({"x-claude-code-session-id": "c" * 1000}, "c" * 256),
    ],
)
def test_agents_25_the_conversation_is_named_by_the_agents_own_header(
    headers: dict[str, str], session: str | None
) -> None:
    assert session_of(headers) == session
    assert parse(CHAT, HELLO, headers).session == session


def test_headers_are_found_as_clients_spell_them() -> None:
    headers = CIMultiDictProxy(CIMultiDict({"X-Claude-Code-Session-Id": "c", "X-Ollama-Gate-Keep-Alive": "5m"}))
    request = parse(CHAT, HELLO, headers)
    assert (request.session, request.body["keep_alive"]) == ("c", "5m")


def test_an_effort_that_is_not_set_leaves_thinking_alone() -> None:
    assert think_of_effort("") is None


def test_counts_that_are_no_numbers_count_as_missing() -> None:
    answer = {"prompt_eval_count": "12", "eval_count": True}
    assert usage_of(answer, AnswerFacts(prompt_tokens=9)) == Usage(0, 0)


def test_a_load_costs_nothing_although_the_prompt_was_counted() -> None:
    assert usage_of({"done_reason": "load"}, AnswerFacts(prompt_tokens=9)).total == 0


@pytest.mark.parametrize(
    ("asked", "reason", "completion", "full"),
    [(None, "length", 50, True), (100, "length", 50, True), (50, "length", 50, False), (None, "stop", 50, False)],
)
def test_a_full_window_is_told_from_the_asked_length(
    asked: int | None, reason: str, completion: int, *, full: bool
) -> None:
    request = parse(CHAT, {**HELLO, "max_tokens": asked})
    assert window_is_full({"done_reason": reason, "eval_count": completion}, request) is full


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        ("2026-11-30T08:20:39.923650675Z", 1796026839),
        ("2026-11-30T09:20:39+01:00", 1796026839),
        ("2026-11-30T08:20:39", 1796026839),
        ("yesterday", 7),
        ("0001-01-01T00:00:00Z", -62135596800),
        (None, 7),
        (5, 7),
    ],
)
def test_times_are_read_to_the_second(timestamp: Any, seconds: int) -> None:
    assert unix_seconds(timestamp, 7) == seconds


def test_a_message_that_is_none_is_empty() -> None:
    assert message_of({"message": "x"}) == {}


def test_quotes_inside_a_quoted_value_are_escaped() -> None:
    assert quoted('a"b\\c\n') == '"a\\"b\\\\c\\n"'


@pytest.mark.parametrize(
    ("route", "body", "note"),
    [
        (CHAT, {"think": False}, "think ignored: this route reads reasoning_effort"),
        (
            CHAT,
            {"format": "json", "response_format": {"type": "text"}},
            "format ignored: this route reads response_format",
        ),
        (CHAT, {"system": "Be brief."}, "system ignored: this route reads messages of the role system"),
        (CHAT, {"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs left out: Ollama has nothing of the kind"),
        (COMPLETIONS, {"max_completion_tokens": 9}, "max_completion_tokens ignored: this route reads max_tokens"),
        (RESPONSES, {"max_tokens": 9}, "max_tokens ignored: this route reads max_output_tokens"),
        (
            RESPONSES,
            {"response_format": {"type": "json_object"}},
            "response_format ignored: this route reads text.format",
        ),
        (MESSAGES, {"stop": ["x"]}, "stop ignored: this route reads stop_sequences"),
        (
            MESSAGES,
            {"think": False, "reasoning_effort": "none"},
            "reasoning_effort, think ignored: this route reads thinking",
        ),
        *(
            (route, {"keep_alive": -1}, f"keep_alive ignored: this route reads the header {KEEP_ALIVE}")
            for route in ROUTES
        ),
    ],
)
def test_what_another_api_says_in_its_own_field_is_not_dropped_in_silence(
    route: str, body: dict[str, Any], note: str
) -> None:
    least = {**HELLO, "prompt": "hi"} if route == COMPLETIONS else {**HELLO, "max_tokens": 9}
    if route == RESPONSES:
        least = {"model": "m", "input": "hi"}
    assert parse(route, {**least, **body}).notes == (note,)
    assert parse(route, {**least, **dict.fromkeys(body)}).notes == ()
