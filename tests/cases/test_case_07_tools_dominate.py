"""Two letters of text and 24 tool schemas: counters of messages let it pass (langchain#35098, dynamiq#906)."""

import pytest

from support.cases import assert_r400, case, front

CHAT = case("07-tools-dominate")
WINDOW = 2048


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_the_tools_are_named_as_what_does_not_fit(path: str) -> None:
    async with front(window=WINDOW) as line:
        told = assert_r400(await line.ask(path, CHAT), "tools")
        line.assert_refused(path)
        counted = await line.count("/api/chat", CHAT)
    tools = counted["parts"]["tools"]
    assert counted["rung"] == "exact"
    assert tools > WINDOW > 10 > counted["parts"]["messages"]
    assert f"The tools alone take {tools} tokens" in told.message
    assert told.facts["parts"]["tools"] == tools


async def test_the_count_holds_the_templates_own_wrapping_of_tools() -> None:
    async with front(window=16384) as line:
        counted = await line.count("/api/chat", CHAT)
        reply = await line.ask("/api/chat", CHAT)
        got = line.got()[-1]
    assert reply.json["prompt_eval_count"] == got.prompt_tokens == counted["tokens"]
    assert got.json()["tools"] == CHAT["tools"]


async def test_with_few_enough_tools_the_same_request_passes() -> None:
    async with front(window=WINDOW) as line:
        reply = await line.ask("/api/chat", {**CHAT, "tools": CHAT["tools"][:4]})
    assert reply.status == 200
