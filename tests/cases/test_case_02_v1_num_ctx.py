"""A num_ctx in a /v1 body is dropped by Ollama, and the prompt is cut (ollama#5356, #2677, hermes-agent#43900)."""

from typing import Any

import pytest

from support.cases import assert_r400, case, front

CHAT = case("02-v1-num-ctx-ignored")
ASKED = 8192


async def test_ollama_itself_drops_the_wish_and_cuts_the_prompt() -> None:
    async with front() as line:
        answer = await line.straight("/v1/chat/completions", CHAT)
        counted = await line.count("/api/chat", CHAT)
    assert answer.status == 200
    assert answer.json["usage"]["prompt_tokens"] < 4096 < counted["tokens"]


async def test_within_the_operators_window_it_passes_whole() -> None:
    async with front(window=16384) as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
        [got] = line.got()
        counted = await line.count("/api/chat", CHAT)
    assert reply.status == 200
    assert got.path == "/api/chat"
    assert got.json()["messages"] == CHAT["messages"]
    assert got.json()["options"]["num_ctx"] == 16384
    assert (got.json()["truncate"], got.json()["shift"]) == (False, False)
    assert reply.json["usage"]["prompt_tokens"] == counted["tokens"]
    assert "num_ctx 8192 ignored: the window is 16384" in (reply.gate("note") or "")


async def test_over_the_operators_window_it_is_refused() -> None:
    async with front(window=4096) as line:
        told = assert_r400(await line.ask("/v1/chat/completions", CHAT), "messages")
        line.assert_refused("/v1/chat/completions")
    assert told.facts["window"] == 4096


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("own", [{"num_ctx": ASKED}, {"options": {"num_ctx": ASKED}}], ids=["top-level", "options"])
async def test_a_refusal_says_that_the_clients_own_num_ctx_did_not_decide(path: str, own: dict[str, Any]) -> None:
    body = {"model": CHAT["model"], "messages": CHAT["messages"], "max_tokens": 5, **own}
    async with front(window=4096) as line:
        replies = [await line.ask(path, body) for _ in range(2)]
    assert [reply.gate("repeated") for reply in replies] == [None, "true"]
    for reply in replies:
        assert "num_ctx 8192 ignored: the window is 4096" in (reply.gate("note") or "")
        told = assert_r400(reply, "messages")
        assert "larger budget. Your own num_ctx of 8192 has no effect here" in told.message


async def test_a_num_ctx_that_would_not_have_helped_is_no_matter_of_the_message() -> None:
    async with front(window=4096) as line:
        reply = await line.ask("/api/chat", {**CHAT, "num_ctx": None, "options": {"num_ctx": 512}})
    assert reply.gate("note") == "num_ctx 512 ignored: the window is 4096"
    assert "num_ctx" not in assert_r400(reply, "messages").message


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("value", ["8192", [8192], {}, True, 1e300])
async def test_one_of_another_type_is_ignored_as_by_ollama_and_said(path: str, value: Any) -> None:
    body = {"model": CHAT["model"], "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "num_ctx": value}
    async with front(window=4096) as line:
        straight = await line.straight(path, body)
        reply = await line.ask(path, body)
    assert straight.status == reply.status == 200
    assert reply.gate("note") == "num_ctx ignored: it is no number of tokens, and the window is the operator's"
