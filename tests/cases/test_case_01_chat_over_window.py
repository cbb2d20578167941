"""A chat longer than the window: Ollama answers 200 from its tail only (ollama#4967, #3839, #10368, Roo-Code#1372)."""

import pytest

from support.cases import assert_r400, case, front

CHAT = case("01-chat-over-window")
WINDOW = 512
BUDGET = 409


async def test_ollama_itself_cuts_it_and_says_200() -> None:
    async with front(window=WINDOW) as line:
        answer = await line.straight("/api/chat", CHAT)
    assert answer.status == 200
    assert answer.json["prompt_eval_count"] < WINDOW


@pytest.mark.parametrize(("path", "stream"), [("/api/chat", False), ("/v1/chat/completions", True)])
async def test_the_gate_refuses_it_before_ollama_sees_it(path: str, *, stream: bool) -> None:
    async with front(window=WINDOW) as line:
        told = assert_r400(await line.ask(path, {**CHAT, "stream": stream}), "messages")
        line.assert_refused(path)
        counted = await line.count("/api/chat", CHAT)
    assert counted["rung"] == "exact"
    assert counted["tokens"] > WINDOW
    assert told.message.startswith(f"prompt is too long: {counted['tokens']} tokens > {BUDGET} maximum.")
    for part in ("messages ", "tools 0", "template ", f"{WINDOW - BUDGET} reserved for the answer"):
        assert part in told.message
    assert (told.facts["budget"], told.facts["window"], told.facts["reserved_output"]) == (BUDGET, WINDOW, 103)
    assert sum(told.facts["parts"].values()) == counted["tokens"]


async def test_a_request_shortened_by_what_the_refusal_says_passes_whole() -> None:
    async with front(window=WINDOW) as line:
        told = assert_r400(await line.ask("/api/chat", CHAT), "messages")
        over = told.facts["at_most"] - told.facts["budget"]
        words = CHAT["messages"][1]["content"].split(" ")
        shorter = {**CHAT, "messages": [CHAT["messages"][0], {"role": "user", "content": " ".join(words[over:])}]}
        reply = await line.ask("/api/chat", shorter)
        [got] = line.got()
    assert reply.status == 200
    assert got.json()["messages"] == shorter["messages"]
    assert reply.json["prompt_eval_count"] == got.prompt_tokens <= told.facts["budget"]
