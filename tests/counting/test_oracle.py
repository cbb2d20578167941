"""Every recorded request of a real Ollama: the text made here is its text, the count is its prompt_eval_count."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from ollama_gate.catalog.card import Mode
from ollama_gate.counting import bound
from ollama_gate.counting.bound import TemplateCost
from ollama_gate.dialects import native
from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest
from ollama_gate.wire.body import decode_json
from support.oracle import card_of, meter_of, rows
from support.vocabularies import tokenizer

RECORDED_ON = datetime(2026, 11, 30, 12).astimezone()
LOCAL = (Mode.GO_TEMPLATE, Mode.JINJA, Mode.CHATML)

pytestmark = [pytest.mark.vocab, pytest.mark.xdist_group("gemma3-270m")]


def _request(row: Mapping[str, Any]) -> InferenceRequest:
    # Through the gate's own decoder, because rows hold lone surrogates.
    import json  # noqa: PLC0415 - orjson would refuse them

    raw = json.dumps(row["request"]).encode()
    return native.parse(row["endpoint"], decode_json(raw))


@cache
def _cost(variant: str) -> TemplateCost:
    meter = meter_of(variant)
    if meter.renderer.why:
        return TemplateCost()
    return bound.measure(lambda body: meter.renderer.probe(body, RECORDED_ON))


CHAT_ROWS = [row for row in rows() if row["endpoint"] != "/api/embed"]
LOCAL_ROWS = [
    row
    for row in CHAT_ROWS
    if (card_of(row["model_variant"]).mode in LOCAL or row["request"].get("raw")) and not row["request"].get("context")
]


def test_most_rows_are_rendered_here() -> None:
    assert len(CHAT_ROWS) == 243
    assert len(LOCAL_ROWS) >= 125


@pytest.mark.parametrize("row", LOCAL_ROWS, ids=lambda row: row["id"])
def test_text_made_here_is_ollamas_and_so_is_the_count(row: Mapping[str, Any]) -> None:
    meter, request = meter_of(row["model_variant"]), _request(row)
    assert meter.renderer.text(request, RECORDED_ON) == row["rendered"]
    assert meter.here(request, RECORDED_ON) == (row["prompt_eval_count"], 0)


@pytest.mark.parametrize("row", CHAT_ROWS, ids=lambda row: row["id"])
def test_count_of_ollamas_text_is_prompt_eval_count(row: Mapping[str, Any]) -> None:
    meter, request = meter_of(row["model_variant"]), _request(row)
    assert meter.asked(row["rendered"], request) == (row["prompt_eval_count"], 0)


@pytest.mark.parametrize("row", CHAT_ROWS, ids=lambda row: row["id"])
def test_bounds_hold(row: Mapping[str, Any]) -> None:
    meter, request = meter_of(row["model_variant"]), _request(row)
    size = bound.most_bytes(request, _cost(row["model_variant"]))
    if size is not None:
        assert len(row["rendered"].encode()) <= size[0]
        most = meter.tokenizer.facts.byte_bound(size[0])
        assert most is not None
        assert row["prompt_eval_count"] <= most
    assert bound.at_least(request, meter.tokenizer.facts.bytes_per_token) <= row["prompt_eval_count"]


@pytest.mark.parametrize("row", LOCAL_ROWS, ids=lambda row: row["id"])
def test_parts_add_up(row: Mapping[str, Any]) -> None:
    meter, request = meter_of(row["model_variant"]), _request(row)
    parts = meter.parts(request, row["prompt_eval_count"], 0, RECORDED_ON)
    assert parts.messages + parts.tools + parts.template + parts.media == row["prompt_eval_count"]
    assert min(parts.messages, parts.tools, parts.template, parts.media) >= 0
    assert (parts.tools > 0) == bool(row["request"].get("tools")) or "tools" not in card_of(
        row["model_variant"]
    ).template.lower()


@pytest.mark.parametrize("row", [row for row in rows() if row["endpoint"] == "/api/embed"], ids=lambda row: row["id"])
def test_inputs_of_an_embedder(row: Mapping[str, Any]) -> None:
    texts = native.inputs(_request(row))
    bert = tokenizer("bert-bge")
    counts = [tokens + bert.facts.adds for tokens in bert.count(texts)]
    assert sum(counts) == row["prompt_eval_count"]
    if row.get("per_item"):
        assert counts == row["per_item"]


@pytest.mark.parametrize("row", [row for row in rows() if row["request"].get("context")], ids=lambda row: row["id"])
def test_context_tokens_are_left_to_ollama(row: Mapping[str, Any]) -> None:
    with pytest.raises(RenderError):
        meter_of(row["model_variant"]).renderer.text(_request(row), RECORDED_ON)
