"""Whatever a client sends, it gets a refusal or a request that can be sent; whatever Ollama answers, bytes."""

import contextlib
import json
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ollama_gate.dialects import anthropic
from ollama_gate.errors import Refused
from ollama_gate.requests import InferenceRequest
from ollama_gate.wire.body import encode_json
from support.dialects import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    ENDPOINTS,
    MESSAGES,
    RESPONSES,
    events,
    parse,
    writer_for,
    writer_of,
)

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Drawing JSON is slow; the variety is in each body."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "tool",
        "system",
        "text",
        "image",
        "image_url",
        "input_text",
        "tool_use",
        "tool_result",
        "thinking",
        "message",
        "function",
        "function_call",
        "function_call_output",
        "reasoning",
        "namespace",
        "web_search",
        "base64",
        "none",
        "data:image/png;base64,YQ==",
        "{}",
    ]
)
KEYS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "id",
        "name",
        "input",
        "source",
        "data",
        "url",
        "image_url",
        "tool_calls",
        "tool_call_id",
        "tool_use_id",
        "call_id",
        "function",
        "arguments",
        "output",
        "tools",
        "parameters",
        "thinking",
        "effort",
        "format",
        "schema",
        "summary",
        "encrypted_content",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    WORDS,
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=20,
)


def body_of(path: str) -> st.SearchStrategy[dict[str, Any]]:
    fields = sorted(ENDPOINTS[path].fields | {"options", "num_ctx"})
    required: dict[str, Any] = {"model": st.just("m") | JSON, "messages": st.lists(JSON, min_size=1, max_size=3) | JSON}
    required |= {"max_tokens": st.just(9) | JSON, "input": JSON, "prompt": JSON}
    return st.builds(lambda some, others: {**others, **some}, st.fixed_dictionaries(required), odd_fields(fields))


def odd_fields(fields: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(fields), JSON, max_size=4)


def understood(path: str, body: dict[str, Any], policy: Any) -> InferenceRequest | None:
    with contextlib.suppress(Refused):
        return parse(path, body, server_tools=policy)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES])
@FEW
@given(data=st.data())
def test_any_body_is_refused_or_becomes_a_request_that_can_be_sent(path: str, data: st.DataObject) -> None:
    body = data.draw(body_of(path))
    policy = data.draw(st.sampled_from(["drop", "refuse", "pass"]))
    request = understood(path, body, policy)
    if request is None:
        return
    assert orjson.loads(encode_json(dict(request.body)))["model"] == request.model
    assert all(note.isascii() and note.isprintable() for note in request.notes)
    writer = writer_of(path, request, body)
    assert orjson.loads(writer.whole({}))


@FEW
@given(data=st.data())
def test_any_body_to_be_counted_is_refused_or_becomes_a_request(data: st.DataObject) -> None:
    body = data.draw(body_of(MESSAGES))
    with contextlib.suppress(Refused):
        assert anthropic.parse_count(body, {}).path == "/api/chat"


NATIVE_KEYS = st.sampled_from(
    [
        "message",
        "response",
        "content",
        "thinking",
        "tool_calls",
        "function",
        "id",
        "index",
        "name",
        "arguments",
        "done",
        "done_reason",
        "error",
        "logprobs",
        "prompt_eval_count",
        "eval_count",
        "embeddings",
        "created_at",
    ]
)
CHUNK = st.dictionaries(
    NATIVE_KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NATIVE_KEYS, inner, max_size=5)),
        max_leaves=10,
    ),
    max_size=6,
)
PLAIN: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "x"}],
    "prompt": "x",
    "input": "x",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@FEW
@given(chunks=st.lists(CHUNK, max_size=6))
def test_any_native_stream_becomes_well_formed_events_and_at_most_one_end(
    path: str, chunks: list[dict[str, Any]]
) -> None:
    body = {**PLAIN, "stream": True}
    writer = writer_for(path, body)
    sent = b"".join(writer.feed(chunk) for chunk in chunks)
    ended = any(chunk.get("done") is True or chunk.get("error") is not None for chunk in chunks)
    assert writer.finish() == (b"" if ended else None)
    assert sent == b"" or sent.endswith(b"\n\n")
    names = [name or data for name, data in events(sent.decode())]
    ends = ("[DONE]", "response.completed", "response.incomplete", "response.failed", "message_stop", "error")
    assert sum(name in ends for name in names if isinstance(name, str)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@FEW
@given(answer=CHUNK)
def test_any_native_answer_becomes_a_body(path: str, answer: dict[str, Any]) -> None:
    writer = writer_for(path, PLAIN)
    assert isinstance(orjson.loads(writer.whole(answer)), dict)


def test_arguments_nested_beyond_what_orjson_writes_do_not_break_a_stream() -> None:
    nested: Any = {}
    for _ in range(300):
        nested = {"a": nested}
    chunk = {"message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": nested}}]}, "done": True}
    body = {**PLAIN, "stream": True}
    for path in (CHAT, RESPONSES, MESSAGES):
        writer = writer_for(path, body)
        assert json.dumps("a" * 3)[1:2].encode() in writer.feed(chunk)
        assert writer.finish() == b""
