"""A num_ctx in a /v1 body is dropped by Ollama, and the prompt is cut (ollama#5356, #2677, hermes-agent#43900)."""

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
