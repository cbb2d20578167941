"""Signals through the whole gate: a clock in the system prompt is seen in every dialect, and in the metrics."""

from collections.abc import Callable
from typing import Any

import pytest

from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import metric, running_gate
from support.http import ask

Json = dict[str, Any]
MODEL = "registry.ollama.ai/library/rehearsal-go:latest"


def talk(turns: int) -> list[Json]:
    words = "what the keeper of the ferry wrote down that day " * 6
    pairs = [
        [{"role": "user", "content": f"{at} {words}"}, {"role": "assistant", "content": f"{words} {at}"}]
        for at in range(turns)
    ]
    return [*(message for pair in pairs for message in pair), {"role": "user", "content": f"And on day {turns}?"}]


def native(system: str, messages: list[Json]) -> Json:
    return {"messages": [{"role": "system", "content": system}, *messages], "stream": False}


def anthropic(system: str, messages: list[Json]) -> Json:
    return {"system": system, "messages": messages, "max_tokens": 8}


def responses(system: str, messages: list[Json]) -> Json:
    return {"instructions": system, "input": messages, "stream": False}


BODIES: dict[str, Callable[[str, list[Json]], Json]] = {
    "/api/chat": native,
    "/v1/chat/completions": native,
    "/v1/messages": anthropic,
    "/v1/responses": responses,
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_clock_in_the_system_prompt_is_seen_in_every_dialect(path: str) -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:

        async def turn(system: str, turns: int) -> str | None:
            body = {"model": "rehearsal-go", **BODIES[path](system, talk(turns))}
            reply = await ask(gate.address, "POST", path, body)
            assert reply.status == 200, reply.body
            return reply.header("x-ollama-gate-signals")

        assert await turn("You keep books. It is 12:01.", 20) is None
        assert await turn("You keep books. It is 12:01.", 21) is None
        broken = await turn("You keep books. It is 12:02.", 22)
        assert await turn("You keep books. It is 12:02.", 23) is None
        counted = metric(gate, "signals_total", model=MODEL, signal="prefix-break")
    assert broken is not None
    assert broken.startswith("prefix-break=")
    assert broken.endswith(" (messages[0])")
    assert counted == 1
