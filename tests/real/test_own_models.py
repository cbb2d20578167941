"""Counts for models that nobody recorded: those that OLLAMA_GATE_REAL_MODELS names, separated by commas."""

import os

import pytest

from support.http import ask
from support.oracle import rows
from support.real import SUITE, direct, gate_before, needed

pytestmark = SUITE
NAMED = [name for name in os.environ.get("OLLAMA_GATE_REAL_MODELS", "").split(",") if name]
LONGEST = 700
"""Tokens of the longest prompt that is taken; large models on small machines take their time."""


@pytest.mark.parametrize("model", NAMED or [""])
async def test_conversations_are_counted_exactly(model: str) -> None:
    if not model:
        pytest.skip("names no models of your own: set OLLAMA_GATE_REAL_MODELS, for example to qwen3:8b,llama3.1:8b")
    await needed(model)
    capabilities = (await direct("POST", "/api/show", {"model": model})).json["capabilities"]
    source = "gate-tools" if "tools" in capabilities else "gemma3:270m"
    counted, wrong = 0, []
    async with gate_before(model, 4096) as gate:
        for row in rows():
            if (row["model_variant"], row["endpoint"]) != (source, "/api/chat") or row["prompt_eval_count"] > LONGEST:
                continue
            request = {**row["request"], "model": model}
            told = await ask(gate.address, "POST", "/gate/count", request)
            answer = await ask(
                gate.address, "POST", "/api/chat", {**request, "options": {"num_predict": 1}, "stream": False}
            )
            if answer.status == told.status == 400:
                continue  # a template may refuse a conversation; then both say so
            counted += 1
            exact = (told.json.get("tokens"), told.json.get("rung")) == (answer.json.get("prompt_eval_count"), "exact")
            if not exact:
                wrong.append(f"{row['id']} {row['kind']}: {told.json}, and Ollama: {answer.json}")
    assert counted
    assert not wrong, "\n".join(wrong)
