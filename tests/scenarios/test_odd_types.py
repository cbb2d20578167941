"""Every field with a value of another type: the gate's 400 or Ollama's, or an answer; never a fault, never a load."""

import random
from typing import Any

import pytest

from support.cases import front

MODEL = "llama3.2:1b"
SAID = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/api/chat": {"messages": SAID, "stream": False, "options": {"num_predict": 1}},
    "/api/generate": {"prompt": "hi", "stream": False, "options": {"num_predict": 1}},
    "/v1/chat/completions": {"messages": SAID, "max_tokens": 1},
    "/v1/completions": {"prompt": "hi", "max_tokens": 1},
    "/v1/responses": {"input": "hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": SAID, "max_tokens": 1},
}
ODD: list[Any] = [None, True, 0, -1, 1.5, 2**63, 1e300, "", "x", [], [1], {}, {"a": 1}]
FIELDS = (
    *("options", "format", "think", "tools", "tool_choice", "response_format", "text", "thinking", "system", "images"),
    *(
        "context",
        "suffix",
        "template",
        "raw",
        "output_config",
        "output_format",
        "stop",
        "logprobs",
        "top_logprobs",
        "n",
    ),
    *(
        "reasoning",
        "reasoning_effort",
        "temperature",
        "seed",
        "functions",
        "prompt",
        "previous_response_id",
        "keep_alive",
    ),
)
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def tools_with(odd: Any) -> list[Any]:
    """One tool in each way in which a part of it can be odd."""
    function = {"name": "f", "parameters": PARAMETERS}
    odds = [
        *({**function, field: odd} for field in ("name", "description", "parameters")),
        *({**function, "parameters": {**PARAMETERS, field: odd}} for field in PARAMETERS),
        *(
            {**function, "parameters": {**PARAMETERS, "properties": {"a": {field: odd}}}}
            for field in ("type", "enum", "anyOf", "properties", "required", "items")
        ),
    ]
    return [[{"type": "function", "function": each}] for each in odds]


@pytest.mark.slow
async def test_a_field_of_another_type_is_nobodys_fault_but_the_clients() -> None:
    asked = [(path, {**body, field: odd}) for path, body in ROUTES.items() for field in FIELDS for odd in ODD]
    asked = random.Random(5).sample(asked, 250)
    values: tuple[Any, ...] = (5, "x", [], {"a": 1}, None)
    for odd in values:
        asked += [("/api/chat", {**ROUTES["/api/chat"], "tools": tools}) for tools in tools_with(odd)]
    async with front() as line:
        for path, body in asked:
            reply = await line.ask(path, {"model": MODEL, **body})
            assert reply.status in {200, 400}, (path, body, reply.body)
            emptied = not (body.get("messages") or body.get("prompt") or body.get("input"))
            assert reply.gate("verdict") != "control" or emptied, (path, body)
