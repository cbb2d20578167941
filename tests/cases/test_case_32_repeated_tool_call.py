"""The same tool call six times over: nobody notices (prime-agent#1326, hermes-agent#512, opencode#3743)."""

from support.cases import case, front

CHAT = case("32-repeated-tool-call")


async def test_it_is_never_blocked() -> None:
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
        [got] = line.got()
    assert reply.status == 200
    assert len(got.json()["messages"]) == len(CHAT["messages"])
