"""An error inside a stream that began with 200 is turned into a clean end, or the client hangs (9router#4119)."""

import asyncio
import json

import pytest

from support.cases import case
from support.gate import metric, running_gate
from support.http import Reply, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk, model

CHAT = case("29-midstream-error")
FIRST, ERROR = case("29-midstream-error.upstream")["native"]
MODELS = {"llama3.2:1b": model("llama3.2:1b")}


async def told(path: str, *, lost: bool) -> tuple[Reply, float, int]:
    """What a client gets of a stream with an error line in it, or of one that breaks off; errors counted; requests."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + chunk(FIRST))
        await writer.drain()
        if lost:
            writer.transport.abort()
        else:
            writer.write(chunk(ERROR) + LAST_CHUNK)

    async with ScriptedOllama(script, MODELS) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", path, CHAT)
        return reply, metric(gate, "upstream_errors_total", kind="upstream_broken"), len(ollama.got)


async def test_native_clients_get_the_error_line_as_it_is() -> None:
    reply, broken, requests = await told("/api/chat", lost=False)
    assert reply.body == (FIRST + ERROR).encode()
    assert reply.complete
    assert (broken, requests) == (0, 1)


async def test_v1_clients_get_an_error_event_and_no_end_mark() -> None:
    reply, _, requests = await told("/v1/chat/completions", lost=False)
    events = [line.removeprefix(b"data: ") for line in reply.body.split(b"\n\n") if line]
    assert json.loads(events[-1])["error"]["message"] == "runner stopped"
    assert json.loads(events[0])["choices"][0]["delta"]["content"] == "Once"
    assert b"[DONE]" not in reply.body
    assert requests == 1


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_a_lost_upstream_is_a_lost_connection_and_never_a_clean_end(path: str) -> None:
    reply, broken, requests = await told(path, lost=True)
    assert reply.status == 200
    assert not reply.complete
    assert b"[DONE]" not in reply.body
    assert b"Once" in reply.body
    assert (broken, requests) == (1, 1)
