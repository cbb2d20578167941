"""A fault of the gate's own: an answer in the client's dialect, a true line in the log, and nothing held."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.app import Gate
from support.faultfront import WAYS, Way
from support.gate import metric, running_gate
from support.http import Client, ask
from support.scripted import Got, ScriptedOllama, whole

ANSWER = {"message": {"role": "assistant", "content": "x"}, "response": "x", "done": True, "prompt_eval_count": 9}


async def script(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(ANSWER))


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as running:
        yield running


def lines(written: io.StringIO, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, written.getvalue().splitlines()) if line["event"] == event]


def bug(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("place", ["judge.recall", "_admission.lease", "_upstream.send"])
async def test_it_is_a_500_with_an_id_that_the_log_explains_and_the_next_request_is_served(
    gate: Gate, way: Way, place: str, monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    body = {**way.body(stream=False), "model": "llama3.2"}
    holder, name = place.split(".")
    with monkeypatch.context() as broken:
        broken.setattr(getattr(gate.wiring.pipeline, holder), name, bug)
        reply = await ask(gate.address, "POST", way.path, body)
    assert reply.status == 500
    [told], [settled] = lines(written_log, "internal error"), lines(written_log, "request")
    assert told["id"] in way.error(reply)["message"]
    assert told["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert (settled["id"], settled["status"], settled["verdict"]) == (told["id"], 500, "failed")
    assert settled["code"] == "internal_error"
    assert metric(gate, "refusals_total", route=way.path, code="internal_error") == 1
    assert (await ask(gate.address, "POST", way.path, body)).status == 200


async def test_a_connection_that_is_not_the_clients_fails_as_anything_else_does(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError("to some process")

    monkeypatch.setattr(gate.wiring.pipeline.judge, "recall", broken)
    reply = await ask(gate.address, "POST", "/api/chat", {**WAYS["chat"].body(stream=False), "model": "llama3.2"})
    assert (reply.status, reply.json["code"]) == (500, "internal_error")
    [settled] = lines(written_log, "request")
    assert (settled["status"], settled["verdict"], settled["code"]) == (500, "failed", "internal_error")


async def test_what_cannot_be_learned_of_an_answer_costs_the_client_nothing(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    monkeypatch.setattr(gate.wiring.counter, "learn", bug)
    body = {**WAYS["chat"].body(stream=False), "model": "llama3.2"}
    async with await Client.connect(gate.address) as client:
        for _ in range(2):
            await client.send("POST", "/api/chat", body)
            reply = await client.rest(await client.head())
            assert (reply.status, reply.complete) == (200, True)
    gate.wiring.settler.catch_up()
    assert len(lines(written_log, "request")) == 2
    assert len(lines(written_log, "a finished request could not be recorded")) == 2
    assert not lines(written_log, "internal error")
