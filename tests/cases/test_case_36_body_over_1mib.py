"""Bodies of some megabytes: 413 from the framework, or cut at a buffer (agentgateway#2350, #2359)."""

import asyncio
import json
from typing import Any

import pytest

from support.cases import assert_r400, case, front

CASE = case("36-body-over-1mib")


def expanded(value: Any) -> Any:
    """The recipe with its repetitions written out."""
    if isinstance(value, dict):
        if "$repeat" in value:
            text, times = value["$repeat"]
            return text * times
        return {key: expanded(one) for key, one in value.items()}
    return [expanded(one) for one in value] if isinstance(value, list) else value


PICTURE = expanded(CASE["recipe"]["body"])
TEXT = json.dumps(expanded(CASE["also"]["body"])).encode()


async def test_a_picture_of_megabytes_goes_up_whole() -> None:
    async with front(settings={"keep_body": 1 << 24}) as line:
        reply = await line.ask("/api/chat", PICTURE)
        [got] = line.got()
    assert reply.status == 200
    assert got.size > 2 << 20
    assert got.json()["messages"] == PICTURE["messages"]


async def test_two_million_words_are_refused_while_others_are_served() -> None:
    async with front() as line, asyncio.TaskGroup() as group:
        known = {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "word " * 8000}]}
        assert_r400(await line.ask("/api/chat", known), "messages")
        huge = group.create_task(line.ask("/api/chat", TEXT))
        served = [await line.ask("/api/version", method="GET") for _ in range(20)]
        told = assert_r400(await huge, "messages")
        line.assert_refused("/api/chat", times=2)
    assert {one.status for one in served} == {200}
    assert told.facts["prompt_tokens"] <= 2_000_000 < told.facts["at_most"]
    assert "The count is the lower bound that the text's bytes give" in told.message


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages"])
async def test_above_the_gates_own_limit_it_is_413_in_the_callers_shape(path: str) -> None:
    async with front(server={"max_body": "1MiB"}) as line:
        declared = await line.ask(path, TEXT)
        pieces = b"".join(b"%x\r\n%s\r\n" % (65536, TEXT[at : at + 65536]) for at in range(0, 2 << 20, 65536))
        chunked = await line.ask(path, headers={"Transfer-Encoding": "chunked"}, body=pieces + b"0\r\n\r\n")
        line.assert_refused(path, "body_too_large", times=2)
    for reply in (declared, chunked):
        assert reply.status == 413
        assert (reply.header("Content-Type") or "").startswith("application/json")
        assert "1048576 bytes" in json.dumps(reply.json["error"])
        assert reply.header("x-should-retry") == "false"
