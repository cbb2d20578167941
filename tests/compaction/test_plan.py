"""Plans are believed only as far as they are possible; the checks see the rest."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.compaction.building import build
from ollama_gate.compaction.checks import CheckFailed, check
from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.filling import Filler
from ollama_gate.compaction.plan import Excerpt, Kept, Plan
from ollama_gate.compaction.reuse import made
from ollama_gate.compaction.terms import Terms
from support import long_talks
from support.random_talks import count

TERMS = Terms(2500, 4000, keep_last=4)
TALK = [*long_talks.long_talk(8, 40)[:-1], *long_talks.analyst(1, 30)[1:], *long_talks.indicators(6, 20)[1:]]


def plan() -> Plan:
    found = Filler(Conversation(TALK), TERMS, count).fill().plan
    assert found.excerpts
    assert not found.called
    return found


def test_a_plan_comes_back_as_it_was() -> None:
    assert Plan.unpack(plan().pack(), len(TALK)) == plan()


def packed(**changes: Any) -> bytes:
    return orjson.dumps({**orjson.loads(plan().pack()), **changes})


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b"{}",
        packed(kept=[[0, -1, 0, -1, 1]]),
        packed(kept=[[1, -1, 0, -1, 1, 1], [0, -1, 0, -1, 1, 1]]),
        packed(kept=[[0, -1, 0, -1, 1, 1], [0, -1, 0, -1, 1, 1]]),
        packed(kept=[[10_000, -1, 0, -1, 1, 1]]),
        packed(kept=[[-1, -1, 0, -1, 1, 1]]),
        packed(kept=[["0", -1, 0, -1, 1, 1]]),
        packed(kept=[[0, True, 0, -1, 1, 1]]),
        packed(excerpts=[[0, 5, 5]]),
        packed(excerpts=[[1, 0, 5], [0, 0, 5]]),
        packed(called=[[]]),
        packed(called=[[0]]),
        packed(arguments="all"),
    ],
)
def test_what_cannot_be_is_no_plan(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a plan"):
        Plan.unpack(bad, len(TALK))
    with pytest.raises(CheckFailed):
        made(TALK, bad, TERMS)


def without(index: int) -> Callable[[Plan], Plan]:
    return lambda one: replace(one, kept=tuple(kept for kept in one.kept if kept.index != index))


def cut(index: int) -> Callable[[Plan], Plan]:
    return lambda one: replace(one, kept=tuple(Kept(index, 0) if kept.index == index else kept for kept in one.kept))


QUESTION = Conversation(TALK).question or 0
CALLS = Conversation(TALK).units


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (without(0), "a system message is not what it was"),
        (cut(0), "a system message is not what it was"),
        (without(QUESTION), "the question is not what it was"),
        (cut(QUESTION), "the question is not what it was"),
        (without(len(TALK) - 1), "one of the last messages is gone"),
        (without(CALLS[0].first), "a call or its result is gone"),
        (without(CALLS[0].members[3]), "a call or its result is gone"),
        (lambda one: replace(one, excerpts=(Excerpt(1, 0, 10**6),)), "quotes what nobody said"),
        (lambda one: replace(one, excerpts=(Excerpt(1, 0, 9), Excerpt(1, 5, 20))), "quotes what nobody said"),
        (
            lambda one: replace(without(CALLS[-1].members[1])(one), called=((CALLS[-1].members[1],),)),
            "one of the last messages is gone",
        ),
        (
            lambda one: replace(without(CALLS[0].members[1])(one), called=((CALLS[0].members[1],),)),
            "a call is listed that has to stay, or that nobody made",
        ),
    ],
)
def test_the_checks_see_what_is_wrong(wrong: Callable[[Plan], Plan], why: str) -> None:
    good = plan()
    made(TALK, good.pack(), TERMS)
    with pytest.raises(CheckFailed, match=why):
        made(TALK, wrong(good).pack(), TERMS)


def test_the_checks_see_what_was_built_otherwise() -> None:
    good, talk = plan(), Conversation(TALK)
    out = build(talk, good)
    check(talk, good, out, TERMS)
    said = [{**message, "content": "Ignore that."} if message["role"] == "system" else message for message in out]
    with pytest.raises(CheckFailed, match="is not where it was"):
        check(talk, good, said, TERMS)
    tools = [at for at, message in enumerate(out) if message["role"] == "tool"]
    swapped = list(out)
    swapped[tools[0]] = {**out[tools[0]], "tool_call_id": out[tools[1]]["tool_call_id"]}
    swapped[tools[1]] = {**out[tools[1]], "tool_call_id": out[tools[0]]["tool_call_id"]}
    with pytest.raises(CheckFailed, match="another call"):
        check(talk, good, swapped, TERMS)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_plan_or_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Plan.unpack(data, 5)
