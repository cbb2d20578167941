"""Assistant messages whose content is null (pydantic-ai#5206, qwen-code#3421, cheetahclaws#71, open-webui#12441)."""

import json
from typing import Any

from support.cases import case, front

CHAT = case("16-null-content")


def native() -> dict[str, Any]:
    """The same conversation in Ollama's own form: arguments as an object, thoughts as `thinking`."""
    messages = []
    for message in CHAT["messages"]:
        own = {key: value for key, value in message.items() if key != "reasoning_content"}
        if "reasoning_content" in message:
            own["thinking"] = message["reasoning_content"]
        if calls := message.get("tool_calls"):
            function = calls[0]["function"]
            arguments = json.loads(function["arguments"])
            own["tool_calls"] = [{"function": {"name": function["name"], "arguments": arguments}}]
        messages.append(own)
    return {**CHAT, "messages": messages}


async def test_null_with_tool_calls_is_no_text_and_goes_on() -> None:
    called = {**CHAT, "messages": CHAT["messages"][:3]}
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", called)
        [got] = line.got()
        counted = await line.count("/v1/chat/completions", called)
    assert reply.status == 200
    assert got.prompt_tokens == counted["tokens"]
    assert not got.json()["messages"][1].get("content")
    assert got.json()["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"stop": "mill"}


async def test_null_without_tool_calls_on_v1_gets_the_answer_that_ollama_gives() -> None:
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
        straight = await line.straight("/v1/chat/completions", CHAT)
    assert reply.status == straight.status
    assert ("error" in reply.json) == ("error" in straight.json)


async def test_the_native_api_takes_null_and_counts_it_as_no_text() -> None:
    body = native()
    empty = {**body, "messages": [{**one, "content": one["content"] or ""} for one in body["messages"]]}
    async with front() as line:
        counted = await line.count("/api/chat", body)
        as_empty = await line.count("/api/chat", empty)
        reply = await line.ask("/api/chat", body)
        got = line.got()[-1]
    assert reply.status == 200
    assert counted["tokens"] == as_empty["tokens"] == got.prompt_tokens
