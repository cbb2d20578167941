"""Conversations found again, and what their turns show."""

import json
from typing import Any

import pytest

from ollama_gate.config.signals import SignalKind, Signals
from ollama_gate.observe.signals import QUIET, Look, SignalBook
from ollama_gate.requests import InferenceRequest, Kind
from support.cases import case

Json = dict[str, Any]
SYSTEM = {"role": "system", "content": "You fix builds. " * 400}
PARSED = {**case("32-repeated-tool-call")}


def chat(*messages: Json, session: str | None = None, model: str = "m", tools: Any = None) -> InferenceRequest:
    body = json.loads(json.dumps({"messages": messages, "tools": tools}))
    return InferenceRequest(Kind.CHAT, "/api/chat", model, body, True, session=session)


def exchange(number: int, words: int = 40) -> list[Json]:
    return [
        {"role": "user", "content": f"question {number} " + "q " * words},
        {"role": "assistant", "content": f"answer {number} " + "a " * words},
    ]


def talk(turns: int, words: int = 40) -> list[Json]:
    return [SYSTEM, *(message for number in range(turns) for message in exchange(number, words))]


def told(look: Look | None) -> dict[str, int]:
    return {} if look is None else {signal.kind.value: signal.amount for signal in look.signals}


def test_a_request_without_a_past_is_not_looked_at() -> None:
    book = SignalBook(Signals())
    assert book.look(chat(SYSTEM, {"role": "user", "content": "hi"}), 0.0) is None
    assert book.look(InferenceRequest(Kind.GENERATE, "/api/generate", "m", {"prompt": "x"}, True), 0.0) is None
    assert len(book) == 0


def test_what_is_no_conversation_is_not_looked_at() -> None:
    assert SignalBook(Signals()).look(chat(*[{"role": "user", "content": "x"}] * 5000), 0.0) is None


def test_the_public_case_is_seen_at_the_sixth_call() -> None:
    look = SignalBook(Signals()).look(chat(*PARSED["messages"]), 0.0)
    assert look is not None
    assert [str(signal) for signal in look.signals] == ["repeated-call=6 (shell)"]


def test_the_public_case_can_be_exempt() -> None:
    assert told(SignalBook(Signals(exempt_tools=("sh*",))).look(chat(*PARSED["messages"]), 0.0)) == {}


@pytest.mark.parametrize(("limit", "seen"), [(0, {}), (6, {"repeated-call": 6}), (7, {})])
def test_a_threshold_is_a_threshold(limit: int, seen: dict[str, int]) -> None:
    look = SignalBook(Signals(repeated_calls=limit)).look(chat(*PARSED["messages"]), 0.0)
    assert told(look) == seen


def test_a_conversation_that_grows_is_read_from_where_it_stopped() -> None:
    book, messages = SignalBook(Signals()), PARSED["messages"]
    runs = [told(book.look(chat(*messages[:end]), 0.0)) for end in range(4, len(messages) + 1, 2)]
    assert runs == [{}, {}, *({"repeated-call": number} for number in (3, 4, 5, 6))]
    assert len(book) == 1


def test_a_change_before_what_was_evaluated_is_a_prefix_break_with_its_tokens() -> None:
    book, messages = SignalBook(Signals()), talk(40)
    first = book.look(chat(*messages), 0.0)
    assert first is not None
    first.answered(12_000)
    clock = {"role": "system", "content": "It is noon. " + SYSTEM["content"]}
    look = book.look(chat(clock, *messages[1:], *exchange(99)), 1.0)
    assert look is not None
    [broken] = look.signals
    assert (broken.kind, broken.where) == (SignalKind.PREFIX_BREAK, "messages[0]")
    behind = sum(len(message["content"]) for message in messages[1:])
    lost = behind + 255 * len("You fix builds.")  # sentences that are told apart; the rest of them is one text
    assert broken.amount == 12_000 * lost // (behind + len(SYSTEM["content"]))


@pytest.mark.parametrize("end", ["\n", ". ", ".\n\n"])
def test_a_clock_at_the_head_of_a_system_prompt_breaks_the_prefix_however_that_is_written(end: str) -> None:
    book, rules = SignalBook(Signals()), f"Do not break what works{end}" * 300
    at_ten, later = ({"role": "system", "content": f"It is {time}{end}{rules}"} for time in ("10:00", "10:01"))
    book.look(chat(at_ten, *exchange(0), *exchange(1)[:1]), 0.0)
    look = book.look(chat(later, *exchange(0), *exchange(1), *exchange(2)[:1]), 60.0)
    assert look is not None
    assert [(signal.kind, signal.where) for signal in look.signals] == [(SignalKind.PREFIX_BREAK, "messages[0]")]


LONG = "".join(f"Rule {number}: do not break what works, and say what you have done.\n" for number in range(250))


@pytest.mark.parametrize(
    ("first", "then", "share"),
    [
        pytest.param("It is 10:00.\n" + LONG, "It is 10:01, and late.\n" + LONG, 1.0, id="at its beginning"),
        pytest.param("10:00\n" + LONG + "clean\n", "10:01\n" + LONG + "dirty\n", 1.0, id="at both ends"),
        pytest.param(LONG[:3500] + "\n1\n" + LONG[3500:], LONG[:3500] + "\n2\n" + LONG[3500:], 0.77, id="within"),
        pytest.param(LONG + "It is 10:00.", LONG + "It is 10:01.", 0.0, id="at its end"),
        pytest.param(LONG, "You give titles.\n", 0.0, id="another prompt"),
    ],
)
def test_what_changes_in_a_long_system_prompt_loses_the_lines_behind_it(first: str, then: str, share: float) -> None:
    book = SignalBook(Signals())
    look = book.look(chat({"role": "system", "content": first}, *exchange(0), *exchange(1)[:1]), 0.0)
    assert look is not None
    look.answered(9000)
    look = book.look(chat({"role": "system", "content": then}, *exchange(0), *exchange(1), *exchange(2)[:1]), 1.0)
    assert look is not None
    assert [signal.where for signal in look.signals] == ["messages[0]"] * bool(share)
    if share:
        assert sum(signal.amount for signal in look.signals) == pytest.approx(9000 * share, rel=0.03)


def test_a_turn_after_the_break_is_sound_again() -> None:
    book, messages = SignalBook(Signals()), talk(40)
    book.look(chat(*messages), 0.0)
    changed = [{"role": "system", "content": "other"}, *messages[1:]]
    assert told(book.look(chat(*changed, *exchange(50)), 1.0)).keys() == {"prefix-break"}
    assert told(book.look(chat(*changed, *exchange(50), *exchange(51)), 2.0)) == {}


def test_tools_in_another_order_break_the_prefix_and_other_tools_are_another_conversation() -> None:
    def tool(name: str) -> Json:
        return {"type": "function", "function": {"name": name}}

    one, two, messages = tool("a"), tool("b"), talk(60)
    book = SignalBook(Signals())
    book.look(chat(*messages, tools=[one, two]), 0.0)
    look = book.look(chat(*messages, *exchange(70), tools=[two, one]), 1.0)
    assert look is not None
    assert [signal.where for signal in look.signals] == ["tools"]
    assert told(book.look(chat(*messages, *exchange(70), tools=[one]), 2.0)) == {}


def test_tools_that_are_sent_again_behind_the_first_that_differs_are_lost_with_the_messages() -> None:
    def tool(name: str) -> Json:
        return {"type": "function", "function": {"name": name, "description": f"what {name} does " * 500}}

    def lost(before: list[Json], after: list[Json]) -> int:
        book, messages = SignalBook(Signals()), talk(1)
        book.look(chat(*messages, tools=before), 0.0)
        return told(book.look(chat(*messages, *exchange(70), tools=after), 1.0)).get("prefix-break", 0)

    one, two, three = tool("a"), tool("b"), tool("c")
    messages_only = sum(len(message["content"]) for message in talk(1)) // 4
    size = len(json.dumps(two)) // 4
    assert messages_only + 1.9 * size < lost([one, two, three], [one, three, two]) < messages_only + 2.1 * size
    assert messages_only + 2.9 * size < lost([one, two, three], [three, one, two]) < messages_only + 3.1 * size


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([SYSTEM, {"role": "user", "content": "Summary"}, *talk(20)[-4:]], id="summary"),
        pytest.param([*talk(20)[:-2], *exchange(99)], id="edited question"),
        pytest.param(talk(20)[:-2], id="regenerated"),
        pytest.param([SYSTEM, *exchange(77), *exchange(78)], id="another conversation"),
    ],
)
def test_what_is_not_sent_again_is_no_break(after: list[Json]) -> None:
    book = SignalBook(Signals(prefix_break=1))
    book.look(chat(*talk(20), session="s"), 0.0)
    assert told(book.look(chat(*after, session="s"), 1.0)) == {}


def test_conversations_are_told_apart_by_session_model_and_first_question() -> None:
    book, changed = SignalBook(Signals(prefix_break=1)), [{"role": "system", "content": "x"}, *talk(60)[1:]]
    book.look(chat(*talk(60), session="a"), 0.0)
    for other in (chat(*changed, session="b"), chat(*changed), chat(*changed, session="a", model="n")):
        assert told(book.look(other, 1.0)) == {}
    assert told(book.look(chat(*changed, session="a"), 1.0)).keys() == {"prefix-break"}


@pytest.mark.parametrize("dropped", [1, 2, 3, 6])
def test_a_window_that_slides_over_the_first_question_breaks_the_prefix_each_time(dropped: int) -> None:
    book, messages = SignalBook(Signals()), talk(40, words=400)
    assert told(book.look(chat(*messages[:30]), 0.0)) == {}
    for turn in range(1, 4):
        after = [SYSTEM, *messages[1 + turn * dropped : 30 + 2 * turn]]
        look = book.look(chat(*after), float(turn))
        assert look is not None
        assert [(signal.kind, signal.where) for signal in look.signals] == [(SignalKind.PREFIX_BREAK, "messages[1]")]
    assert told(book.look(chat(SYSTEM, *messages[5:], session="another"), 9.0)) == {}


def test_a_conversation_that_begins_with_the_second_question_of_another_is_another() -> None:
    book, messages = SignalBook(Signals(prefix_break=1)), talk(30)
    book.look(chat(*messages), 0.0)
    beside = [SYSTEM, messages[3], {"role": "assistant", "content": "b " * 900}, {"role": "user", "content": "Why?"}]
    assert told(book.look(chat(*beside), 1.0)) == {}
    assert told(book.look(chat(*messages, *exchange(99)), 2.0)) == {}


def grown(book: SignalBook, counts: list[int], words: int = 300) -> list[dict[str, int]]:
    out = []
    for number, count in enumerate(counts, 1):
        look = book.look(chat(*talk(10 + number, words)), float(number))
        assert look is not None
        look.answered(count)
        out.append(told(look))
    return out


def test_a_prompt_count_that_stands_still_while_the_conversation_grows() -> None:
    seen = grown(SignalBook(Signals()), [3000, 3100, 3100, 3090, 3101, 3100])
    assert seen == [{}, {}, {}, {}, {"prompt-standstill": 3}, {"prompt-standstill": 3}]


def test_a_count_that_grows_with_the_conversation_shows_nothing() -> None:
    assert grown(SignalBook(Signals()), [3000, 3200, 3400, 3600, 3800, 4000]) == [{}] * 6


def test_a_conversation_that_hardly_grows_shows_nothing() -> None:
    assert grown(SignalBook(Signals()), [3000] * 6, words=0) == [{}] * 6


def test_quiet_conversations_are_forgotten() -> None:
    book = SignalBook(Signals(prefix_break=1))
    book.look(chat(*talk(60)), 0.0)
    changed = [{"role": "system", "content": "x"}, *talk(60)[1:]]
    assert told(book.look(chat(*changed), QUIET + 1)) == {}
    assert told(book.look(chat(*talk(60)), QUIET + 2)).keys() == {"prefix-break"}


def test_the_book_keeps_its_bounds() -> None:
    book = SignalBook(Signals(conversations=5))
    for number in range(20):
        book.look(chat(*talk(3), session=str(number)), 0.0)
    assert len(book) == 5
    assert len(book._later) == sum(len(held.later) for held in book._held.values()) == 10
    small = SignalBook(Signals(), most_bytes=20_000)
    for number in range(20):
        small.look(chat(*talk(30), session=str(number)), 0.0)
        assert small.size <= 20_000
    assert small.size == sum(held.size for held in small._held.values())


def test_a_huge_conversation_is_hashed_by_samples_and_still_found_again() -> None:
    book = SignalBook(Signals(prefix_break=1))
    roles = enumerate(("user", "tool") * 3)
    huge = [SYSTEM, *({"role": role, "content": f"{at}" + "x" * 600_000} for at, role in roles)]
    book.look(chat(*huge), 0.0)
    assert told(book.look(chat(*huge, *exchange(1)), 1.0)) == {}
    huge[0] = {"role": "system", "content": "other"}
    assert told(book.look(chat(*huge, *exchange(1)), 2.0)).keys() == {"prefix-break"}
