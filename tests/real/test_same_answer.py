"""The same request, straight to Ollama and through the gate: the same answer, field by field."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.http import Reply, ask
from support.real import SUITE, direct, gate_before, needed

pytestmark = SUITE
WINDOW = 2048
RUN = {"num_predict": 12, "temperature": 0, "seed": 1}
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours & a <fruit>."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
STRICT = {"truncate": False, "shift": False, "options": {**RUN, "num_ctx": WINDOW}}
OPEN_AI = {"temperature": 0, "seed": 1, "max_tokens": 12}


@dataclass(frozen=True, slots=True)
class Case:
    """One request; what is sent straight may need more than the client says, so that Ollama runs the same way."""

    name: str
    path: str
    body: Mapping[str, Any]
    straight: Mapping[str, Any] = field(default_factory=dict)


CASES = (
    Case("chat", "/api/chat", {"messages": HELLO, "options": RUN, "stream": False}, STRICT),
    Case("chat streamed", "/api/chat", {"messages": HELLO, "options": RUN}, STRICT),
    Case("chat with tools", "/api/chat", {"messages": HELLO, "tools": [TOOL], "options": RUN}, STRICT),
    Case("chat with a format", "/api/chat", {"messages": HELLO, "format": "json", "options": RUN}, STRICT),
    Case(
        "chat, logprobs", "/api/chat", {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "options": RUN}, STRICT
    ),
    Case("generate", "/api/generate", {"prompt": "Once upon", "options": RUN, "stream": False}, STRICT),
    Case("generate streamed", "/api/generate", {"prompt": "Once upon", "options": RUN}, STRICT),
    Case("generate raw", "/api/generate", {"prompt": "Once upon", "raw": True, "options": RUN}, STRICT),
    Case("load", "/api/generate", {"prompt": ""}, STRICT),
    Case("no such model", "/api/chat", {"model": "not-there", "messages": HELLO}),
    Case("openai chat", "/v1/chat/completions", {"messages": HELLO, **OPEN_AI}),
    Case("openai chat streamed", "/v1/chat/completions", {"messages": HELLO, "stream": True, **OPEN_AI}),
    Case(
        "openai chat streamed with usage",
        "/v1/chat/completions",
        {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}, **OPEN_AI},
    ),
    Case("openai chat with tools", "/v1/chat/completions", {"messages": HELLO, "tools": [TOOL], **OPEN_AI}),
    Case("openai chat, no such model", "/v1/chat/completions", {"model": "not-there", "messages": HELLO}),
    Case("openai completions", "/v1/completions", {"prompt": "Once upon", **OPEN_AI}),
    Case("openai completions streamed", "/v1/completions", {"prompt": "Once upon", "stream": True, **OPEN_AI}),
    Case("anthropic messages", "/v1/messages", {"messages": HELLO[1:], "max_tokens": 12, "temperature": 0}),
)
EMBEDDINGS = (
    Case("embed one", "/api/embed", {"input": "a ferry"}, {"truncate": False}),
    Case("embed many", "/api/embed", {"input": ["a ferry", "", "naïve 漢字"]}, {"truncate": False}),
    Case("embed, fewer dimensions", "/api/embed", {"input": "a ferry", "dimensions": 16}, {"truncate": False}),
    Case("embed nothing", "/api/embed", {"input": []}),
    Case("embeddings", "/api/embeddings", {"prompt": "a ferry"}),
    Case("openai embeddings", "/v1/embeddings", {"input": ["a ferry", "b"]}),
    Case("openai embeddings, base64", "/v1/embeddings", {"input": "a ferry", "encoding_format": "base64"}),
)


@pytest.mark.parametrize("model", ["gemma3:270m", "gate-tools", "gate-native", "gate-think"])
async def test_chat_and_generate(model: str) -> None:
    await needed(model)
    await _compare(model, CASES)


async def test_embeddings() -> None:
    await needed("all-minilm")
    await _compare("all-minilm", EMBEDDINGS)


async def test_a_format_on_which_ollama_fails_is_refused_by_name() -> None:
    model = "gemma3:270m"
    await needed(model)
    body = {"model": model, "messages": HELLO, "format": "xml", "stream": False, "options": RUN}
    async with gate_before(model, WINDOW) as gate:
        straight = await direct("POST", "/api/chat", {**body, **STRICT})
        through = await ask(gate.address, "POST", "/api/chat", body)
    assert straight.status == 500
    assert (through.status, through.json["param"]) == (400, "format")


async def _compare(model: str, cases: tuple[Case, ...]) -> None:
    """All straight ones first: they may need the model loaded in another way than the gate wants it."""
    straight: dict[str, Any] = {}
    different: list[str] = []
    async with gate_before(model, WINDOW) as gate:
        for case in cases:
            body = {"model": model, **case.body, **case.straight}
            await direct("POST", case.path, body)  # what the prompt cache adds is the same in the second answers
            straight[case.name] = _told(await direct("POST", case.path, body))
        for case in cases:
            body = {"model": model, **case.body}
            await ask(gate.address, "POST", case.path, body)
            through = _told(await ask(gate.address, "POST", case.path, body))
            if through != straight[case.name]:
                different.append(f"{case.name}:\n  straight {straight[case.name]}\n  through  {through}")
    assert not different, "\n".join(different)


CHANGING = re.compile(r"(created(_at)?|\w+_duration|id|request_id)$")
"""Fields that differ from one answer to the next; that they are there is compared."""


def _told(reply: Reply) -> Any:
    """Status, type and content of an answer, without what changes from run to run."""
    kind = reply.header("Content-Type") or ""
    if "event-stream" in kind:
        frames = [frame.removeprefix("data: ") for frame in reply.body.decode().split("\n\n")]
        content: Any = [frame if frame in ("", "[DONE]") else _steady(json.loads(frame)) for frame in frames]
    elif "ndjson" in kind:
        content = _steady(reply.lines)
    else:
        content = _steady(reply.json)
    return reply.status, kind, content


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        # As a list: the order of the fields is compared too.
        return [(key, "…" if CHANGING.fullmatch(key) else _steady(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [_steady(item) for item in value]
    return value
