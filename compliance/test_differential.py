"""The same request straight to Ollama's own /v1 layer and through the gate: nobody can tell the two answers apart.

Ids, times and fingerprints aside. Where they differ on purpose stands in `DIFFERENCES`, with the reason.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import pytest
from served import Served

COLD = {"temperature": 0, "seed": 1}
HELLO = [{"role": "user", "content": "Say hello."}]
CALL = [{"role": "user", "content": 'Please call tool weather with {"city": "Oslo"}'}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS}
WEATHER = {"name": "weather", "input_schema": PARAMETERS}
CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"


def chat(**more: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": HELLO, "max_tokens": 12, **COLD, **more}


def completion(**more: Any) -> tuple[str, dict[str, Any]]:
    return COMPLETIONS, {"prompt": "Once upon a time", "max_tokens": 12, **COLD, **more}


def response(**more: Any) -> tuple[str, dict[str, Any]]:
    return RESPONSES, {"input": "Say hello.", "max_output_tokens": 12, "temperature": 0, **more}


def message(**more: Any) -> tuple[str, dict[str, Any]]:
    return MESSAGES, {"messages": HELLO, "max_tokens": 12, "temperature": 0, **more}


STREAM = {"stream": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
REQUESTS: Mapping[str, tuple[str, tuple[str, dict[str, Any]]]] = {
    "chat": ("chat", chat()),
    "chat, streamed": ("chat", chat(**STREAM)),
    "chat, streamed with usage": ("chat", chat(**USAGE)),
    "chat, system and history": (
        "chat",
        chat(
            messages=[
                {"role": "system", "content": "Be brief."},
                *HELLO,
                {"role": "assistant", "content": "Hi."},
                *HELLO,
            ]
        ),
    ),
    "chat, parts": ("chat", chat(messages=[{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}])),
    "chat, stop": ("chat", chat(stop=["o", "rehearsal"])),
    "chat, json": ("chat", chat(response_format={"type": "json_object"}, max_tokens=64)),
    "chat, tools": ("tools", chat(messages=CALL, tools=[{"type": "function", "function": FUNCTION}], max_tokens=80)),
    "chat, tools, streamed": (
        "tools",
        chat(messages=CALL, tools=[{"type": "function", "function": FUNCTION}], max_tokens=80, **STREAM),
    ),
    "chat, reasoning": ("thinking", chat(max_tokens=60)),
    "chat, reasoning, streamed": ("thinking", chat(max_tokens=60, **USAGE)),
    "chat, no reasoning": ("thinking", chat(reasoning_effort="none")),
    "chat, no messages": ("chat", chat(messages=[])),
    "chat, wrong type": ("chat", chat(temperature="warm")),
    "chat, no such model": ("no-such-model", chat()),
    "chat, no such model, streamed": ("no-such-model", chat(**STREAM)),
    "chat, embedder": ("embed", chat()),
    "completion": ("chat", completion()),
    "completion, streamed": ("chat", completion(**STREAM)),
    "completion, streamed with usage": ("chat", completion(**USAGE)),
    "completion, load": ("chat", completion(prompt="")),
    "embeddings": ("embed", (EMBEDDINGS, {"input": ["hello", "world", ""]})),
    "embeddings, base64": ("embed", (EMBEDDINGS, {"input": "hello", "encoding_format": "base64"})),
    "embeddings, no input": ("embed", (EMBEDDINGS, {"input": []})),
    "response": ("chat", response()),
    "response, streamed": ("chat", response(**STREAM)),
    "message": ("chat", message()),
    "message, streamed": ("chat", message(**STREAM)),
    "message, system blocks": (
        "chat",
        message(system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]),
    ),
    "message, tools": ("tools", message(messages=CALL, tools=[WEATHER], max_tokens=80)),
    "message, tools, streamed": ("tools", message(messages=CALL, tools=[WEATHER], max_tokens=80, **STREAM)),
    "message, thinking, streamed": ("thinking", message(thinking={"type": "enabled"}, max_tokens=60, **STREAM)),
    "message, no max_tokens": ("chat", message(max_tokens=0)),
    "message, no such model": ("no-such-model", message()),
}


def _without_start_count(answer: str) -> str:
    return re.sub(r'("message_start".*?"input_tokens":)\d+', r"\1 0", answer)


def _as_completed(answer: str) -> str:
    answer = re.sub(r'"completed_at":(null|\d+)', '"completed_at":0', answer)
    answer = re.sub(r'"incomplete_details":\{[^}]*\}', '"incomplete_details":null', answer)
    return answer.replace('"incomplete"', '"completed"').replace("response.incomplete", "response.completed")


DIFFERENCES: Mapping[str, Callable[[str], str]] = {
    # Ollama takes the bytes / 4 there, the gate counts.
    "message, streamed": _without_start_count,
    "message, tools, streamed": _without_start_count,
    "message, thinking, streamed": _without_start_count,
    # Ollama calls complete what its length ended.
    "response": _as_completed,
    "response, streamed": _as_completed,
}
_IDS = re.compile(r'"(id|item_id|request_id)":"(?:chatcmpl-|cmpl-|msg_|resp_|rs_|fc_|req_|call_)[^"]*"')
_TIMES = re.compile(r'"(created|created_at|completed_at)":\d+')
_EXTRA = ("code", "param", "details")
"""What a refusal of the gate's own says more than Ollama's."""


def ask(url: str, name: str, served: Served) -> httpx2.Response:
    use, (path, body) = REQUESTS[name]
    return httpx2.post(url + path, json={"model": getattr(served, use, use), **body}, timeout=600)


@pytest.fixture(scope="module")
def straight(served: Served) -> Mapping[str, httpx2.Response]:
    """Ollama's own answers. All are had before the gate is asked, which needs the models loaded in another way."""
    return {name: ask(served.upstream, name, served) for name in REQUESTS if answered(name, served)}


def answered(name: str, served: Served) -> bool:
    """Whether the upstream has this route: the rehearsal does not speak Responses."""
    return REQUESTS[name][1][0] != RESPONSES or served.real


def same(name: str, answer: httpx2.Response) -> Any:
    """An answer as it is compared."""
    if answer.status_code != 200:
        told = answer.json()
        return {key: "-" if key == "request_id" else value for key, value in told.items() if key not in _EXTRA}
    text = _TIMES.sub(r'"\1":0', _IDS.sub(r'"\1":"-"', answer.text))
    text = DIFFERENCES.get(name, str)(text)
    return text if "event-stream" in answer.headers["content-type"] else json.loads(text)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_gates_answer_is_ollamas(served: Served, straight: Mapping[str, httpx2.Response], name: str) -> None:
    if not answered(name, served):
        pytest.skip("the rehearsal does not speak Responses; its recordings are replayed in tests/v1")
    through = ask(served.url, name, served)
    assert through.status_code == straight[name].status_code
    kinds = [answer.headers["content-type"].partition(";")[0] for answer in (through, straight[name])]
    assert kinds[0] == kinds[1]
    assert same(name, through) == same(name, straight[name])


def test_the_lists_of_models_are_ollamas(served: Served) -> None:
    for path in ("/v1/models", f"/v1/models/{served.chat}", "/api/tags", "/api/version"):
        through, straight = (httpx2.get(url + path, timeout=30) for url in (served.url, served.upstream))
        assert (through.status_code, through.content) == (straight.status_code, straight.content)
