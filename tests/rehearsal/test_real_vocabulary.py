"""With a real vocabulary and template, the rehearsal counts, refuses and answers with the recorded numbers."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.rehearsal import Model, Rehearsal, Settings
from support.rawhttp import exchange
from support.recorded import recording, recordings
from support.vocabularies import vocabulary_file

ORACLE = Path(__file__).parents[1] / "data" / "oracle"
VARIANTS: dict[str, Any] = json.loads((ORACLE / "models.json").read_text("utf-8"))["models"]
NATIVE = {name: one for name, one in VARIANTS.items() if one["mode"] == "gguf_chat_template"}
ROWS: list[dict[str, Any]] = [
    row
    for line in (ORACLE / "counts.jsonl").read_text("utf-8").splitlines()
    if (row := json.loads(line))["model_variant"] in NATIVE
]

pytestmark = [pytest.mark.vocab, pytest.mark.slow, pytest.mark.xdist_group("gemma3-270m")]


def model(name: str, variant: dict[str, Any]) -> Model:
    """A recorded variant: its own jinja template over Gemma 3's vocabulary."""
    return Model(
        f"{name}:latest",
        text=variant["template"],
        gguf=str(vocabulary_file("gemma3-270m")),
        capabilities=tuple(variant["capabilities_show"]),
        context_length=32768,
        info={"tokenizer.ggml.add_bos_token": variant["tokenizer_adds_bos"]},
        system=variant["system"] or "",
        messages=tuple(variant["messages"] or ()),
        parameters={"num_ctx": 256} if name == "gate-native-small" else {},
    )


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    models = tuple(model(name, variant) for name, variant in NATIVE.items())
    async with Rehearsal(Settings(models=models, context_length=2048)) as rehearsal:
        yield rehearsal


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_counts_are_those_of_the_oracle(upstream: Rehearsal, row: dict[str, Any]) -> None:
    limits = {"stream": False, "truncate": False, "options": {"num_ctx": 16384, "num_predict": 1}}
    body = json.dumps({**row["request"], **limits}).encode()
    shown = json.dumps({**row["request"], **limits, "_debug_render_only": True}).encode()
    rendered = json.loads((await exchange(upstream.url, "POST", row["endpoint"], body=shown)).body)
    assert rendered["_debug_info"]["rendered_template"] == row["rendered"]
    answer = json.loads((await exchange(upstream.url, "POST", row["endpoint"], body=body)).body)
    assert answer["prompt_eval_count"] == row["prompt_eval_count"]


@pytest.mark.parametrize("name", recordings("edge-native-mode-*", "over-native-mode-*"))
async def test_recorded_windows_hold_to_the_token(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    answer = await exchange(upstream.url, recorded.method, recorded.path, body=recorded.body)
    assert answer.status == recorded.status
    ours, theirs = json.loads(answer.body), json.loads("".join(recorded.chunks))
    if "roles must alternate" in theirs.get("error", ""):
        return
    assert ours.get("error") == theirs.get("error")
    assert ours.get("prompt_eval_count") == theirs.get("prompt_eval_count")
    assert ours.get("_debug_info") == theirs.get("_debug_info")
