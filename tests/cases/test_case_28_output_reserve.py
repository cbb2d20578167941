"""Prompt and answer share one window: the head is lost or the answer never ends (chatlas#327, vllm#12600)."""

from typing import Any

import pytest

from support.cases import assert_r400, case, front, full

NO_LIMIT, TOO_MUCH, MAX_TOKENS, MAX_COMPLETION = (one["body"] for one in case("28-output-reserve")["cases"])
NATIVE, V1 = "/api/chat", "/v1/chat/completions"
WIDE = {"window": 2048, "defaults": {"budget": 2000}}
"""The prompt's byte bound is over the budget and its count is not, so that it is counted before it is sent."""


def fits(**more: Any) -> dict[str, Any]:
    return {**WIDE, **more}


async def test_no_limit_becomes_the_room_that_is_left() -> None:
    async with front(**fits()) as line:
        counted = await line.count(NATIVE, NO_LIMIT)
        reply = await line.ask(NATIVE, NO_LIMIT)
        got = line.got()[-1]
    assert reply.status == 200
    assert got.json()["options"] == {"num_predict": 2048 - counted["tokens"], "num_ctx": 2048}
    assert reply.gate("room") == str(2048 - counted["tokens"])


async def test_more_than_there_is_room_for_is_clamped_and_said() -> None:
    async with front(**fits()) as line:
        counted = await line.count(NATIVE, TOO_MUCH)
        long = {**TOO_MUCH, "options": {"num_predict": 1900}}
        reply = await line.ask(NATIVE, long)
        got = line.got()[-1]
        clamped = line.metric("output_clamped_total", model=full("llama3.2:1b"))
    room = 2048 - counted["tokens"]
    assert reply.status == 200
    assert got.json()["options"]["num_predict"] == room < 1900
    assert f"asked output clamped to {room}" in (reply.gate("note") or "")
    assert clamped == 1


async def test_the_policy_refuse_names_both_parts() -> None:
    policy = {"num_ctx": 2048, "budget": 2000, "on_long_reply": "refuse"}
    long = {**TOO_MUCH, "options": {"num_predict": 1900}}
    async with front(defaults=policy) as line:
        told = assert_r400(await line.ask(NATIVE, long), "options.num_predict")
        line.assert_refused(NATIVE)
        counted = await line.count(NATIVE, long)
    assert f"prompt {counted['tokens']} tokens and 1900 asked for the answer, in a window of 2048" in told.message
    assert told.facts["room"] == 2048 - counted["tokens"]


async def test_both_names_of_the_limit_are_honoured_on_v1() -> None:
    async with front() as line:
        for body, tokens in ((MAX_TOKENS, 8000), (MAX_COMPLETION, 64)):
            reply = await line.ask(V1, body)
            assert reply.status == 200
            assert line.got()[-1].json()["options"]["num_predict"] == tokens


async def test_the_two_meanings_of_length_are_told_apart() -> None:
    async with front(window=256, defaults={"budget": 255}) as line:
        question = {"model": "llama3.2:1b", "stream": False, "messages": [{"role": "user", "content": "Speak long."}]}
        limit = await line.ask(NATIVE, {**question, "options": {"num_predict": 5}})
        words = {**question, "messages": [{"role": "user", "content": "word " * 235}]}
        window = await line.ask(NATIVE, words)
        ends = {
            kind: line.metric("endings_total", model=full("llama3.2:1b"), ending=kind) for kind in ("limit", "window")
        }
    assert (limit.json["done_reason"], limit.gate("ended")) == ("length", "limit")
    assert (window.json["done_reason"], window.gate("ended")) == ("length", "window")
    assert ends == {"limit": 1, "window": 1}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
async def test_the_two_meanings_are_told_apart_on_v1_too(path: str) -> None:
    async with front(window=256, defaults={"budget": 255}) as line:
        ended = []
        for most, words in ((5, "Speak long."), (4000, "word " * 225)):
            asked = {"prompt": words, "input": words, "messages": [{"role": "user", "content": words}]}
            [field] = {"/v1/completions": ["prompt"], "/v1/responses": ["input"]}.get(path, ["messages"])
            limit = "max_output_tokens" if field == "input" else "max_tokens"
            reply = await line.ask(path, {"model": "llama3.2:1b", limit: most, field: asked[field]})
            assert reply.status == 200, reply.body
            ended.append(reply.gate("ended"))
    assert ended == ["limit", "window"]
