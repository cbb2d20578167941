"""A model that may forget the beginning of a conversation while it answers keeps its rules: `shift = true`."""

import re
from typing import Any

import pytest

from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import running_gate
from support.http import ask

RULES = "Answer in French, whatever you are asked, and never name your sources. " * 3
CHAT: dict[str, Any] = {
    "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": "write 400 tokens"}],
    "stream": False,
    "options": {"num_predict": 400},
}


@pytest.mark.parametrize("model", ["rehearsal-go", "rehearsal-thinking", "rehearsal-bos", "rehearsal-renderer"])
async def test_the_system_prompt_outlives_a_shift(model: str) -> None:
    models = {model: {"num_ctx": 256, "budget": 200, "shift": True}}
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, models=models) as gate:
        body = {**CHAT, "model": model}
        reply = await ask(gate.address, "POST", "/api/chat", body)
        assert reply.status == 200
        head = {**body, "messages": CHAT["messages"][:1]}
        counted = (await ask(gate.address, "POST", "/gate/count", head)).json["tokens"]
        [entry] = [one for one in ollama.journal.to("/api/chat") if one.generated]
    kept = [int(found[1]) for note in entry.notes if (found := re.search(r"forgotten after the first (\d+)", note))]
    assert kept, "nothing was forgotten: the test shows nothing"
    assert counted - 12 <= entry.json()["options"]["num_keep"] <= min(kept)


@pytest.mark.parametrize(("asked", "sent"), [(4, None), (9999, 9999), (-1, -1)])
async def test_a_client_may_keep_more(asked: int, sent: int | None) -> None:
    models = {"rehearsal-go": {"shift": True}}
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, models=models) as gate:
        body = {**CHAT, "model": "rehearsal-go", "options": {"num_keep": asked, "num_predict": 1}}
        assert (await ask(gate.address, "POST", "/api/chat", body)).status == 200
        [entry] = [one for one in ollama.journal.to("/api/chat") if one.generated]
    kept = entry.json()["options"]["num_keep"]
    assert kept == sent if sent is not None else kept > 20
