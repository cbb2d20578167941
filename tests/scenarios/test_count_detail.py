"""/gate/count?detail=1: where the window goes, message by message and tool by tool."""

import pytest

from support.cases import case, front
from support.gate import running_gate
from support.http import ask
from support.scripted import ScriptedOllama

CHAT = case("07-tools-dominate")


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_each_message_and_tool_has_its_share(path: str) -> None:
    talk = {**CHAT, "messages": [{"role": "system", "content": "Be brief."}, *CHAT["messages"]]}
    async with front(window=16384) as line:
        await line.count("/api/chat", CHAT)
        told = (await line.ask(f"/gate/count?detail=1&route={path}", talk)).json
        fewer = (await line.ask(f"/gate/count?route={path}", {**talk, "tools": talk["tools"][1:]})).json
        word = (await line.ask("/gate/tokenize", {"model": talk["model"], "text": "Be brief."})).json
    assert [share["role"] for share in told["per_message"]] == ["system", "user"]
    assert told["per_message"][0]["tokens"] == word["count"]
    assert sum(share["tokens"] for share in told["per_message"]) == told["parts"]["messages"]
    assert [share["name"] for share in told["per_tool"]] == [tool["function"]["name"] for tool in CHAT["tools"]]
    assert told["per_tool"][0]["tokens"] == told["tokens"] - fewer["tokens"] > 0
    assert 0.9 < sum(share["tokens"] for share in told["per_tool"]) / told["parts"]["tools"] <= 1.0


async def test_many_tools_are_counted_by_their_json() -> None:
    talk = {**CHAT, "tools": CHAT["tools"] * 3}
    async with front(window=16384) as line:
        told = (await line.ask("/gate/count?detail=1", talk)).json
    assert len(told["per_tool"]) == len(talk["tools"]) > 64
    assert all(share["tokens"] > 10 for share in told["per_tool"])


async def test_nothing_is_split_without_being_asked_or_without_a_vocabulary() -> None:
    async with front() as line:
        assert "per_message" not in (await line.ask("/gate/count", CHAT)).json
        assert "per_message" not in (await line.ask("/gate/count?detail=0", CHAT)).json
        embed = {"model": "all-minilm", "input": ["a"]}
        assert "per_message" not in (await line.ask("/gate/count?detail=1", embed)).json

    async def none(got: object, writer: object) -> None:
        raise AssertionError("nothing is to be run")

    async with ScriptedOllama(none) as ollama, running_gate(ollama.url) as gate:
        body = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}]}
        told = (await ask(gate.address, "POST", "/gate/count?detail=1", body)).json
    assert told["rung"] == "bound"
    assert "per_message" not in told
