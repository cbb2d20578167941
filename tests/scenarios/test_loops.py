"""An agent that goes round: it is told so after some rounds, and nobody else is."""

import asyncio

from support.gate import running_gate
from support.http import ask
from support.scripted import Got, ScriptedOllama, whole


async def script(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(whole({"done": True}))


async def test_an_agent_that_names_its_conversation_and_never_shrinks_is_stopped() -> None:
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, refusals={"grace": False}) as gate:
        codes = []
        for turn in range(8):
            body = {
                "model": "llama3.2",
                "messages": [
                    {"role": "system", "content": "x" * 30_000},
                    {"role": "user", "content": f"summary {turn} of what we did; continue"},
                ],
            }
            headers = {"x-session-id": "ses_1"}
            reply = await ask(gate.address, "POST", "/v1/chat/completions", body, headers)
            assert reply.status == 400
            codes.append(reply.json["error"]["code"])
            plain = await ask(gate.address, "POST", "/v1/chat/completions", body)
            assert plain.json["error"]["code"] == "context_length_exceeded"
        assert codes == ["context_length_exceeded"] * 5 + ["prompt_cannot_fit"] * 3
        assert ollama.got == []


async def test_rounds_that_are_the_same_to_the_byte_are_rounds_too() -> None:
    """opencode compacts to the same few messages each time, faster than a repeated refusal is forgotten."""
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, refusals={"grace": False}) as gate:
        codes = []
        for summary in ("none yet", *["the same as before"] * 6):
            body = {"model": "llama3.2", "messages": [{"role": "user", "content": summary + "x" * 30_000}]}
            reply = await ask(gate.address, "POST", "/v1/chat/completions", body, {"x-session-id": "ses_1"})
            codes.append(reply.json["error"]["code"])
    assert codes == ["context_length_exceeded"] * 5 + ["prompt_cannot_fit"] * 2
