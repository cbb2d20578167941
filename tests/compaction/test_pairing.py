"""Which result belongs to which call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.compaction.pairing import Unit, units
from support.random_talks import batches, conversations
from support.unhurried import unhurried

Message = dict[str, Any]


def asks(*names: str, ids: bool = True) -> Message:
    calls = [{**({"id": name} if ids else {}), "function": {"name": name.rstrip("0123456789")}} for name in names]
    return {"role": "assistant", "tool_calls": calls}


def tells(call: str = "", name: str = "") -> Message:
    return {"role": "tool", "content": "x", "tool_call_id": call, "tool_name": name}


USER: Message = {"role": "user", "content": "go"}


@pytest.mark.parametrize(
    ("talk", "answers"),
    [
        ([asks("a", "b"), tells("b"), tells("a")], [((2,), (1,))]),
        ([asks("a", "b", ids=False), tells(name="b"), tells(name="a")], [((2,), (1,))]),
        ([asks("a", "b", ids=False), tells(), tells()], [((1,), (2,))]),
        ([asks("a", "a", ids=False), tells(name="a"), tells(name="a")], [((1,), (2,))]),
        ([asks("a1", "a2"), tells("a2"), USER, tells("a1")], [((3,), (1,))]),
        ([asks("a"), tells("a"), tells("a")], [((1, 2),)]),
        ([asks("a"), asks("b"), tells("b"), tells("a")], [((3,),), ((2,),)]),
        ([asks("a", "b"), tells("a")], [((1,), ())]),
        ([asks("a", ids=False), tells("7", "a")], [((1,),)]),
        ([asks("a"), tells("other")], [((),), ()]),
        ([asks("a", ids=False), USER, tells()], [((),), ()]),
        ([tells("gone"), asks("a"), tells("a")], [(), ((2,),)]),
        ([{"role": "assistant", "tool_calls": [None, {}]}, tells(), tells()], [((1,), (2,))]),
        ([{"role": "Tool", "content": None}], [()]),
    ],
)
def test_results_find_their_calls(talk: list[Message], answers: list[tuple[tuple[int, ...], ...]]) -> None:
    assert [unit.answers for unit in units(talk)] == answers


def test_an_orphan_is_a_unit_of_its_own() -> None:
    assert units([USER, tells("x")]) == [Unit(1, (1,))]
    assert units([USER, tells("x")])[0].orphan


@given(batches(1), st.integers(0, 4))
def test_every_result_of_a_batch_answers_one_of_its_calls(talk: list[Message], shift: int) -> None:
    (unit,) = units([USER] * shift + talk)
    assert unit.members == tuple(range(shift, shift + len(talk)))
    assert sorted(at for each in unit.answers for at in each) == list(unit.members[1:])


@pytest.mark.slow
@unhurried
@given(conversations())
def test_each_message_of_a_tool_is_in_one_unit(talk: list[Message]) -> None:
    members = [at for unit in units(talk) for at in unit.members]
    expected = [at for at, message in enumerate(talk) if message["role"] == "tool" or message.get("tool_calls")]
    assert sorted(members) == expected
