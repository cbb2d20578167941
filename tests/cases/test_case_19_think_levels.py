"""think as a switch or a level: libraries drop it, and it changes the prompt (claude-code-router#1093)."""

import pytest

from support.cases import case, front

CASE = case("19-think-levels")
VALUES = CASE["think_values"]
PATH = CASE["path"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_goes_up_as_it_was_sent_and_ollamas_answer_comes_back(value: object) -> None:
    body = {**CASE["template"], "think": value}
    async with front() as line:
        reply = await line.ask(PATH, body)
        sent = [one.json()["think"] for one in line.got()]
        straight = await line.straight(PATH, body)
    assert reply.status == straight.status
    if reply.status == 200:
        assert sent == [value]
        assert reply.json["prompt_eval_count"] == straight.json["prompt_eval_count"]
    else:
        assert reply.json["error"] == straight.json["error"]


async def test_the_count_follows_the_value_because_the_prompt_does() -> None:
    async with front() as line:
        counts = {}
        for value in (True, False, "high"):
            body = {**CASE["template"], "think": value}
            counts[value] = (await line.count(PATH, body))["tokens"]
            assert (await line.ask(PATH, body)).json["prompt_eval_count"] == counts[value]
    assert counts[False] > counts[True] == counts["high"]


@pytest.mark.parametrize(
    ("effort", "think"), list(zip(CASE["reasoning_effort_values"], [False, "low", "high", "low"], strict=True))
)
async def test_an_effort_on_v1_becomes_ollamas_think(effort: str, think: object) -> None:
    async with front() as line:
        reply = await line.ask("/v1/chat/completions", {**CASE["v1_template"], "reasoning_effort": effort})
        [got] = line.got()
    assert reply.status == 200
    assert got.json()["think"] == think
