"""What is remembered of refusals: bodies, passes, and who goes round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ollama_gate.errors import Refusal
from ollama_gate.refusals import ROUNDS
from ollama_gate.refused_before import SECONDS, GraceBook, LoopBook, RefusalMemory, Repeated

NO = Refusal(400, "context_length_exceeded", "too long", headers={"x-should-retry": "false"})


class TestMemory:
    def test_a_body_is_refused_again_until_its_time_is_over(self) -> None:
        memory = RefusalMemory(10.0)
        memory.keep("/api/chat", b"x", Repeated(NO, "library/m", ("a note",)), 100.0)
        again = memory.recall("/api/chat", b"x", 109.9)
        assert again is not None
        assert again.refusal.headers == {"x-should-retry": "false", "x-ollama-gate-repeated": "true"}
        assert (again.refusal.message, again.refusal.code) == (NO.message, NO.code)
        assert (again.model, again.notes) == ("library/m", ("a note",))
        assert memory.recall("/api/chat", b"x", 110.0) is None
        assert len(memory) == 0

    @pytest.mark.parametrize(("route", "body"), [("/api/generate", b"x"), ("/api/chat", b"y"), ("/api/chat", b"")])
    def test_another_body_or_route_is_not_known(self, route: str, body: bytes) -> None:
        memory = RefusalMemory(10.0)
        memory.keep("/api/chat", b"x", Repeated(NO), 0.0)
        assert memory.recall(route, body, 1.0) is None

    def test_zero_seconds_switch_it_off(self) -> None:
        memory = RefusalMemory(0.0)
        memory.keep("/api/chat", b"x", Repeated(NO), 0.0)
        assert len(memory) == 0

    def test_a_changed_model_clears_it(self) -> None:
        memory = RefusalMemory(10.0)
        memory.keep("/api/chat", b"x", Repeated(NO), 0.0)
        memory.forget()
        assert memory.recall("/api/chat", b"x", 0.1) is None

    def test_the_oldest_goes_when_there_is_no_room(self) -> None:
        memory = RefusalMemory(10.0, capacity=2)
        for body in (b"a", b"b", b"a", b"c"):
            memory.keep("/api/chat", body, Repeated(NO), 0.0)
        known = [memory.recall("/api/chat", body, 1.0) is not None for body in (b"a", b"b", b"c")]
        assert known == [True, False, True]


class Grace(RuleBasedStateMachine):
    """A pass is granted by a refusal, good for one other prompt, and gone with time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = GraceBook(seconds=100.0, capacity=4)
        self.model: dict[bytes, tuple[float, bytes]] = {}

    @rule(conversation=st.sampled_from([b"a", b"b", b"c"]), prompt=st.sampled_from([b"1", b"2"]))
    def refuse(self, conversation: bytes, prompt: bytes) -> None:
        self.book.grant(conversation, prompt, self.now)
        self.model[conversation] = (self.now + 100.0, prompt)

    @rule(conversation=st.sampled_from([b"a", b"b", b"c"]), prompt=st.sampled_from([b"1", b"2"]))
    def ask(self, conversation: bytes, prompt: bytes) -> None:
        until, refused = self.model.get(conversation, (0.0, b""))
        passes = self.book.take(conversation, prompt, self.now)
        assert passes == (conversation in self.model and prompt != refused and self.now < until)
        if prompt != refused:
            self.model.pop(conversation, None)

    @rule(seconds=st.sampled_from([1.0, 99.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.model)
    @invariant()
    def bounded(self) -> None:
        assert len(self.book) <= 4


TestGrace = Grace.TestCase


def test_the_oldest_pass_goes_when_there_is_no_room() -> None:
    book = GraceBook(capacity=2)
    for conversation in (b"a", b"b", b"c"):
        book.grant(conversation, b"1", 0.0)
    assert [book.take(conversation, b"2", 1.0) for conversation in (b"a", b"b", b"c")] == [False, True, True]


def test_refusals_in_a_row_are_counted_for_each_conversation() -> None:
    book = LoopBook()
    assert [book.refused(b"one", 9_000, now) for now in range(ROUNDS + 2)] == list(range(1, ROUNDS + 3))
    assert book.refused(b"another", 9_000, 3.0) == 1


def test_a_conversation_that_shrinks_is_not_going_round() -> None:
    book = LoopBook()
    assert {book.refused(b"codex", 50_000 - 1_000 * step, step) for step in range(40)} == {1}


def test_a_conversation_that_was_quiet_begins_anew() -> None:
    book = LoopBook()
    for now in range(ROUNDS):
        book.refused(b"one", 9_000, now)
    assert book.refused(b"one", 9_000, ROUNDS + SECONDS) == 1


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.integers(1, 10**6)), max_size=200))
def test_it_never_holds_more_than_it_may(refusals: list[tuple[bytes, int]]) -> None:
    book = LoopBook(capacity=10)
    for now, (conversation, tokens) in enumerate(refusals):
        book.refused(conversation, tokens, float(now))
    assert len(book) <= 10
