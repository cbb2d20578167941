"""What is made of conversations: never invalid, never over, and nothing said that nobody said."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.compaction.building import DIGEST, NOTED, build
from ollama_gate.compaction.checks import check
from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.filling import Filled, Filler
from ollama_gate.compaction.originals import message_hash
from ollama_gate.compaction.pairing import units
from ollama_gate.compaction.plan import Plan
from ollama_gate.compaction.reuse import made, resumed
from ollama_gate.compaction.terms import DoesNotFit, Terms
from ollama_gate.compaction.weighing import Scales
from support import long_talks
from support.random_talks import Message, conversations, count
from support.unhurried import unhurried

TERMS = Terms(target=400, most=700, keep_last=3)


def filled(talk: Sequence[Message], terms: Terms) -> tuple[Filled, list[Message]]:
    found = Filler(Conversation(talk), terms, count).fill()
    return found, build(Conversation(talk), found.plan)


def tokens(messages: Sequence[Message], terms: Terms) -> float:
    whole = replace(terms, target=1e9, most=1e9)
    return Filler(Conversation(messages), whole, count).fill().tokens


@pytest.mark.slow
@unhurried
@given(conversations(), st.integers(40, 1500), st.integers(1, 9))
def test_a_valid_conversation_stays_valid_or_does_not_fit(talk: list[Message], target: int, keep_last: int) -> None:
    terms = Terms(target=target, most=target * 1.6, keep_last=keep_last)
    try:
        found, out = filled(talk, terms)
    except DoesNotFit:
        return
    assert Plan.unpack(found.plan.pack(), len(talk)) == found.plan
    check(Conversation(talk), found.plan, out, terms)
    assert tokens(out, terms) == found.tokens <= terms.most
    for message in talk:
        if str(message["role"]).lower() == "system":
            assert message in out
    question = next(message for message in reversed(talk) if str(message["role"]).lower() == "user")
    assert question in out
    again = Filler(Conversation(out), replace(terms, target=max(found.tokens, target)), count).fill()
    assert build(Conversation(out), again.plan) == out, "compacted once more nothing changes"


@pytest.mark.slow
@unhurried
@given(conversations(), conversations(), st.integers(100, 900))
def test_a_checkpoint_gives_the_same_beginning_or_nothing(
    talk: list[Message], more: list[Message], target: int
) -> None:
    terms = Terms(target=target, most=target * 1.6, keep_last=3)
    try:
        found, out = filled(talk, terms)
    except DoesNotFit:
        return
    done = made(talk, found.plan.pack(), terms)
    assert done.messages == out
    grown = [*talk, *more]
    again = resumed(grown, done.checkpoint, terms)
    if again is not None:
        assert again.messages == [*out, *more]
    edited = [{**talk[0], "content": "another beginning"}, *grown[1:]]
    assert resumed(edited, done.checkpoint, terms) is None or not done.checkpoint.settled


@pytest.mark.slow
@unhurried
@given(st.integers(4, 30), st.integers(20, 300), st.integers(1200, 5000))
def test_the_target_is_filled_where_there_is_enough(messages: int, words: int, target: int) -> None:
    talk = long_talks.long_talk(2 * messages, words)
    terms = Terms(target=target, most=2 * target)
    try:
        found, out = filled(talk, terms)
    except DoesNotFit:
        return
    if tokens(talk, terms) > 1.5 * target and found.tokens < target:
        assert found.tokens >= 0.8 * target, (found.tokens, len(out))


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_short_results_stay_where_the_budget_holds_them_though_the_target_does_not(share: float) -> None:
    talk = long_talks.indicators(40, 0)
    most = tokens(talk, TERMS) / share
    terms = Terms(target=0.3 * most, most=most)
    found, out = filled(talk, terms)
    assert not found.plan.called
    results = [message for message in talk if message["role"] == "tool"]
    assert [message for message in out if message["role"] == "tool"] == results
    assert found.tokens <= 0.9 * most


def test_only_so_many_results_go_as_the_budget_cannot_hold_and_the_oldest_first() -> None:
    talk = long_talks.indicators(40, 1)
    most = tokens(talk, TERMS) / 1.1
    found, _ = filled(talk, Terms(target=0.3 * most, most=most))
    listed = [at for members in found.plan.called for at in members]
    assert listed == list(range(2, 2 + len(listed)))
    assert 0 < len(listed) < 65
    assert 0.6 * most < found.tokens <= 0.9 * most


def test_a_checkpoint_holds_where_a_client_renews_its_ids_and_names_what_the_archive_has() -> None:
    talk, terms = long_talks.indicators(30, 40), Terms(4000, 7000)
    found, out = filled(talk, terms)
    done = made(talk, found.plan.pack(), terms)
    grown = [*talk, {"role": "assistant", "content": "Hm."}, {"role": "user", "content": "And?"}]
    renewed: list[Message] = orjson.loads(orjson.dumps(grown).replace(b'"call_', b'"other_'))
    again = resumed(renewed, done.checkpoint, terms)
    assert again is not None
    assert orjson.loads(orjson.dumps(again.messages).replace(b'"other_', b'"call_')) == [*out, *grown[-2:]]
    kept = {one.hash[:12] for one in (*done.originals, *again.originals)}
    named = set(re.findall(r"archived as ([0-9a-f]{12})", orjson.dumps(again.messages).decode()))
    assert named
    assert named <= kept
    assert set(again.replaced) <= kept


def test_a_conversation_that_fits_is_left_alone() -> None:
    talk = long_talks.long_talk(10, 20)
    assert filled(talk, Terms(5000, 6000))[1] == talk


def test_the_work_grows_with_the_messages_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []
    content = Scales.content

    def noted(scales: Scales, index: int, characters: int | None = None) -> float:
        weighed.append(index)
        return content(scales, index, characters)

    monkeypatch.setattr(Scales, "content", noted)
    talk = long_talks.long_talk(1000, 1)
    filled(talk, TERMS)
    assert len(weighed) < 50 * len(talk)


@pytest.mark.parametrize("named", [{"tool_name": "get_b"}, {}])
def test_a_result_that_a_user_parts_from_calls_stays_parted(named: dict[str, str]) -> None:
    asked: list[Any] = [{"function": {"name": name, "arguments": {}}} for name in ("get_a", "get_b")]
    talk: list[Message] = [
        *long_talks.long_talk(4, 100),
        {"role": "assistant", "content": "", "tool_calls": asked},
        {"role": "tool", "content": "a", "tool_name": "get_a"},
        {"role": "user", "content": long_talks.prose("u", 100)},
        {"role": "tool", "content": "b", **named},
        *long_talks.long_talk(8, 60)[1:],
    ]
    found, out = filled(talk, TERMS)
    check(Conversation(talk), found.plan, out, TERMS)
    assert [unit.orphan for unit in units(out)] == [unit.orphan for unit in units(talk)] == [False, True]


def test_nothing_is_said_that_nobody_said() -> None:
    talk = long_talks.indicators(12, 30)
    _, out = filled(talk, Terms(900, 1500))
    said = "\n".join(str(message["content"]) for message in talk)
    for message in out:
        for line in str(message["content"]).splitlines():
            ours = (
                not line or line in (NOTED, DIGEST, "[...]") or re.match(r"\[|Already called|- get_indicators\(", line)
            )
            assert ours or line in said


@pytest.mark.parametrize(
    "task", ["Fix it", "Fix the login in auth.py. Never touch the database.", long_talks.prose("task", 80)]
)
def test_the_task_is_quoted_where_little_else_is_to_be_quoted(task: str) -> None:
    talk = [long_talks.system(), {"role": "user", "content": task}, *long_talks.indicators(30, 40)[2:]]
    talk += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks. Now write tests for it."}]
    _, out = filled(talk, Terms(4000, 7000))
    digest = next(str(message["content"]) for message in out if str(message["content"]).startswith(DIGEST))
    assert f"[user, archived as {message_hash(talk[1])[:12]}]\n{task}" in digest


def test_quotations_that_follow_on_each_other_are_one() -> None:
    line = "".join(f"{number:06x}" for number in range(5000))
    talk: list[Message] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": line},
        *({"role": role, "content": "so"} for role in ("user", "assistant") * 4),
        {"role": "user", "content": "where?"},
    ]
    found, out = filled(talk, Terms(6000, 9000))
    assert len([one for one in found.plan.excerpts if one.index == 1]) > 1
    digest = next(str(message["content"]) for message in out if str(message["content"]).startswith(DIGEST))
    quoted = [piece for piece in digest.splitlines() if len(piece) > 200 and " " not in piece]
    assert all(piece in line for piece in quoted)
    edges = {(one.start, one.end) for one in found.plan.excerpts if one.index == 1}
    joints = {end for _, end in edges} & {start for start, _ in edges}
    assert joints
    assert len(quoted) == len(edges) - len(joints)


def test_what_has_to_stay_is_told_where_it_does_not_fit() -> None:
    talk: list[Message] = [{"role": "system", "content": "x " * 3000}, {"role": "user", "content": "hi"}]
    with pytest.raises(DoesNotFit, match="what has to stay"):
        filled(talk, TERMS)


def test_exempt_tools_and_roles_stay_whole() -> None:
    talk: list[Message] = [
        long_talks.system(10),
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [long_talks.call(1, "skill"), long_talks.call(2, "read")]},
        long_talks.result(1, "skill", "s " * 300),
        long_talks.result(2, "read", "r " * 900),
        {"role": "developer", "content": "d " * 200},
        *long_talks.long_talk(8, 40)[1:],
    ]
    _, out = filled(talk, Terms(1000, 1600, keep_last=3, exempt_roles=("developer",), exempt_tools=("skill",)))
    assert talk[3] in out
    assert talk[5] in out
    assert talk[4] not in out
    assert len(units(out)) == 1


def test_a_developer_stays_as_the_system_does() -> None:
    rules: Message = {"role": "developer", "content": "d " * 200}
    _, out = filled([long_talks.system(10), rules, *long_talks.long_talk(20, 60)[1:]], Terms(1000, 1600, keep_last=3))
    assert rules in out
    assert out.index(rules) == 1


def test_a_reminder_among_the_results_is_not_the_question() -> None:
    reminder: Message = {"role": "user", "content": "<system-reminder>The list of tasks is empty.</system-reminder>\n"}
    talk: list[Message] = [
        *long_talks.long_talk(20, 60),
        *long_talks.indicators(8, 20)[2:],
        reminder,
        *long_talks.indicators(2, 20)[2:],
    ]
    assert Conversation(talk).question == 19
    _, out = filled(talk, Terms(1500, 2500, keep_last=3))
    assert talk[19] in out
    assert reminder in out
    assert all(fact in str(out[1]["content"]) for fact in long_talks.FACTS), "found by the question's words"
    assert Conversation([reminder]).question == 0


def test_pictures_stay_in_the_question_only_where_there_is_no_room() -> None:
    asked = {"role": "user", "content": "And this one?", "images": ["d29ybGQ="]}
    shown = {"role": "user", "content": "What is this?", "images": ["aGVsbG8=", "aGVsbG8="]}
    talk: list[Message] = [shown, {"role": "assistant", "content": "A boat."}, asked]
    _, out = filled(talk, Terms(300, 400, image=120))
    assert out[-1] == asked
    assert "images" not in out[0]
    assert re.fullmatch(
        r"What is this\?\n\[2 images dropped to fit the context budget — original archived as [0-9a-f]{12}\]",
        str(out[0]["content"]),
    )
    assert filled(talk, Terms(900, 900, image=120))[1] == talk


def test_long_texts_in_arguments_are_cut_and_stay_what_they_were() -> None:
    call = long_talks.call(1, "write", path="a.py", text="line\n" * 2000, mode=[1, "w"])
    talk: list[Message] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        long_talks.result(1, "write", "done"),
    ]
    _, out = filled(talk, Terms(400, 700))
    arguments = out[1]["tool_calls"][0]["function"]["arguments"]
    assert (arguments["path"], arguments["mode"]) == ("a.py", [1, "w"])
    assert arguments["text"].startswith("line\nline")
    assert "characters dropped" in arguments["text"]
    assert out[1]["tool_calls"][0]["id"] == call["id"]


def test_the_beginning_of_an_answer_is_not_cut() -> None:
    talk = [*long_talks.long_talk(12, 60), {"role": "assistant", "content": "The code " * 40}]
    assert filled(talk, Terms(900, 1500))[1][-1] == talk[-1]


@pytest.mark.parametrize("scale", [1.0, 1.25, 2.0])
def test_a_count_that_is_not_exact_fills_less(scale: float) -> None:
    talk = long_talks.long_talk(40, 100)
    found, out = filled(talk, Terms(2000, 3000, scale=scale))
    assert 0.85 * 2000 <= found.tokens <= 2000
    assert sum(count([str(message["content"]) for message in out])) * scale <= 2000
