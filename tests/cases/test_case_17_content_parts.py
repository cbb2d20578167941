"""Content as a list of parts (cline#363, litellm#11273, ollama#3824, #10255)."""

import pytest

from support.cases import case, front

CHAT = case("17-content-parts")


async def test_on_v1_each_part_is_a_message_of_its_own_as_in_ollama() -> None:
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", CHAT)
        [got] = line.got()
        counted = await line.count("/v1/chat/completions", CHAT)
        straight = await line.straight("/v1/chat/completions", CHAT)
    assert reply.status == 200
    assert [(one["role"], one["content"]) for one in got.json()["messages"]] == [
        ("system", "Be brief."),
        ("user", "First half of the question,"),
        ("user", " second half of the question?"),
    ]
    assert counted["tokens"] == got.prompt_tokens == straight.json["usage"]["prompt_tokens"]
    assert counted["rung"] == "exact"


@pytest.mark.parametrize("path", ["/api/chat", "/gate/count?route=/api/chat"])
async def test_the_native_api_takes_no_parts_and_says_so_in_plain_words(path: str) -> None:
    async with front() as line:
        reply = await line.ask(path, CHAT)
        got = line.got()
    assert reply.status == 400
    assert reply.json["param"] == "messages[0].content"
    assert "content must be a string" in reply.json["error"]
    assert not got
