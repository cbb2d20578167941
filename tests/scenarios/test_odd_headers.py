"""Headers that no well-behaved client sends, on requests that are admitted, refused and passed through."""

import asyncio
import json

import pytest

from support.gate import running_gate
from support.scripted import Got, ScriptedOllama, whole

SHORT = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}], "stream": False}
LONG = {**SHORT, "messages": [{"role": "user", "content": "word " * 9000}]}
ODD = [
    b"X-Session-Id: \xff\xfe\x80",
    b"Authorization: Bearer \xff\xfe",
    b"x-api-key: \xe4\xf6\xfc",
    b"User-Agent: \xf0\x9f\x98\x80 \xff",
    b"x-ollama-gate-keep-alive: \xff",
    b"Content-Encoding: \xff",
    b"Content-Type: application/json; charset=\xff",
    b"Accept: " + b"x" * 6000,
    b"Origin: http://[::1",
    b"Origin: \xff://\xff",
    b"Expect: \xff",
    b"Connection: \xff, close",
    b"Host: \xff",
    b"Cookie: " + b"a=b; " * 1000,
]


@pytest.mark.parametrize("header", ODD, ids=lambda header: repr(header[:28]))
async def test_no_header_makes_the_gate_fail(header: bytes) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"done": True, "message": {"role": "assistant", "content": "x"}}))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        for path in ("/api/chat", "/v1/chat/completions", "/v1/messages", "/api/show", "/api/nowhere", "/gate/count"):
            for body in (SHORT, LONG):
                raw = json.dumps({**body, "max_tokens": 5}).encode()
                reader, writer = await asyncio.open_connection(*gate.address)
                own = b"" if header.startswith(b"Host") else b"Host: x\r\n"
                length = b"Content-Length: %d\r\n" % len(raw)
                close = b"" if header.startswith(b"Connection") else b"Connection: close\r\n"
                head = b"POST %b HTTP/1.1\r\n" % path.encode() + own + length + close + header
                writer.write(head + b"\r\n\r\n" + raw)
                status = (await asyncio.wait_for(reader.read(), 5)).split(b" ", 2)[1]
                writer.close()
                assert status not in (b"500", b"502", b"503"), (path, status)
