"""Every recorded prompt, asked of a real Ollama again: what the gate counts is what Ollama evaluates."""

import pytest

from support.http import ask
from support.oracle import rows, variants
from support.real import SUITE, gate_before, needed

pytestmark = SUITE
VARIANTS = sorted({row["model_variant"] for row in rows()})
NUM_CTX = 16384
"""The window that the rows were recorded with; the longest prompt has 7880 tokens."""


@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_count_is_exact_and_is_what_ollama_evaluates(variant: str) -> None:
    digest = await needed(variant)
    as_recorded = digest == variants()[variant]["digest"]
    wrong: list[str] = []
    async with gate_before(variant, NUM_CTX, fresh=True) as gate:
        for row in rows():
            if row["model_variant"] != variant:
                continue
            path, request = row["endpoint"], {**row["request"], "model": variant}
            told = (await ask(gate.address, "POST", f"/gate/count?route={path}", request)).json
            options = {} if path == "/api/embed" else {"options": {"num_predict": 1}, "stream": False}
            answer = await ask(gate.address, "POST", path, {**request, **options})
            evaluated = answer.json.get("prompt_eval_count", answer.json)
            counts = [told.get("tokens"), evaluated]
            if as_recorded and not row.get("date_dependent"):
                counts.append(row["prompt_eval_count"])
            if len(set(map(str, counts))) > 1 or told.get("rung") != "exact":
                wrong.append(f"{row['id']} {row['kind']}: counted, evaluated, recorded {counts}; {told}")
    assert not wrong, "\n".join(wrong)
