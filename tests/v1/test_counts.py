"""The counts that agents ask for before they send: exact, cheap, and refused in their own dialect."""

import gzip
import json
from typing import Any

import pytest

from support.agents import claude_code, prose
from support.cases import front
from support.gate import running_gate
from support.http import Client, ask
from support.scripted import Got, ScriptedOllama

MODEL = "llama3.2"
ANTHROPIC, OPENAI = "/v1/messages/count_tokens", "/v1/responses/input_tokens"
ASKED: dict[str, dict[str, Any]] = {
    ANTHROPIC: {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}]},
    OPENAI: {"model": MODEL, "input": "Hello."},
}
both = pytest.mark.parametrize("path", ASKED)


@both
async def test_a_count_is_that_of_the_request_itself(path: str) -> None:
    runs = {ANTHROPIC: "/v1/messages", OPENAI: "/v1/responses"}
    async with front() as line:
        run = await line.ask(runs[path], {**ASKED[path], "max_tokens": 5})
        counted = await line.ask(path, ASKED[path])
    assert counted.json["input_tokens"] == run.json["usage"]["input_tokens"]
    assert (counted.header("Content-Type") or "").startswith("application/json")


@both
async def test_what_is_over_every_limit_is_counted_all_the_same(path: str) -> None:
    long = {"messages": [{"role": "user", "content": prose(500)}], "input": prose(500)}
    async with front(window=2048) as line:
        counted = await line.ask(path, {**ASKED[path], **long})
        assert not line.got()
    assert counted.status == 200
    assert counted.json["input_tokens"] > 10_000


@both
async def test_compressed_and_odd_cased_bodies_are_read(path: str) -> None:
    async with front() as line:
        plain = await line.ask(path, ASKED[path])
        raw = gzip.compress(json.dumps(ASKED[path]).encode())
        packed = await line.ask(path, raw, headers={"Content-Encoding": "gzip"})
        odd = await line.ask(path, {key.title(): value for key, value in ASKED[path].items()})
    assert plain.json == packed.json == odd.json


@both
@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "no-such-model"}, 404, "not_found_error"),
        ({"model": "not a name!"}, 400, "invalid_request_error"),
        ({"model": "../../etc/passwd"}, 400, "invalid_request_error"),
        ({"model": ""}, 400, "invalid_request_error"),
        ({"messages": 7, "input": 7}, 400, "invalid_request_error"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_what_cannot_be_counted_is_refused_in_the_dialect(
    path: str, body: dict[str, Any], status: int, kind: str
) -> None:
    async with front() as line:
        reply = await line.ask(path, {**ASKED[path], **body})
        broken = await line.ask(path, b"{")
    assert reply.status == status
    assert reply.json["error"]["type"] == kind
    assert reply.json["error"]["message"]
    assert broken.status == 400


@both
async def test_without_ollama_there_is_no_count(path: str) -> None:
    async def script(got: Got, writer: Any) -> None:
        raise AssertionError("nothing is run")

    async with ScriptedOllama(script) as ollama:
        gone = ollama.url
    async with running_gate(gone) as gate:
        reply = await ask(gate.address, "POST", path, ASKED[path])
    assert reply.status == 503
    assert reply.json["error"]["message"]


async def test_an_inference_that_is_not_guarded_yet_is_not_passed_on() -> None:
    async with front() as line:
        reply = await line.ask("/v1/responses/compact", {"model": MODEL, "input": "Hello."})
        assert not line.got()
    assert (reply.status, reply.json["error"]["code"]) == (501, "route_not_guarded")


async def test_a_count_takes_no_slot() -> None:
    """Claude Code asks for a dozen while its turn runs."""
    body = claude_code("llama3.2", "Hello.")
    async with front() as line:
        await line.ask("/v1/messages", body)
        line.ollama.fault("hang", path="/api/chat", at="stream", after=1)
        async with await Client.connect(line.gate.address) as running:
            await running.send("POST", "/v1/messages", body)
            await running.next_chunk(await running.head())
            counted = await line.ask(ANTHROPIC, ASKED[ANTHROPIC])
    assert counted.status == 200
