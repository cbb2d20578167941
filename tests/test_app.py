"""What holds for every answer of a running gate, whoever wrote it."""

import json

import pytest

from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import running_gate
from support.http import ask

CHAT = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "hi there"}], "max_tokens": 5}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/chat", 200),
        ("POST", "/v1/messages", 200),
        ("POST", "/v1/messages/count_tokens", 200),
        ("POST", "/v1/completions", 400),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/rehearsal-go", 200),
        ("GET", "/v1/models/nobody", 404),
        ("POST", "/api/show", 200),
        ("GET", "/api/tags", 200),
        ("GET", "/api/nowhere", 404),
        ("GET", "/gate/health", 200),
        ("GET", "/gate/nowhere", 404),
        ("POST", "/gate/count?route=/api/chat", 200),
    ],
)
async def test_every_answer_names_its_request(method: str, path: str, status: int) -> None:
    body = json.dumps(CHAT).encode() if method == "POST" else b""
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        replies = [await ask(gate.address, method, path, body) for _ in range(2)]
    assert {reply.status for reply in replies} == {status}
    first, second = (reply.gate("request-id") for reply in replies)
    assert first is not None
    assert second is not None
    assert first != second
