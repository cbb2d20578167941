"""Agents look for words in a refusal; unknown ones make them send the same body for ever (pi#2626, openclaw#64180)."""

import re

import pytest

from support.cases import assert_r400, case, front

CASE = case("35-refusal-wording")
BODY, PATH = CASE["request"]["body"], CASE["request"]["path"]
MUST = CASE["client_patterns_that_should_match_the_message"]
MUST_NOT = [
    *CASE["patterns_that_must_not_match"],
    "(?i)too many requests",
    "(?i)per minute",
    "(?i)timeout",
    "(?i)timed out",
    "(?i)overloaded",
    "(?i)aborted",
    "(?i)connection reset",
]


@pytest.mark.parametrize("path", [PATH, "/api/chat", "/v1/messages", "/v1/responses"])
async def test_the_words_that_agents_know_are_there_and_those_that_mislead_are_not(path: str) -> None:
    body = {**BODY, "max_tokens": 100}
    if path == "/v1/responses":
        body = {"model": BODY["model"], "stream": True, "input": BODY["messages"][0]["content"]}
    async with front(window=4096) as line:
        reply = await line.ask(path, body)
        line.assert_refused(path)
        count = (await line.count("/api/chat", BODY))["tokens"]
    message = reply.json["error"] if path == "/api/chat" else reply.json["error"]["message"]
    assert reply.status == 400
    assert (reply.header("x-should-retry"), reply.header("Retry-After")) == ("false", None)
    for pattern in MUST:
        assert re.search(pattern, message), pattern
    for pattern in MUST_NOT:
        assert not re.search(pattern, message), pattern
    assert re.match(r"prompt is too long: \d+ tokens > 3276 maximum\. ", message)
    assert "maximum context length is 3276 tokens" in message
    assert count > 4096


async def test_the_shape_on_v1_is_openais() -> None:
    shape = CASE["expect_shape"]
    async with front(window=4096) as line:
        reply = await line.ask(PATH, BODY)
    told = assert_r400(reply, "messages")
    assert reply.status == shape["status"]
    assert (reply.header("Content-Type") or "").startswith(shape["content_type"])
    assert shape["body"]["error"].keys() <= reply.json["error"].keys()
    assert told.facts["prompt_tokens"] > 4096


async def test_the_same_body_again_is_refused_from_memory() -> None:
    async with front(window=4096) as line:
        first = await line.ask(PATH, BODY)
        second = await line.ask(PATH, BODY)
        assert second.status == 400
        line.assert_refused(PATH, times=2)
    assert first.gate("repeated") is None
    assert second.gate("repeated") == "true"
    assert first.body == second.body
