"""A num_ctx far beyond model and memory hangs or kills Ollama (cherry-studio#19864, ollama-python#84)."""

import pytest

from support.cases import case, front, full

CHAT = case("21-num-ctx-huge")


@pytest.mark.parametrize("asked", [CHAT["options"]["num_ctx"], 2**62, -1, 0, 1.5e6])
async def test_the_operators_window_is_what_goes_up_and_a_header_says_so(asked: float) -> None:
    async with front() as line:
        reply = await line.ask("/api/chat", {**CHAT, "options": {"num_ctx": asked}})
        [got] = line.got()
        avoided = line.metric("reloads_avoided_total", model=full("llama3.2:1b"))
    assert reply.status == 200
    assert got.json()["options"]["num_ctx"] == 8192
    assert f"num_ctx {int(asked)} ignored: the window is 8192" in (reply.gate("note") or "")
    assert reply.gate("window") == "8192"
    assert avoided == 1


async def test_no_window_is_wider_than_the_model_was_trained_for() -> None:
    async with front(window=2_000_000_000) as line:
        reply = await line.ask("/api/chat", CHAT)
        [got] = line.got()
    assert reply.status == 200
    assert got.json()["options"]["num_ctx"] == 131_072


async def test_a_window_that_does_not_fit_the_memory_is_refused_saying_what_would() -> None:
    memory = {"limit": "64MiB", "host_cache_per_model": "0B"}
    async with front(window=131_072, memory=memory) as line:
        reply = await line.ask("/api/chat", CHAT)
        got = line.got()
    assert (reply.status, reply.json["code"]) == (503, "model_does_not_fit")
    assert not got
    most = reply.json["details"]["largest_num_ctx"]
    assert 256 < most < 131_072
    assert f"a num_ctx of at most {most}" in reply.json["error"]
    assert reply.header("Retry-After") is None


@pytest.mark.parametrize("asked", ["8192", [8192], True])
async def test_a_num_ctx_that_is_no_number_is_a_400_and_not_ollamas_500(asked: object) -> None:
    async with front() as line:
        reply = await line.ask("/api/chat", {**CHAT, "options": {"num_ctx": asked}})
        line.assert_refused("/api/chat", "invalid_request")
        straight = await line.straight("/api/chat", {**CHAT, "options": {"num_ctx": asked}})
    assert (reply.status, straight.status) == (400, 500)
    assert reply.json["param"] == "options.num_ctx"
    assert reply.json["error"] == straight.json["error"]


async def test_a_num_ctx_beyond_64_bits_is_a_400() -> None:
    async with front() as line:
        reply = await line.ask("/api/chat", {**CHAT, "options": {"num_ctx": 2**63}})
        line.assert_refused("/api/chat", "invalid_request")
    assert (reply.status, reply.json["param"]) == (400, "options.num_ctx")
