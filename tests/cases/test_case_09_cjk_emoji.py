"""Chinese, Japanese, Korean, Devanagari, joined emoji: chars/4 is far too low (hermes-agent#59121)."""

import pytest

from support.cases import case, front, full

CHAT = case("09-cjk-emoji-mixed")


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_the_count_is_ollamas_to_the_token_and_the_text_arrives_unchanged(path: str) -> None:
    async with front(window=16384) as line:
        counted = await line.count("/api/chat", CHAT)
        reply = await line.ask(path, CHAT)
        got = line.got()[-1]
        off = line.metric("drift_total", model=full("qwen2.5:0.5b"), kind="off")
    assert reply.status == 200
    assert got.json()["messages"] == CHAT["messages"]
    assert counted["rung"] == "exact"
    assert counted["tokens"] == got.prompt_tokens
    assert off == 0
    assert counted["tokens"] > 2 * len(CHAT["messages"][0]["content"]) // 4
