"""Which requests belong together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.conversations import conversation_key, prompt_key
from ollama_gate.dialects import native
from ollama_gate.requests import InferenceRequest


def chat(**more: Any) -> InferenceRequest:
    return native.parse("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more})


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user", "content": "hi"}], "tools": [{}]},
        {"model": "M"},
        {"options": {"seed": 1}},
    ],
)
def test_a_conversation_stays_the_same_while_it_grows(other: dict[str, Any]) -> None:
    assert conversation_key(chat()) == conversation_key(chat(**other))


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [{"role": "user", "content": "ho"}]},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]},
        {"model": "n"},
    ],
)
def test_another_beginning_is_another_conversation(other: dict[str, Any]) -> None:
    assert conversation_key(chat()) != conversation_key(chat(**other))


def test_a_session_header_decides_alone() -> None:
    one = native.parse("/api/chat", {"model": "m", "messages": []}, session="s")
    two = native.parse("/api/generate", {"model": "n", "prompt": "x"}, session="s")
    assert conversation_key(one) == conversation_key(two)
    assert conversation_key(one) != conversation_key(native.parse("/api/chat", {"model": "m", "messages": []}))


@given(st.text(max_size=20), st.text(st.characters(categories=["L", "Cs"]), min_size=1, max_size=5))
def test_any_text_has_a_key(text: str, session: str) -> None:
    conversation_key(native.parse("/api/chat", {"model": text, "messages": []}, session=session))
    conversation_key(chat(messages=[{"role": text, "content": text}]))
    assert len(prompt_key(chat(messages=[{"role": text, "content": text}]))) == 16


def test_a_prompt_is_the_same_whatever_options_it_comes_with() -> None:
    assert prompt_key(chat()) == prompt_key(chat(options={"seed": 1}, stream=False, think=True))
    assert prompt_key(chat()) != prompt_key(chat(tools=[{}]))
