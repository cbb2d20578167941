"""A picture as base64 is counted as text and refused (OmniRoute#8368, codex#12419, agent-core#271)."""

import io
import json
from typing import Any

from ollama_gate.rehearsal import Fault
from support.cases import case, front

PARTS = case("08-inline-image")
PNG = PARTS["messages"][0]["content"][1]["image_url"]["url"].partition(",")[2].rstrip("=")
PADDED = PNG + "A" * (2_000_000 - len(PNG))
QUESTION = PARTS["messages"][0]["content"][0]["text"]


def openai() -> dict[str, Any]:
    content = [
        {"type": "text", "text": QUESTION},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PADDED}"}},
    ]
    return {"model": "gemma3:4b", "stream": False, "messages": [{"role": "user", "content": content}]}


def native(model: str = "gemma3:4b") -> dict[str, Any]:
    return {"model": model, "stream": False, "messages": [{"role": "user", "content": QUESTION, "images": [PADDED]}]}


async def test_a_picture_costs_what_a_picture_costs_and_not_its_bytes(written_log: io.StringIO) -> None:
    async with front(defaults={"image_tokens": 256}) as line:
        counted = await line.ask("/gate/count", native())
        for path, body in (("/api/chat", native()), ("/v1/chat/completions", openai())):
            reply = await line.ask(path, body)
            assert reply.status == 200, reply.body
            assert line.got()[-1].json()["messages"][-1]["images"] == [PADDED]
    assert counted.json["parts"]["media"] == 256
    assert counted.json["tokens"] < 256 + 40
    assert counted.json["rung"] == "estimate"
    log = written_log.getvalue()
    assert "AAAA" not in log
    assert QUESTION not in log


async def test_until_it_is_learned_a_picture_is_taken_as_ollama_takes_it() -> None:
    async with front() as line:
        counted = await line.ask("/gate/count", native())
    assert counted.json["parts"]["media"] == 768


async def test_a_model_without_eyes_leaves_the_answer_to_ollama() -> None:
    async with front() as line:
        reply = await line.ask("/api/chat", native("llama3.2:1b"))
        straight = await line.straight("/api/chat", native("llama3.2:1b"))
    assert reply.status == straight.status == 400
    assert json.loads(reply.body) == json.loads(straight.body)


async def test_a_failing_request_does_not_put_the_picture_into_the_log(written_log: io.StringIO) -> None:
    async with front(faults=(Fault("cut", path="/api/chat"),)) as line:
        await line.ask("/api/chat", native())
    assert "AAAA" not in written_log.getvalue()
