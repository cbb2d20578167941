"""POST /gate/chunk: what it gives is taken by Ollama whole, and what cannot be done is said."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.app import Gate
from ollama_gate.endpoints import chunk
from ollama_gate.rehearsal import Rehearsal
from support.gate import running_gate
from support.http import Reply, ask

TEXT = "\n\n".join(
    f"Paragraph {number} speaks of querns. A quern is a hand mill! Is it not? Number {number * 7919}."
    * (1 + number % 9)
    for number in range(60)
)


@pytest.fixture
async def ollama() -> AsyncIterator[Rehearsal]:
    async with Rehearsal() as rehearsal:
        yield rehearsal


@pytest.fixture
async def gate(ollama: Rehearsal) -> AsyncIterator[Gate]:
    async with running_gate(ollama.url) as running:
        yield running


async def chunked(gate: Gate, **body: Any) -> Reply:
    return await ask(gate.address, "POST", "/gate/chunk", {"model": "rehearsal-embed", "text": TEXT, **body})


@pytest.mark.parametrize("body", [{}, {"max_tokens": 100}, {"max_tokens": 64, "overlap": 20}, {"max_tokens": 3}])
async def test_every_chunk_is_embedded_whole_and_together_they_are_the_text(gate: Gate, body: dict[str, int]) -> None:
    text = TEXT if body != {"max_tokens": 3} else TEXT[:60].replace("\n", "é")
    told = (await chunked(gate, text=text, **body)).json
    most = body.get("max_tokens", 512)
    assert (told["max_tokens"], told["specials"], told["rung"]) == (most, 2, "exact")
    assert "".join(text[one["fresh"] : one["end"]] for one in told["chunks"]) == text
    assert told["count"] == len(told["chunks"]) > 1
    for one in told["chunks"]:
        assert text[one["start"] : one["end"]] == one["text"]
        assert one["tokens"] <= most
    assert any(one["start"] < one["fresh"] for one in told["chunks"]) == ("overlap" in body)
    some = told["chunks"][:20]
    embedded = {"model": "rehearsal-embed", "input": [one["text"] for one in some], "truncate": False}
    reply = await ask(gate.address, "POST", "/api/embed", embedded)
    assert reply.status == 200
    assert reply.json["prompt_eval_count"] == sum(one["tokens"] for one in some)


async def test_a_model_that_chats_counts_no_specials_and_wants_a_length(gate: Gate) -> None:
    told = (await chunked(gate, model="rehearsal", max_tokens=50)).json
    assert told["specials"] == 0
    counted = await ask(
        gate.address, "POST", "/gate/tokenize", {"model": "rehearsal", "text": told["chunks"][1]["text"]}
    )
    assert counted.json["count"] == told["chunks"][1]["tokens"] <= 50
    assert (await chunked(gate, model="rehearsal")).status == 400


async def test_a_compressed_body_is_taken(gate: Gate) -> None:
    body = gzip.compress(json.dumps({"model": "rehearsal-embed", "text": "One. Two."}).encode())
    reply = await ask(gate.address, "POST", "/gate/chunk", body, {"Content-Encoding": "gzip"})
    assert [one["text"] for one in reply.json["chunks"]] == ["One. Two."]


async def test_an_empty_text_has_no_chunks(gate: Gate) -> None:
    assert (await chunked(gate, text="")).json["chunks"] == []


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"text": 3}, 400, "text", "what is to be cut"),
        ({"model": None}, 400, "model", "whose tokens"),
        ({"model": "../x"}, 400, "model", "invalid model name"),
        ({"model": "nowhere"}, 404, "model", "not found"),
        ({"max_tokens": 513}, 400, "max_tokens", "at most 512"),
        ({"max_tokens": 2}, 400, "max_tokens", "at least 3"),
        ({"max_tokens": True}, 400, "max_tokens", "whole number"),
        ({"max_tokens": 10.5}, 400, "max_tokens", "whole number"),
        ({"max_tokens": 12, "overlap": 6}, 400, "overlap", "at most half"),
        ({"overlap": -1}, 400, "overlap", "at least 0"),
        ({"max_token": 12}, 400, "max_token", "no field 'max_token'"),
    ],
)
async def test_what_cannot_be_done_is_said(gate: Gate, body: Any, status: int, param: str, words: str) -> None:
    reply = await chunked(gate, **body)
    assert reply.status == status
    told = reply.json
    assert told["param"] == param
    assert words in told["error"]


@pytest.mark.parametrize(("bound", "value"), [("_MOST", 20), ("_LONGEST", 0.0)])
async def test_a_text_that_makes_no_end_of_chunks_is_refused(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    monkeypatch.setattr(chunk, "_TURN", 0.0)
    monkeypatch.setattr(chunk, bound, value)
    reply = await chunked(gate, text="x" * 10_000, max_tokens=3)
    assert (reply.status, reply.json["code"]) == (413, "too_many_chunks")
    assert "larger chunks" in reply.json["error"]
