"""Requests that two servers could read as different ones: answered 400 once, the connection closed, nothing sent on."""

import asyncio
import json
from urllib.parse import quote

import pytest

from support.cases import Front, front
from support.http import Client, ask

HIDDEN = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"


def post(*lines: str, body: bytes = HIDDEN, version: str = "1.1") -> bytes:
    head = "\r\n".join([f"POST /api/nothing HTTP/{version}", "Host: localhost", *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + body


def chunks(raw: bytes) -> bytes:
    return post(CHUNKED, body=raw + HIDDEN)


END = b"0\r\n\r\n" + HIDDEN
ODD = {
    "length and chunked": post("Content-Length: 5", CHUNKED, body=END),
    "chunked and length": post(CHUNKED, "Content-Length: 5", body=END),
    "two lengths": post("Content-Length: 0", "Content-Length: 44"),
    "the same length twice": post("Content-Length: 0", "Content-Length: 0"),
    "a list of lengths": post("Content-Length: 0, 0"),
    "a length with a sign": post("Content-Length: +0"),
    "a length in hex": post("Content-Length: 0x0"),
    "a negative length": post("Content-Length: -1"),
    "an empty length": post("Content-Length: "),
    "a length with an underscore": post("Content-Length: 0_0"),
    "a length that overflows": post("Content-Length: 99999999999999999999999"),
    "chunked in two headers": post(CHUNKED, CHUNKED, body=END),
    "chunked twice": post("Transfer-Encoding: chunked, chunked", body=END),
    "identity": post("Transfer-Encoding: identity"),
    "a coding nobody knows": post("Transfer-Encoding: xchunked", body=END),
    "chunked not last": post("Transfer-Encoding: chunked, identity", body=END),
    "chunked behind a control character": post("Transfer-Encoding: \x0bchunked", body=END),
    "a space before the colon": post("Transfer-Encoding : chunked", body=END),
    "chunked in HTTP/1.0": post(CHUNKED, body=END, version="1.0"),
    "a folded header": post("X: a\r\n Content-Length: 44"),
    "line feeds alone": post("Content-Length: 0", body=b"").replace(b"\r", b"") + HIDDEN,
    "one line feed alone": post("X: a\nContent-Length: 44"),
    "a carriage return alone": post("X: a\rContent-Length: 44"),
    "a NUL": post("X: a\0b"),
    "a space in a name": post("X Y: a"),
    "no name": post(": a"),
    "no colon": post("nothing"),
    "two hosts": post("Host: other.example"),
    "a chunk size in 0x": chunks(b"0x0\r\n\r\n"),
    "a chunk size with a sign": chunks(b"+0\r\n\r\n"),
    "a negative chunk size": chunks(b"-1\r\n\r\n"),
    "a space before a chunk size": chunks(b" 0\r\n\r\n"),
    "a space after a chunk size": chunks(b"0 \r\n\r\n"),
    "no chunk size": chunks(b"\r\n0\r\n\r\n"),
    "line feeds in chunks": chunks(b"0\n\n"),
    "a line feed in an extension": chunks(b"2;a\nxx\r\nab\r\n0\r\n\r\n"),
    "a chunk size that overflows": chunks(b"FFFFFFFFFFFFFFFFFF\r\nab\r\n0\r\n\r\n"),
    "a chunk longer than it says": chunks(b"2\r\nabXX0\r\n\r\n"),
    "a length among the trailers": chunks(b"0\r\nContent-Length: 44\r\n\r\n"),
    "another version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "a NUL in the target": b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "a line feed in the target": b"GET /a\nb HTTP/1.1\r\nHost: localhost\r\n\r\n" + HIDDEN,
    "HTTP/0.9": b"GET /\r\n\r\n" + HIDDEN,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no HTTP at all": b"\xff\xfe\xfd\r\n\r\n",
    "too many headers": post(*[f"X{number}: a" for number in range(200)]),
    "a long header": post("X: " + "a" * 70_000),
    "a long target": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


async def everything(line: Front, raw: bytes) -> bytes:
    """All that comes back until the gate closes the connection."""
    async with asyncio.timeout(10), await Client.connect(line.gate.address) as client:
        client.writer.write(raw)
        return await client.reader.read()


@pytest.mark.parametrize("name", ODD)
async def test_what_can_be_read_in_two_ways_is_not_read_at_all(name: str) -> None:
    async with front() as line:
        answer = await everything(line, ODD[name])
        reached = [entry.target for entry in line.ollama.journal]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 Bad Request" in head.split(b"\r\n")[0]
    assert answer.count(b"HTTP/1.") == 1, answer
    told = json.loads(body)
    assert (told["code"], told["type"]) == ("invalid_http", "invalid_request_error")
    assert told["error"].startswith("the request breaks the rules of HTTP: ")
    assert len(told["error"]) < 250
    assert "a" * 100 not in told["error"]
    assert not {"/smuggled", "/api/nothing"} & set(reached)


async def test_https_on_the_http_port_is_told() -> None:
    async with front() as line:
        answer = await everything(line, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert b"speaks HTTP, not HTTPS" in answer


async def test_http_2_is_told_what_is_spoken_here() -> None:
    async with front() as line:
        answer = await everything(line, ODD["HTTP/2"])
    assert b"does not speak HTTP/2" in answer


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
async def test_nothing_is_tunnelled(method: str) -> None:
    target = "other.example:443" if method == "CONNECT" else "/"
    raw = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + HIDDEN
    async with front() as line:
        answer = await everything(line, raw)
        assert "/smuggled" not in [entry.target for entry in line.ollama.journal]
    assert answer.count(b"HTTP/1.") == 1
    assert b" 405 " in answer.split(b"\r\n")[0]


async def test_a_body_is_never_a_request() -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        await client.send("POST", "/api/nothing", HIDDEN)
        first = await client.rest(await client.head())
        await client.send("GET", "/api/version")
        second = await client.rest(await client.head())
        targets = [entry.target for entry in line.ollama.journal]
    assert (first.status, second.status) == (404, 200)
    assert "/smuggled" not in targets


INJECTED = "x\r\nSet-Cookie: injected=1\r\n\r\nHTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("target", "headers", "model"),
    [
        (f"/gate/{quote(INJECTED)}", {}, "x"),
        (f"/api/{quote(INJECTED)}", {}, "x"),
        (f"/v1/models/{quote(INJECTED)}", {}, "x"),
        (f"/api/chat?{quote(INJECTED)}", {}, INJECTED),
        ("/api/chat", {}, INJECTED),
        ("/v1/chat/completions", {}, INJECTED),
        ("/v1/messages", {}, INJECTED),
        ("/api/chat", {"x-ollama-gate-keep-alive": "5m\tx"}, "qwen2.5:0.5b"),
        ("/api/chat", {"Origin": "https://a.example\tb"}, "qwen2.5:0.5b"),
    ],
)
async def test_nothing_that_is_echoed_becomes_a_header(target: str, headers: dict[str, str], model: str) -> None:
    odd = {"num_ctx": 5, "Set-Cookie: a\r\nb": 1, "num_batch": "\r\nSet-Cookie: injected=1"}
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": False}
    async with front(server={"origins": ["*"]}) as line:
        reply = await ask(line.gate.address, "POST", target, {**body, "options": odd}, headers)
        again = await ask(line.gate.address, "GET", target, None, headers)
    for one in (reply, again):
        assert one.complete
        assert one.header("Set-Cookie") is None
        assert all("\n" not in value and "\r" not in value for _, value in one.headers)
        assert one.status < 500
