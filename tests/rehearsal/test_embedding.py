"""Embeddings: limits, cutting, counts, and vectors that mean something."""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from ollama_gate.rehearsal.wordpiece import WordPiece, wordpiece_metadata
from support.rawhttp import exchange
from support.recorded import recording

LONG = Model("rehearsal-embed-long:latest", Mode.EMBEDDING, "none", capabilities=("embedding",), context_length=8192)


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    settings = Settings()
    async with Rehearsal(Settings(models=(*settings.models, LONG))) as rehearsal:
        yield rehearsal


async def embed(
    upstream: Rehearsal, given: Any, *, path: str = "/api/embed", **fields: Any
) -> tuple[int, dict[str, Any]]:
    key = "input" if path == "/api/embed" else "prompt"
    body = json.dumps({"model": "rehearsal-embed", key: given, **fields}).encode()
    answer = await exchange(upstream.url, "POST", path, body=body)
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize(
    ("words", "options", "truncate", "expected"),
    [
        (126, {"num_ctx": 128}, False, (200, 128)),
        (127, {"num_ctx": 128}, False, (400, None)),
        (127, {"num_ctx": 128}, True, (200, 128)),
        (510, {}, False, (200, 512)),
        (511, {}, False, (400, None)),
        (9000, {}, True, (200, 512)),
        (127, {"num_batch": 128}, False, (400, None)),
        (127, {"num_batch": 128}, True, (200, 128)),
        (126, {"num_batch": 128}, False, (200, 128)),
        (1, {"num_ctx": 2}, True, (400, None)),
    ],
)
async def test_the_limits_are_as_seen(
    upstream: Rehearsal, words: int, options: dict[str, int], truncate: object, expected: tuple[int, int | None]
) -> None:
    status, answer = await embed(upstream, "a " * words, options=options, truncate=truncate)
    if options == {"num_ctx": 2}:
        # num_ctx is raised to 4 for the runner, but Ollama's own arithmetic still takes two from what was asked.
        assert answer == {"error": "input after truncation exceeds maximum context length"}
        return
    assert (status, answer.get("prompt_eval_count")) == expected
    if status == 400:
        assert json.dumps(answer, separators=(",", ":")) == recording("native-embed-over-truncate-false").chunks[0]


async def test_a_longer_embedder_still_takes_only_a_batch(upstream: Rehearsal) -> None:
    model: dict[str, Any] = {"model": "rehearsal-embed-long", "options": {"num_ctx": 8192}}
    assert (await embed(upstream, "a " * 2046, truncate=False, **model))[0] == 200
    assert (await embed(upstream, "a " * 2047, truncate=False, **model))[0] == 400
    assert (await embed(upstream, "a " * 4000, **model))[1]["prompt_eval_count"] == 2048
    model["options"] = {"num_ctx": 8192, "num_batch": 8192}
    assert (await embed(upstream, "a " * 4000, truncate=False, **model))[1]["prompt_eval_count"] == 4002


async def test_the_old_route_never_cuts(upstream: Rehearsal) -> None:
    status, answer = await embed(upstream, "a " * 510, path="/api/embeddings")
    assert (status, len(answer["embedding"])) == (200, 64)
    status, answer = await embed(upstream, "a " * 511, path="/api/embeddings")
    recorded = recording("native-embeddings-over")
    assert (status, json.dumps(answer, separators=(",", ":"))) == (recorded.status, recorded.chunks[0])


async def test_counts_are_sums_and_one_too_long_fails_all(upstream: Rehearsal) -> None:
    assert (await embed(upstream, ["a", "b c", ""]))[1]["prompt_eval_count"] == 9
    assert (await embed(upstream, ["a", "b " * 600], truncate=False))[0] == 400


async def test_vectors_are_of_length_one_and_near_for_texts_with_the_same_words(upstream: Rehearsal) -> None:
    texts = ["the window of the model", "the model of the window", "a window of that model", "prices rose by 12 %"]
    _, answer = await embed(upstream, texts)
    same, swapped, near, far = answer["embeddings"]

    def cosine(left: list[float], right: list[float]) -> float:
        return sum(a * b for a, b in zip(left, right, strict=True))

    assert all(math.isclose(cosine(v, v), 1, rel_tol=1e-5) for v in (same, swapped, near, far))
    assert math.isclose(cosine(same, swapped), 1, rel_tol=1e-5)
    assert cosine(same, near) > cosine(same, far) + 0.2
    _, short = await embed(upstream, texts[:1], dimensions=8)
    assert len(short["embeddings"][0]) == 8
    assert math.isclose(cosine(short["embeddings"][0], short["embeddings"][0]), 1, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the model", ["▁the", "▁model"]),
        ("Thé MODEL!", ["▁the", "▁model", "▁!"]),
        ("日本", ["[UNK]", "[UNK]"]),
        ("a\x00b", None),
        ("", []),
    ],
)
def test_words_are_cut_as_bert_cuts_them(text: str, pieces: list[str] | None) -> None:
    vocabulary = WordPiece(wordpiece_metadata())
    tokens = [vocabulary.tokens[at] for at in vocabulary.encode(text)]
    if pieces is None:
        assert "".join(tokens) == "▁ab"  # a NUL is dropped and does not end a word
    else:
        assert tokens == pieces
    assert len(vocabulary.encode(text, special=True)) == len(tokens) + 2
