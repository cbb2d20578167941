"""A proxy between client and gate that would keep a stream back until it is over."""

import asyncio
import json

import pytest

from support.gate import running_gate
from support.http import ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk

CHAT = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 9}
END = b'{"message":{"role":"assistant","content":"x"},"done":true,"prompt_eval_count":7,"eval_count":3}\n'


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/pull"])
async def test_a_proxy_is_told_not_to_keep_a_stream_back(path: str, version: str) -> None:
    # nginx speaks HTTP/1.0 to the gate unless it is told otherwise.
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + chunk(END) + LAST_CHUNK)

    body = json.dumps({**CHAT, "input": "hi"}).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reader, writer = await asyncio.open_connection(*gate.address)
        writer.write(head.encode() + body)
        told = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")[0].splitlines()
        writer.close()
        whole = await ask(gate.address, "GET", "/api/version")
    assert told[0] == b"HTTP/%b 200 OK" % version.encode()
    assert b"X-Accel-Buffering: no" in told
    assert whole.header("X-Accel-Buffering") is None
