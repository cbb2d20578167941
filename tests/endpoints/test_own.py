"""The gate's own endpoints."""

from collections.abc import AsyncIterator

import pytest

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import running_gate
from support.http import ask

CHAT = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "hi there"}]}


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as running:
        yield running


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/gate/health", 200),
        ("HEAD", "/gate/health", 200),
        ("GET", "/gate/health/live", 200),
        ("GET", "/gate/status", 200),
        ("GET", "/gate/metrics", 200),
        ("POST", "/gate/health", 405),
        ("GET", "/gate/count", 405),
        ("PUT", "/gate/tokenize", 405),
        ("DELETE", "/gate/chunk", 405),
        ("GET", "/gate/", 200),
        ("GET", "/gate/nowhere", 404),
        ("POST", "/gate/../api/chat", 404),
    ],
)
async def test_each_endpoint_takes_its_method(gate: Gate, method: str, path: str, status: int) -> None:
    reply = await ask(gate.address, method, path)
    assert reply.status == status
    assert reply.header("Server") == "ollama-gate"
    if status == 405:
        assert reply.header("Allow") in ("GET", "POST")


async def test_metrics_are_prometheus_and_can_be_switched_off() -> None:
    async with Rehearsal(Settings()) as ollama:
        async with running_gate(ollama.url) as gate:
            reply = await ask(gate.address, "GET", "/gate/metrics")
        async with running_gate(ollama.url, metrics={"enabled": False}) as off:
            assert (await ask(off.address, "GET", "/gate/metrics")).status == 404
    assert (reply.header("Content-Type") or "").startswith("text/plain")
    assert b"\nollama_gate_in_flight 0" in reply.body


async def test_the_status_tells_of_ollama_and_models_and_holds_no_text(gate: Gate) -> None:
    await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
    reply = await ask(gate.address, "GET", "/gate/status")
    told = reply.json
    assert told["upstream"]["up"] is True
    assert told["upstream"]["version"] == "0.33.0-rc2"
    [model] = [one for one in told["models"] if one["name"] == "rehearsal-go:latest"]
    assert (model["window"], model["budget"]) == (8192, 6553)
    assert b"hi there" not in reply.body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "body", "verdict"),
    [
        ("/gate/count", CHAT, "admit"),
        ("/gate/count", {"model": "rehearsal-go", "prompt": "hi"}, "admit"),
        ("/gate/count", {"model": "rehearsal-embed", "input": ["hi", "x " * 900]}, "refuse"),
        ("/gate/count?route=/v1/chat/completions", CHAT, "admit"),
        ("/gate/count?route=/v1/messages", {**CHAT, "max_tokens": 5}, "admit"),
        ("/gate/count?route=/v1/responses", {"model": "rehearsal-go", "input": "hi"}, "admit"),
        ("/gate/count", {**CHAT, "messages": [{"role": "user", "content": "word " * 9000}]}, "refuse"),
    ],
)
async def test_a_count_says_what_would_happen_and_nothing_happens(
    gate: Gate, target: str, body: dict[str, object], verdict: str
) -> None:
    reply = await ask(gate.address, "POST", target, body)
    assert reply.status == 200
    told = reply.json
    assert told["verdict"] == verdict
    assert told["tokens"] <= told["at_most"]
    assert sum(told["parts"].values()) == told["tokens"]
    again = await ask(gate.address, "POST", target, body)
    assert again.json == told


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/gate/count", {"model": "nowhere", "messages": []}, 404, "model_not_found"),
        ("/gate/count", {"model": "gpt-oss:120b-cloud", "messages": []}, 400, "not_countable"),
        ("/gate/count", {"model": "rehearsal-go", "input": "x"}, 400, "model_cannot_embed"),
        ("/gate/count?route=/api/nowhere", CHAT, 400, "invalid_request"),
        ("/gate/count", {"model": "a b", "messages": []}, 400, "invalid_model_name"),
        ("/gate/count", {"model": "../x", "prompt": "x"}, 400, "invalid_model_name"),
        ("/gate/count", {}, 400, "invalid_request"),
        ("/gate/tokenize", {"model": "nowhere", "text": "x"}, 404, "model_not_found"),
        ("/gate/tokenize", {"model": "gpt-oss:120b-cloud", "text": "x"}, 400, "not_countable"),
        ("/gate/tokenize", {"model": "a b", "text": "x"}, 400, "invalid_model_name"),
        ("/gate/tokenize", {"model": "rehearsal-go"}, 400, "invalid_request"),
        ("/gate/tokenize", {"model": 5, "text": []}, 400, "invalid_request"),
    ],
)
async def test_what_cannot_be_answered_is_refused_with_its_reason(
    gate: Gate, path: str, body: dict[str, object], status: int, code: str
) -> None:
    reply = await ask(gate.address, "POST", path, body)
    assert (reply.status, reply.json["code"]) == (status, code)


async def test_tokens_of_a_text_are_told_with_their_pieces(gate: Gate) -> None:
    reply = await ask(gate.address, "POST", "/gate/tokenize", {"model": "rehearsal-go", "text": "hi there, all"})
    told = reply.json
    assert told["count"] == len(told["ids"]) == len(told["pieces"])
    assert "".join(told["pieces"]) == "hi there, all"


@pytest.mark.parametrize("path", ["/gate/count", "/gate/tokenize"])
async def test_without_ollama_they_say_so(path: str) -> None:
    async with Rehearsal(Settings()) as ollama:
        url = ollama.url
    async with running_gate(url) as gate:
        reply = await ask(gate.address, "POST", path, {**CHAT, "text": "x"})
    assert (reply.status, reply.json["code"]) == (503, "upstream_unreachable")
