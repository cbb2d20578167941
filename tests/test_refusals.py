"""What the gate says when a prompt does not fit, or Ollama does not answer."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate import refusals
from ollama_gate.dialects import native
from ollama_gate.errors import Refusal, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
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
    refusals.prompt_too_long(chat(), count(9000, messages=4000, media=5000), ROOM),
    refusals.prompt_too_long(generate(), count(9000, 9100, Rung.ESTIMATE), ROOM),
    refusals.prompt_too_long(chat(), count(9000, 9000, Rung.BOUND), ROOM),
    refusals.prompt_too_long(chat(), count(90_000, 10**7, Rung.BOUND), ROOM),
    refusals.reply_too_long(5000, count(6000), ROOM),
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


def test_who_sends_too_many_pictures_is_not_told_to_shorten_the_text() -> None:
    for request in (chat(), generate()):
        refusal = refusals.prompt_too_long(request, count(9248, messages=9, template=23, media=9216), ROOM)
        assert refusal.message.endswith("Pictures or sound take 9216 of these tokens: sending fewer would help most.")
    text = refusals.prompt_too_long(chat(), count(9768, messages=9000, media=768), ROOM)
    assert "Shorten or summarise" in text.message


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


MARKERS = (
    "context", "too long", "too many tokens", "maximum", "reduce the length", "exceeds", "limit", "rate", "timeout",
    "timed out", "overloaded", "per minute",
)  # fmt: skip


def test_who_goes_round_is_told_so_in_words_that_start_no_compaction() -> None:
    refusal = Refusal(400, "context_length_exceeded", "prompt is too long", details={"prompt_tokens": 9, "budget": 5})
    told = refusals.hopeless(refusal)
    assert (told.status, told.code) == (400, "prompt_cannot_fit")
    assert "9 of 5" in told.message
    said = f"{told.message} {told.reason} {told.code}".lower()
    assert [marker for marker in MARKERS if re.search(rf"\b{marker}\b", said)] == []
    assert [pattern for pattern in MUST if re.search(pattern, told.message)] == []
