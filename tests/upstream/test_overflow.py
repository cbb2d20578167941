"""Ollama's own words for "does not fit", against recorded answers of every route."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.upstream.overflow import Overflow, of_a_run, understand
from support.recorded import recording, recordings


def body(name: str) -> bytes:
    return "".join(recording(name).chunks).encode()


@pytest.mark.parametrize(
    "name",
    [
        "over-chat-truncate-false",
        "over-chat-truncate-false-stream",
        "over-chat-both-false",
        "over-generate-truncate-false",
        "over-generate-both-false",
        "edge-strict-256",
        "edge-native-mode-strict-257",
    ],
)
def test_a_prompt_that_llama_server_refuses_is_understood_with_its_numbers(name: str) -> None:
    found = understand(body(name))
    assert found is not None
    assert found.tokens is not None
    assert found.limit is not None
    assert found.tokens >= found.limit


@pytest.mark.parametrize("name", ["native-embed-over-truncate-false", "native-embeddings-over"])
def test_an_input_that_is_too_long_is_understood(name: str) -> None:
    assert understand(body(name)) == Overflow(None, None)


OTHERS = [
    name
    for name in recordings("native-*", "http-*", "dies-*", "busy-*", "over-*", "edge-*")
    if recording(name).status >= 400 and not name.startswith(("over-", "edge-")) and "-over" not in name
]


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_error_is_taken_for_it(name: str) -> None:
    assert understand(body(name)) is None


def test_mlx_says_it_in_its_own_words() -> None:
    text = "input length (9000 tokens) exceeds the model's maximum context length (8192 tokens)"
    assert understand(json.dumps({"error": text}).encode()) == Overflow(9000, 8192)


@pytest.mark.parametrize(
    "error",
    [
        "exceed_context_size_error",
        '{"error":{"type":"exceed_context_size_error"}}',
        '{"error":{"type":"exceed_context_size_error","n_prompt_tokens":"x","n_ctx":[]}}',
        '["exceed_context_size_error"]',
    ],
)
def test_it_is_understood_without_its_numbers_too(error: str) -> None:
    assert understand(json.dumps({"error": error}).encode()) == Overflow(None, None)


@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda text: json.dumps({"error": text + "text"}).encode()))
def test_anything_else_is_something_else(raw: bytes) -> None:
    assert understand(raw) is None
    assert understand(b"context length " + raw) is None


@pytest.mark.parametrize(
    ("error", "run"),
    [
        ("an error was encountered while running the model: unexpected EOF", True),
        ("an error was encountered while running the model: CUDA error: out of memory", True),
        ("embedding contains NaN or Inf values", True),
        ("model runner has unexpectedly stopped, this may be due to resource limitations or an internal error", False),
        ("timed out waiting for llama-server to start - loading", False),
        ("server busy, please try again.  maximum pending requests exceeded", False),
        ("model 'x' not found", False),
        ("", False),
    ],
)
def test_only_a_model_that_had_begun_fails_at_work(error: str, *, run: bool) -> None:
    assert of_a_run(error) is run
