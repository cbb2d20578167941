"""The recorded prompts and counts of a real Ollama (v0.33.0-rc2), and the models that they were made with."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ollama_gate.catalog.card import ModelCard, card_from_show
from ollama_gate.catalog.names import canonical
from ollama_gate.counting.measuring import Meter
from ollama_gate.counting.memo import MemoCounter
from ollama_gate.counting.rendering.local import LocalRenderer
from ollama_gate.counting.tokenizer import Tokenizer
from support.vocabularies import tokenizer

DATA = Path(__file__).parents[1] / "data" / "oracle"
VERSION = "0.33.0-rc2"
VOCABULARY = "gemma3-270m"
"""The vocabulary of every variant that chats."""


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    """All recorded requests."""
    return tuple(json.loads(line) for line in (DATA / "counts.jsonl").read_text("utf-8").splitlines())


@cache
def variants() -> Mapping[str, Any]:
    """All models, by name."""
    models: dict[str, Any] = json.loads((DATA / "models.json").read_text("utf-8"))["models"]
    return models


def show_of(variant: str) -> dict[str, Any]:
    """What /api/show said of a model."""
    model = variants()[variant]
    modelfile = [f"FROM /var/lib/ollama/blobs/{model['blob'].replace(':', '-')}"]
    modelfile += [f"{word.upper()} {model[word]}" for word in ("renderer", "parser") if model[word]]
    return {
        "modelfile": "\n".join(modelfile),
        "template": model["template"],
        "system": model["system"] or "",
        "messages": model["messages"] or [],
        "parameters": model["parameters"] or "",
        "capabilities": model["capabilities_show"],
        "details": model["details"],
        "model_info": model["model_info"],
    }


@cache
def card_of(variant: str) -> ModelCard:
    """The card of a model."""
    return card_from_show(canonical(variant), variant, variants()[variant]["digest"], show_of(variant))


@cache
def meter_of(variant: str) -> Meter:
    """What counts a chatting model's prompts, in this process."""
    # One engine serves all variants: their metadata differ in one key only.
    shared = tokenizer(VOCABULARY)
    told = variants()[variant]["model_info"].get("tokenizer.ggml.add_bos_token")
    assert isinstance(told, bool)
    own = Tokenizer(replace(shared.facts, adds_bos=told), shared.engine)
    card = card_of(variant)
    renderer = LocalRenderer.of(card, own.facts, version=VERSION)
    return Meter(card, renderer, own, MemoCounter(own, own.facts.split_set(card.template)))
