"""What the gate says when a prompt does not fit, and what it remembers of it."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ollama_gate import refusals
from ollama_gate.dialects import native
from ollama_gate.errors import Refusal, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from ollama_gate.refusals import GraceBook, RefusalMemory
from ollama_gate.requests import InferenceRequest, Parts, PromptCount, Rung
from ollama_gate.window import EmbedLimit, Window
from support.cases import case

ROOM = Window(8192, 6553)
WORDING = case("35-refusal-wording")
MUST = WORDING["client_patterns_that_should_match_the_message"]
MUST_NOT = [
    *WORDING["patterns_that_must_not_match"],
    r"(?i)too many requests|per minute|timeout|timed out|overloaded|aborted|connection reset|exceeds the limit of",
]


def chat(**more: Any) -> InferenceRequest:
    return native.parse("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more})


def generate(**more: Any) -> InferenceRequest:
    return native.parse("/api/generate", {"model": "m", "prompt": "hi", **more})


def count(tokens: int, at_most: int | None = None, rung: Rung = Rung.EXACT, **parts: int) -> PromptCount:
    return PromptCount(tokens, at_most if at_most is not None else tokens, rung, Parts(**parts))


EMBED = EmbedLimit(512, "trained length")
EVERY = [
    refusals.prompt_too_long(chat(), count(9000, messages=8000, template=1000), ROOM),
    refusals.prompt_too_long(chat(), count(9000, messages=1, tools=8999), ROOM),
    refusals.prompt_too_long(chat(), count(9000, messages=4000, tools=5000), ROOM),
    refusals.prompt_too_long(generate(), count(9000, 9100, Rung.ESTIMATE), ROOM),
    refusals.prompt_too_long(chat(), count(9000, 9000, Rung.BOUND), ROOM),
    refusals.prompt_too_long(chat(), count(90_000, 10**7, Rung.BOUND), ROOM),
    refusals.reply_too_long(chat(options={"num_predict": 5000}), count(6000), ROOM),
    refusals.input_too_long(native.parse("/api/embed", {"model": "m", "input": "x"}), 0, 600, EMBED, Rung.EXACT),
    refusals.refused_upstream(chat(), 9000, 8192, ROOM),
    refusals.refused_upstream(chat(), None, None, ROOM),
]


@pytest.mark.parametrize("refusal", EVERY, ids=range(len(EVERY)))
def test_every_refusal_for_length_is_one_that_agents_understand(refusal: Refusal) -> None:
    assert (refusal.status, refusal.code, refusal.reason) == (
        400,
        "context_length_exceeded",
        "Context Length Exceeded",
    )
    assert refusal.headers == {"x-should-retry": "false"}
    found = re.match(r"prompt is too long: (\d+) tokens > (\d+) maximum\. ", refusal.message)
    assert found is not None
    assert int(found[1]) > int(found[2])
    for pattern in MUST:
        assert re.search(pattern, refusal.message), pattern
    for pattern in MUST_NOT:
        assert not re.search(pattern, refusal.message), pattern


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_the_sentence_has_plain_digits(tokens: int, limit: int) -> None:
    text = refusals.sentence(tokens, limit)
    assert [int(number) for number in re.findall(r"\d+", text)] == [tokens, limit, limit, tokens]
    assert not re.search(r"\d[,._ ]\d", text)


@pytest.mark.parametrize(
    ("parts", "request_", "param"),
    [
        (Parts(messages=9000), chat(), "messages"),
        (Parts(messages=9000), generate(), "prompt"),
        (Parts(tools=6554, messages=1), chat(), "tools"),
        (Parts(tools=6553, messages=9000), chat(), "messages"),
    ],
    ids=["messages", "prompt", "tools", "both"],
)
def test_what_is_to_blame_is_named(parts: Parts, request_: InferenceRequest, param: str) -> None:
    found = PromptCount(9001, 9001, Rung.EXACT, parts)
    assert refusals.prompt_too_long(request_, found, ROOM).param == param


def test_a_bound_says_which_side_it_is_on() -> None:
    upper = refusals.prompt_too_long(chat(), count(9000, 9000, Rung.BOUND), ROOM).message
    lower = refusals.prompt_too_long(chat(), count(9000, 20_000, Rung.BOUND), ROOM).message
    assert "upper bound" in upper
    assert "lower bound" in lower
    assert upper.startswith("prompt is too long: 9000 ")
    assert lower.startswith("prompt is too long: 9000 ")


def test_an_estimate_within_its_margin_is_told_by_what_it_may_be() -> None:
    told = refusals.prompt_too_long(chat(), count(6500, 6600, Rung.ESTIMATE), ROOM)
    assert told.message.startswith("prompt is too long: 6600 tokens > 6553 maximum. ")
    assert (told.details["prompt_tokens"], told.details["at_most"]) == (6500, 6600)


@pytest.mark.parametrize(
    ("path", "body", "index", "param"),
    [
        ("/api/embed", {"input": "x"}, 0, "input"),
        ("/api/embed", {"input": ["x", "y"]}, 1, "input[1]"),
        ("/api/embeddings", {"prompt": "x"}, 0, "prompt"),
    ],
)
def test_the_input_that_is_too_long_is_named(path: str, body: dict[str, Any], index: int, param: str) -> None:
    request = native.parse(path, {"model": "m", **body})
    refusal = refusals.input_too_long(request, index, 600, EMBED, Rung.BOUND, why="its vocabulary is not known")
    assert refusal.param == param
    assert "its trained length" in refusal.message
    assert "because its vocabulary is not known." in refusal.message
    assert refusal.details == {"prompt_tokens": 600, "limit": 512, "limit_is": "trained length", "rung": "bound"}


@pytest.mark.parametrize(
    ("failure", "status", "retry"),
    [
        (UpstreamUnreachable("refused"), 503, "5"),
        (UpstreamTimeout("silent"), 504, None),
        (UpstreamBroken("x"), 502, None),
    ],
)
def test_a_failure_of_ollamas_has_the_status_that_proxies_have_for_it(
    failure: Any, status: int, retry: str | None
) -> None:
    refusal = refusals.upstream_failed(failure, "http://x")
    assert (refusal.status, refusal.code, refusal.type) == (status, failure.code, "api_error")
    assert refusal.headers.get("Retry-After") == retry
    assert not re.search(r"(?i)too many tokens|context length|prompt is too long", refusal.message)


class TestConversations:
    @pytest.mark.parametrize(
        "other",
        [
            {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]},
            {"messages": [{"role": "user", "content": "hi"}], "tools": [{}]},
            {"model": "M"},
            {"options": {"seed": 1}},
        ],
    )
    def test_a_conversation_stays_the_same_while_it_grows(self, other: dict[str, Any]) -> None:
        assert refusals.conversation_key(chat()) == refusals.conversation_key(chat(**other))

    @pytest.mark.parametrize(
        "other",
        [
            {"messages": [{"role": "user", "content": "ho"}]},
            {"messages": [{"role": "system", "content": "hi"}]},
            {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]},
            {"model": "n"},
        ],
    )
    def test_another_beginning_is_another_conversation(self, other: dict[str, Any]) -> None:
        assert refusals.conversation_key(chat()) != refusals.conversation_key(chat(**other))

    def test_a_session_header_decides_alone(self) -> None:
        one = native.parse("/api/chat", {"model": "m", "messages": []}, session="s")
        two = native.parse("/api/generate", {"model": "n", "prompt": "x"}, session="s")
        assert refusals.conversation_key(one) == refusals.conversation_key(two)
        assert refusals.conversation_key(one) != refusals.conversation_key(
            native.parse("/api/chat", {"model": "m", "messages": []})
        )

    @given(st.text(max_size=20), st.text(st.characters(categories=["L", "Cs"]), min_size=1, max_size=5))
    def test_any_text_has_a_key(self, text: str, session: str) -> None:
        refusals.conversation_key(native.parse("/api/chat", {"model": text, "messages": []}, session=session))
        refusals.conversation_key(chat(messages=[{"role": text, "content": text}]))
        assert len(refusals.prompt_key(chat(messages=[{"role": text, "content": text}]))) == 16

    def test_a_prompt_is_the_same_whatever_options_it_comes_with(self) -> None:
        assert refusals.prompt_key(chat()) == refusals.prompt_key(chat(options={"seed": 1}, stream=False, think=True))
        assert refusals.prompt_key(chat()) != refusals.prompt_key(chat(tools=[{}]))


NO = Refusal(400, "context_length_exceeded", "too long", headers={"x-should-retry": "false"})


class TestMemory:
    def test_a_body_is_refused_again_until_its_time_is_over(self) -> None:
        memory = RefusalMemory(10.0)
        memory.keep("/api/chat", b"x", NO, 100.0)
        again = memory.recall("/api/chat", b"x", 109.9)
        assert again is not None
        assert again.headers == {"x-should-retry": "false", "x-ollama-gate-repeated": "true"}
        assert (again.message, again.code) == (NO.message, NO.code)
        assert memory.recall("/api/chat", b"x", 110.0) is None
        assert len(memory) == 0

    @pytest.mark.parametrize(("route", "body"), [("/api/generate", b"x"), ("/api/chat", b"y"), ("/api/chat", b"")])
    def test_another_body_or_route_is_not_known(self, route: str, body: bytes) -> None:
        memory = RefusalMemory(10.0)
        memory.keep("/api/chat", b"x", NO, 0.0)
        assert memory.recall(route, body, 1.0) is None

    def test_zero_seconds_switch_it_off(self) -> None:
        memory = RefusalMemory(0.0)
        memory.keep("/api/chat", b"x", NO, 0.0)
        assert len(memory) == 0

    def test_a_changed_model_clears_it(self) -> None:
        memory = RefusalMemory(10.0)
        memory.keep("/api/chat", b"x", NO, 0.0)
        memory.forget()
        assert memory.recall("/api/chat", b"x", 0.1) is None

    def test_the_oldest_goes_when_there_is_no_room(self) -> None:
        memory = RefusalMemory(10.0, capacity=2)
        for body in (b"a", b"b", b"a", b"c"):
            memory.keep("/api/chat", body, NO, 0.0)
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
