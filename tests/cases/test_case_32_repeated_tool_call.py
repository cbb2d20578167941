"""The same tool call six times over: nobody notices (prime-agent#1326, hermes-agent#512, opencode#3743)."""

import io
import json

import pytest

from support.cases import case, front, full

CHAT = case("32-repeated-tool-call")


async def test_it_is_passed_on_with_a_signal(written_log: io.StringIO) -> None:
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
        [got] = line.got()
        counted = line.metric("signals_total", model=full(CHAT["model"]), signal="repeated-call")
    assert reply.status == 200
    assert len(got.json()["messages"]) == len(CHAT["messages"])
    assert reply.gate("signals") == "repeated-call=6 (shell)"
    assert counted == 1
    lines = [json.loads(one) for one in written_log.getvalue().splitlines()]
    [told] = [one for one in lines if one["event"] == "request"]
    assert told["signals"] == {"repeated-call": 6}


async def test_a_tool_that_polls_can_be_exempt() -> None:
    async with front(signals={"exempt_tools": ["shell"]}) as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
    assert (reply.status, reply.gate("signals")) == (200, None)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat"])
async def test_it_can_be_refused(path: str) -> None:
    body = json.loads(json.dumps(CHAT))
    if path == "/api/chat":
        for message in body["messages"]:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    async with front(signals={"block": ["repeated-call"]}) as line:
        reply = await line.ask(path, body)
        line.assert_refused(path, "signal_blocked")
    assert reply.status == 400
    error = reply.json["error"]
    assert ("shell" in error) if path == "/api/chat" else error["code"] == "signal_blocked"


async def test_switched_off_nothing_is_looked_for() -> None:
    async with front(signals={"enabled": False, "block": ["repeated-call"]}) as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
    assert (reply.status, reply.gate("signals")) == (200, None)
