"""Only what says nothing at all is a message to the scheduler: a conversation is answered or refused, never dropped."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollama_gate.errors import Refused
from ollama_gate.requests import Control, InferenceRequest
from ollama_gate.routes import LANES
from support.dialects import CHAT, COMPLETIONS, MESSAGES, RESPONSES

NATIVE = "/api/chat"
FEW = settings(max_examples=150, deadline=None)

ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer", "function", "", "User"])
TEXTS = st.sampled_from(["", " ", "\n", "hi", None])
TYPES = st.sampled_from(
    [
        *("text", "image", "document", "search_result", "tool_use", "tool_result", "thinking", "redacted_thinking"),
        *(
            "input_text",
            "output_text",
            "input_image",
            "image_url",
            "input_audio",
            "container_upload",
            "refusal",
            "",
            "x",
        ),
    ]
)
PARTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "text": TEXTS,
        "content": TEXTS | st.just([]),
        "source": st.sampled_from([{}, {"type": "text", "data": ""}, {"type": "base64", "data": ""}]),
        "thinking": TEXTS,
        "id": st.just("t"),
        "name": st.just("f"),
        "tool_use_id": st.just("t"),
        "input": st.just({}),
    },
)
CONTENT = TEXTS | st.lists(PARTS | st.none(), max_size=3)
CALLS = st.sampled_from([None, [], [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]])
MESSAGE = st.fixed_dictionaries({"role": ROLES, "content": CONTENT}, optional={"tool_calls": CALLS})
ITEMS = MESSAGE | st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "web_search_call", "function_call", "function_call_output"])},
    optional={"role": ROLES, "content": CONTENT, "call_id": st.just("c"), "output": CONTENT, "summary": st.just([])},
)


def understood(path: str, body: dict[str, Any]) -> InferenceRequest | None:
    with contextlib.suppress(Refused):
        return LANES[path].read({"model": "m", **body}, {}, "drop")[1]
    return None


@pytest.mark.parametrize("path", [CHAT, MESSAGES, NATIVE])
@FEW
@given(messages=st.lists(MESSAGE, min_size=1, max_size=3), system=TEXTS)
def test_a_conversation_never_becomes_a_control_message(
    path: str, messages: list[dict[str, Any]], system: str | None
) -> None:
    request = understood(path, {"messages": messages, "system": system, "max_tokens": 9, "keep_alive": 0})
    assert request is None or (request.control is Control.NONE and request.body["messages"])


@FEW
@given(items=st.lists(ITEMS, min_size=1, max_size=3), more=st.sampled_from([{}, {"instructions": ""}]))
def test_items_never_become_a_control_message(items: list[dict[str, Any]], more: dict[str, Any]) -> None:
    request = understood(RESPONSES, {"input": items, **more})
    assert request is None or (request.control is Control.NONE and request.body["messages"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RESPONSES, {"input": [], "previous_response_id": "r"}),
        (RESPONSES, {"conversation": "c"}),
        (RESPONSES, {"messages": [{"role": "user", "content": "hi"}]}),
        (COMPLETIONS, {"messages": [{"role": "user", "content": "hi"}]}),
        (COMPLETIONS, {"prompt": "", "input": "hi"}),
    ],
)
def test_who_wants_an_answer_without_saying_it_here_is_refused(path: str, body: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        LANES[path].read({"model": "m", **body}, {}, "drop")
    assert refused.value.refusal.status == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RESPONSES, {}),
        (RESPONSES, {"input": ""}),
        (RESPONSES, {"input": []}),
        (COMPLETIONS, {"prompt": ""}),
        (NATIVE, {}),
    ],
)
def test_what_says_nothing_loads_the_model(path: str, body: dict[str, Any]) -> None:
    request = understood(path, body)
    assert request is not None
    assert request.control is Control.LOAD
