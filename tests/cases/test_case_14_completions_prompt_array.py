"""Lists of prompts and of token ids at /v1/completions: errors about Go struct fields (ollama#5259)."""

import pytest

from support.cases import case, front

ONE, *OTHERS = case("14-completions-prompt-array")["cases"]
PATH = "/v1/completions"


async def test_a_list_of_one_text_is_that_text() -> None:
    async with front() as line:
        reply = await line.ask(PATH, ONE)
        [got] = line.got()
    assert reply.status == 200
    assert got.path == "/api/generate"
    assert got.json()["prompt"] == ONE["prompt"][0]
    assert got.json()["options"]["num_predict"] == ONE["max_tokens"]
    assert reply.json["choices"][0]["text"]


@pytest.mark.parametrize("body", OTHERS, ids=lambda body: str(body["prompt"])[:24])
async def test_anything_else_is_refused_in_plain_words(body: dict) -> None:  # type: ignore[type-arg]
    async with front() as line:
        reply = await line.ask(PATH, body)
        got = line.got()
    error = reply.json["error"]
    assert reply.status == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", "prompt")
    assert "prompt" in error["message"]
    for gibberish in ("Go ", "struct", "unmarshal", "Traceback"):
        assert gibberish not in error["message"]
    assert not got
