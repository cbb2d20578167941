"""Halves of UTF-16 pairs in JSON escapes crash Python proxies (litellm#24196, aider#3693, kimi-cli#994)."""

import pytest

from support.cases import front, raw_case

RAW = raw_case("10-lone-surrogate")
AS_GO_READS_IT = "left \ufffd right, then a whole pair \U0001f600, then a low one alone \ufffd, then U+0000 \x00 end"


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_lone_halves_become_replacement_characters_and_nothing_else_changes(path: str) -> None:
    async with front() as line:
        counted = await line.count("/api/chat", RAW)
        reply = await line.ask(path, RAW)
        got = line.got()[-1]
    assert reply.status == 200
    assert got.json()["messages"] == [{"role": "user", "content": AS_GO_READS_IT}]
    assert counted["tokens"] == got.prompt_tokens


async def test_it_counts_as_ollama_counts_the_clients_own_bytes() -> None:
    async with front() as line:
        counted = await line.count("/api/chat", RAW)
        straight = await line.straight("/api/chat", RAW)
    assert straight.json["prompt_eval_count"] == counted["tokens"]
