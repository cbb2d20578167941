"""A text longer than the embedder's window: cut, 400 or 500 by version (ollama#14186, ollama-r#33)."""

import pytest

from support.cases import assert_r400, case, front

EMBED = case("04-embed-over-window")
TEXT = EMBED["input"]
MODEL = EMBED["model"]
LIMIT = 512

BODIES = [
    ("/api/embed", EMBED, "input"),
    ("/api/embed", {"model": MODEL, "input": TEXT}, "input"),
    ("/v1/embeddings", {"model": MODEL, "input": TEXT}, "input"),
    ("/api/embeddings", {"model": MODEL, "prompt": TEXT}, "prompt"),
]


async def test_ollama_itself_cuts_it_and_says_200() -> None:
    async with front() as line:
        answer = await line.straight("/api/embed", EMBED)
    assert answer.status == 200
    assert answer.json["prompt_eval_count"] <= LIMIT


async def test_the_gate_refuses_it_on_every_path() -> None:
    async with front() as line:
        counted = await line.count("/api/embed", EMBED)
        for path, body, param in BODIES:
            told = assert_r400(await line.ask(path, body), param)
            assert told.facts["prompt_tokens"] == counted["inputs"][0] > LIMIT
            assert told.facts["limit"] == LIMIT
        for path in ("/v1/embeddings", "/api/embeddings"):
            line.assert_refused(path)
        line.assert_refused("/api/embed", times=2)
    assert (counted["rung"], counted["limit"], counted["over"]) == ("exact", LIMIT, [0])


@pytest.mark.parametrize("path", ["/api/embed", "/v1/embeddings"])
async def test_a_text_that_fits_is_embedded_whole_and_truncate_never_goes_up_as_true(path: str) -> None:
    short = TEXT[: len(TEXT) // 4]
    async with front() as line:
        reply = await line.ask(path, {"model": MODEL, "input": short, "truncate": True})
        [got] = line.got()
        counted = await line.count("/api/embed", {"model": MODEL, "input": short})
    assert reply.status == 200
    assert got.json()["truncate"] is False
    assert "shift" not in got.json()
    assert got.prompt_tokens == counted["tokens"]
