"""Likeness in meaning: remembered, bounded, and never in the way."""

import asyncio
from collections.abc import Sequence

import pytest

from ollama_gate.compaction.meanings import Meanings
from ollama_gate.errors import GateError

VECTORS = {"question": [2.0, 0.0], "same": [5.0, 0.0], "other": [0.0, 3.0], "against": [-1.0, 0.0]}


class Model:
    """An embedding model of three words."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: Exception | None = None

    async def __call__(self, texts: Sequence[str]) -> list[list[float]] | None:
        self.asked += texts
        if self.failure is not None:
            raise self.failure
        return [VECTORS.get(text, [1.0, 1.0]) for text in texts]


async def test_texts_are_compared_with_the_question_and_asked_for_once() -> None:
    model = Model()
    meanings = Meanings(model, patience=5.0)
    for _ in range(2):
        assert await meanings("question", ["same", "other", "against"]) == pytest.approx([1.0, 0.0, -1.0])
    assert model.asked == ["question", "same", "other", "against"]


async def test_a_model_that_fails_leaves_the_words_alone_to_decide() -> None:
    model = Model()
    model.failure = GateError("not there")
    meanings = Meanings(model, patience=5.0)
    assert await meanings("question", ["same"]) is None
    model.failure = None
    assert await meanings("question", ["same"]) == pytest.approx([1.0])


async def test_a_slow_model_is_not_waited_for() -> None:
    async def never(texts: Sequence[str]) -> list[list[float]] | None:
        await asyncio.Event().wait()
        return None

    assert await Meanings(never, patience=0.01)("question", ["same"]) is None


async def test_what_came_in_time_is_used() -> None:
    model, calls = Model(), 0

    async def once(texts: Sequence[str]) -> list[list[float]] | None:
        nonlocal calls
        calls += 1
        if calls > 1:
            await asyncio.Event().wait()
        return await model(texts)

    told = await Meanings(once, patience=0.2)("question", ["same"] + [f"text {number}" for number in range(40)])
    assert told is not None
    assert told[0] == pytest.approx(1.0)
    assert told[-1] is None


async def test_vectors_are_bounded_in_number_and_bytes() -> None:
    many = [f"text {number}" for number in range(40)]
    meanings = Meanings(Model(), patience=5.0, most=10)
    await meanings("question", many)
    assert len(meanings) == 10
    meanings = Meanings(Model(), patience=5.0, most_bytes=8 * 7)
    await meanings("question", many)
    assert len(meanings) == 7


@pytest.mark.parametrize("told", [None, [], [[1.0]], [[1.0], [1.0, 2.0]]])
async def test_odd_answers_are_none(told: list[list[float]] | None) -> None:
    async def odd(texts: Sequence[str]) -> list[list[float]] | None:
        return told

    answer = await Meanings(odd, patience=5.0)("question", ["same"])
    assert answer is None or answer == [None]
