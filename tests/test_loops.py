"""Who goes round is told so in words that start nothing; who makes progress is not."""

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.errors import Refusal
from ollama_gate.loops import CODE, ROUNDS, SECONDS, LoopBook, hopeless

MARKERS = (
    "context", "too long", "too many tokens", "maximum", "reduce the length", "exceeds", "limit", "rate", "timeout",
    "timed out", "overloaded", "per minute",
)  # fmt: skip


def test_the_sixth_refusal_in_a_row_is_told_otherwise() -> None:
    book = LoopBook()
    assert [book.refused(b"one", 9_000, now) for now in range(ROUNDS + 2)] == [False] * ROUNDS + [True, True]
    assert not book.refused(b"another", 9_000, 3.0)


def test_a_conversation_that_shrinks_is_not_going_round() -> None:
    book = LoopBook()
    assert not any(book.refused(b"codex", 50_000 - 1_000 * step, step) for step in range(40))


def test_a_conversation_that_was_quiet_begins_anew() -> None:
    book = LoopBook()
    for now in range(ROUNDS):
        book.refused(b"one", 9_000, now)
    assert not book.refused(b"one", 9_000, ROUNDS + SECONDS)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.integers(1, 10**6)), max_size=200))
def test_it_never_holds_more_than_it_may(refusals: list[tuple[bytes, int]]) -> None:
    book = LoopBook(capacity=10)
    for now, (conversation, tokens) in enumerate(refusals):
        book.refused(conversation, tokens, float(now))
    assert len(book) <= 10


def test_the_words_start_no_compaction() -> None:
    refusal = Refusal(400, "context_length_exceeded", "prompt is too long", details={"prompt_tokens": 9, "budget": 5})
    told = hopeless(refusal)
    assert (told.status, told.code) == (400, CODE)
    assert "9 of 5" in told.message
    said = f"{told.message} {told.reason} {told.code}".lower()
    assert [marker for marker in MARKERS if re.search(rf"\b{marker}\b", said)] == []


def test_case_35s_patterns_do_not_match_it() -> None:
    case = json.loads((Path(__file__).parent / "data" / "cases" / "35-refusal-wording.json").read_text("utf-8"))
    told = hopeless(Refusal(400, "x", "y", details={"prompt_tokens": 9, "budget": 5})).message
    for pattern in case["client_patterns_that_should_match_the_message"]:
        assert not re.search(pattern, told)
