"""Requests at random: where the gate calls a count exact, it is Ollama's.

Every model of the recorded ones that this Ollama has gets OLLAMA_GATE_REAL_REQUESTS (100) requests, made from
OLLAMA_GATE_REAL_SEED (1). The window is small and most prompts are made longer than it, so that they cost nothing:
llama-server refuses them and says how many tokens they have. The others are run.
"""

import json
import os
from itertools import islice
from typing import Any

import pytest

from ollama_gate.app import Gate
from ollama_gate.counting.roles import Roles, strange
from ollama_gate.dialects import native
from support.http import Reply, ask
from support.oracle import variants
from support.random_requests import Requests
from support.real import SUITE, THREADS, direct, gate_before, needed

pytestmark = SUITE
SEED = os.environ.get("OLLAMA_GATE_REAL_SEED", "1")
NUMBER = int(os.environ.get("OLLAMA_GATE_REAL_REQUESTS", "100"))
WINDOW = 256
STRICT = {
    "truncate": False,
    "shift": False,
    "stream": False,
    "options": {"num_ctx": WINDOW, "num_predict": 1, **THREADS},
}
EMBED = {"truncate": False, "options": {"num_ctx": WINDOW, **THREADS}}
RUN_ONE_IN = 12
FILLER = "0123456789" * 30
"""More tokens than the window has, in the recorded models' vocabularies."""
NOT_SENT = {"invalid_json", "ambiguous_keys", "invalid_request"}
"""Codes of what the gate refuses though Ollama may not: a number beyond a double in a field that Ollama drops, and
messages where a prompt belongs."""


@pytest.mark.parametrize("model", sorted(variants()))
async def test_what_is_called_exact_is_ollamas_own_count(model: str) -> None:
    await needed(model)
    show = (await direct("POST", "/api/show", {"model": model})).json
    thinks = "thinking" in show["capabilities"] or "PARSER" in show["modelfile"]
    compared, wrong = 0, []
    async with gate_before(model, WINDOW, fresh=True) as gate:
        made = islice(Requests(f"{SEED} {model}", show["capabilities"]), NUMBER)
        for number, (path, asked) in enumerate(made):
            body = {"model": model, **(longer(asked) if number % RUN_ONE_IN else asked)}
            told = await ask(gate.address, "POST", f"/gate/count?route={path}", body)
            sent = await heard(gate, path, body) if told.status == 200 else body
            real = await direct("POST", path, {**sent, **(EMBED if path == "/api/embed" else STRICT)})
            tokens = evaluated(real)
            if thinks and body.get("format"):
                continue  # Ollama runs twice and reports the second run
            if told.status != 200:
                if tokens is not None and told.json["code"] not in NOT_SENT:
                    wrong.append(f"refused here, {tokens} there: {told.json} for {json.dumps(body)}")
                continue
            if tokens is None:
                continue  # llama-server could make no grammar of the tools, or the like
            compared += 1
            if (told.json["tokens"], told.json["rung"]) != (tokens, "exact"):
                wrong.append(f"{told.json}, and {tokens} there, for {json.dumps(body)}")
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n".join(wrong)
    assert compared > NUMBER // 4
    print(f"{model}: {compared} compared")


async def heard(gate: Gate, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request with the roles that the gate gives its messages, for a model whose prompt knows no developer."""
    card = await gate.wiring.catalog.card(body["model"])
    assert card is not None
    request = native.parse(path, body)
    known, roles = Roles(), strange(request, card)
    if learn := known.to_learn(card, roles):
        known.learn(learn())
    return dict(known.heard(request, card, roles).body) if roles else body


def longer(body: dict[str, Any]) -> dict[str, Any]:
    """The same request with a text in it that alone is longer than the window."""
    if body.get("prompt"):
        return {**body, "prompt": body["prompt"] + FILLER}
    talk = body.get("messages") or []
    asked = [at for at, message in enumerate(talk) if message.get("role") == "user" and message.get("content")]
    if not asked:
        return body
    at = asked[-1]
    return {**body, "messages": [*talk[:at], {**talk[at], "content": talk[at]["content"] + FILLER}, *talk[at + 1 :]]}


def evaluated(reply: Reply) -> int | None:
    """Tokens of a prompt as Ollama or llama-server tells them; 0 without a prompt, None for one it did not get to."""
    answer: Any = reply.json if reply.body else {}
    if reply.status == 200:
        return int(answer.get("prompt_eval_count", 0))
    try:
        return int(json.loads(answer["error"])["error"]["n_prompt_tokens"])
    except (KeyError, TypeError, ValueError):
        return None
