"""One long text in a batch fails it all, with advice that does not help (inference-snaps#344, LightRAG#1164)."""

import pytest

from support.cases import assert_r400, case, front

BATCH = case("05-embed-batch-one-over")
LIMIT = 2048
"""The model takes 8192 tokens, but Ollama's num_batch for an embedder stays at 2048."""


@pytest.mark.parametrize("path", ["/api/embed", "/v1/embeddings"])
async def test_the_one_text_that_is_too_long_is_named(path: str) -> None:
    async with front() as line:
        counted = await line.count("/api/embed", BATCH)
        told = assert_r400(await line.ask(path, BATCH), "input[2]")
        line.assert_refused(path)
    assert counted["over"] == [2]
    assert counted["inputs"][2] > LIMIT
    assert (told.facts["limit"], told.facts["limit_is"]) == (LIMIT, "num_batch")
    assert "input[2]" in told.message
    assert "num_batch" in told.message


async def test_without_it_the_batch_is_embedded_and_num_batch_stays_the_operators() -> None:
    rest = {**BATCH, "input": [text for text in BATCH["input"] if len(text) < 100]}
    async with front() as line:
        reply = await line.ask("/api/embed", rest)
        [got] = line.got()
    assert reply.status == 200
    assert len(reply.json["embeddings"]) == 3
    assert got.json()["options"] == {"num_ctx": 8192}
    assert "num_batch ignored" in (reply.gate("note") or "")
