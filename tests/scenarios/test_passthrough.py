"""Everything that is not inference: unchanged both ways, streamed, of any size; and no spelling gets past the guard."""

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import metric, running_gate
from support.http import Client, Reply, ask
from support.raw_ollama import raw_ollama
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk, whole

BLOB = b"weights" * 1000
DIGEST = f"sha256:{hashlib.sha256(BLOB).hexdigest()}"
REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("HEAD", "/", None),
    ("GET", "/api/version", None),
    ("HEAD", "/api/version", None),
    ("HEAD", "/api/tags", None),
    ("GET", "/api/ps", None),
    ("HEAD", "/api/ps", None),
    ("GET", "/api/status", None),
    ("POST", "/api/show", {"name": "rehearsal", "verbose": True}),
    ("POST", "/api/show", {"model": "nowhere"}),
    ("POST", "/api/pull", {"model": "rehearsal"}),
    ("POST", "/api/pull", {"model": "rehearsal", "stream": False}),
    ("POST", "/api/pull", {"model": "nowhere"}),
    ("POST", "/api/push", {"model": "rehearsal"}),
    ("POST", "/api/create", {"model": "mine", "from": "rehearsal", "system": "Be kind."}),
    ("POST", "/api/copy", {"source": "rehearsal", "destination": "other"}),
    ("POST", "/api/copy", {"source": "nowhere", "destination": "other"}),
    ("DELETE", "/api/delete", {"model": "nowhere"}),
    ("DELETE", "/api/delete", {"model": "rehearsal-go"}),
    ("HEAD", f"/api/blobs/{DIGEST}", None),
    ("POST", f"/api/blobs/{DIGEST}", BLOB),
    ("POST", f"/api/blobs/{DIGEST}", b"other"),
    ("GET", "/v1/models", None),
    ("GET", "/api/chat", None),
    ("PUT", "/api/chat", {"model": "rehearsal"}),
    ("GET", "/api/nowhere", None),
    ("POST", "/nowhere", {"x": 1}),
    ("GET", "/favicon.ico", None),
    ("POST", "/api/tokenize", {}),
    ("POST", "/api/chat/", {"model": "rehearsal"}),
    ("GET", "/api/tags/?x=1", None),
    ("PATCH", "/api/tags", None),
    ("POST", "//api/chat", {"model": "rehearsal", "messages": []}),
    ("POST", "/api/./chat", {"model": "rehearsal", "messages": []}),
    ("POST", "/api/x/../chat", {"model": "rehearsal", "messages": []}),
    ("POST", "/API/CHAT", {"model": "rehearsal", "messages": []}),
]


@pytest.fixture
async def ollama() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Settings()) as rehearsal:
        yield rehearsal


def _steady(body: bytes) -> list[bytes]:
    """A body without the times in it."""
    return [line for line in body.split(b",") if not any(word in line for word in (b"_at", b"digest"))]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: f"{one[0]} {one[1][:24]}")
async def test_each_route_is_answered_as_ollama_answers_it(request_: tuple[str, str, Any]) -> None:
    method, target, body = request_
    async with Rehearsal(Settings()) as one, Rehearsal(Settings()) as other, running_gate(other.url) as gate:
        straight = await ask(("127.0.0.1", one.port), method, target, body, {"Host": "localhost"})
        through = await ask(gate.address, method, target, body)
        passed = metric(gate, "passthrough_requests_total", status=str(straight.status))
    assert (through.status, through.reason) == (straight.status, straight.reason)
    for header in ("Content-Type", "Content-Length", "Location", "Allow"):
        assert through.header(header) == straight.header(header), header
    assert _steady(through.body) == _steady(straight.body)
    assert through.complete
    assert method == "HEAD" or through.header("Transfer-Encoding") == straight.header("Transfer-Encoding")
    assert passed == 1


GUARDED = ["/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/v1/chat/completions", "/v1/messages"]
SPELLINGS = [
    *("/api/%63hat", "/%61pi/chat", "/api%2Fchat", "/api%2fchat", "/api/chat?x=1", "/api/chat?", "/%2561pi/chat"),
    *("http://localhost/api/chat", "http://gate.test:1/api/chat?x=y", "/api/chat#frag", "/api/c%68at#?x"),
    *("/v1/chat%2Fcompletions", "/v1%2Fmessages", "/v1/%72esponses", "/v1/audio%2Ftranscriptions"),
    *("/api/./chat", "/api/../api/chat", "//api/chat", "/api//chat", "/api/chat/", "/api/chat/.", "/;/api/chat"),
    *("/api/chat;x=1", "/api/chat%00", "/api/chat%20", "/api/chat%2F", "/api/chat%3Fx", "/API/chat", "/api/chat\\"),
    *("/api/%43hat", "/api/\u00e7hat", "/%zz/api/chat", "/api/chat%"),
]


@pytest.mark.parametrize("target", ["/api/%63hat", "/api%2Fchat", "/api/chat?x=1"])
async def test_ollama_itself_runs_other_spellings_and_cuts(target: str, ollama: Rehearsal) -> None:
    long = {"model": "rehearsal-small", "messages": [{"role": "user", "content": "word " * 600}], "stream": False}
    reply = await ask(("127.0.0.1", ollama.port), "POST", target, long, {"Host": "localhost"})
    assert (reply.status, reply.json["prompt_eval_count"] < 256) == (200, True)


@pytest.mark.parametrize("target", SPELLINGS)
async def test_no_spelling_of_a_guarded_path_gets_a_cut_prompt_past_the_guard(target: str, ollama: Rehearsal) -> None:
    long = {"model": "rehearsal-small", "prompt": "x", "messages": [{"role": "user", "content": "word " * 600}]}
    async with running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", target, {**long, "input": "word " * 600, "stream": False})
    ran = [entry for entry in ollama.journal if entry.prompt_tokens is not None]
    assert not ran, (target, reply.status)
    assert reply.status >= 300


@pytest.mark.parametrize("path", GUARDED)
async def test_a_guarded_path_is_guarded_in_any_percent_encoding(path: str, ollama: Rehearsal) -> None:
    async with running_gate(ollama.url) as gate:
        for at in range(1, len(path)):
            target = f"{path[:at]}%{ord(path[at]):02X}{path[at + 1 :]}"
            reply = await ask(gate.address, "POST", target, "{")
            assert (reply.status, reply.gate("verdict")) == (400, "refuse"), target
    assert all(entry.method == "GET" for entry in ollama.journal)


async def test_bytes_headers_and_query_arrive_as_they_were_sent() -> None:
    body = gzip.compress(b"not for the gate to look at")
    target = "/api/nowhere/%41%2f?ts=1&a=b&a=c&x=%20y+z&e=&f"

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(body, 418, "I am a teapot", "image/png").replace(b"\r\n\r\n", b"\r\nX-Own: 1\r\n\r\n", 1))

    headers = {
        "Host": "gate.example.org",
        "Origin": "https://app.example.org",
        "Authorization": "Bearer secret",
        "Cookie": "a=b",
        "Content-Type": "application/octet-stream",
        "Content-Encoding": "gzip",
        "Accept-Encoding": "br",
        "X-Client": "Grüße",
        "Connection": "close, X-Hop",
        "X-Hop": "1",
    }
    hosts = {"hosts": ["gate.example.org"]}
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, server=hosts) as gate:
        reply = await ask(gate.address, "DELETE", target, body, headers)
        [got] = ollama.got
        assert got.headers["host"] == ollama.url.removeprefix("http://")
    assert (got.method, got.target, got.body) == ("DELETE", target, body)
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-encoding"] == "gzip"
    assert got.headers["accept-encoding"] == "br"
    assert got.headers["content-length"] == str(len(body))
    assert got.headers["x-client"].encode("latin-1") == "Grüße".encode()
    for name in ("origin", "authorization", "cookie", "x-hop"):
        assert name not in got.headers
    assert (reply.status, reply.reason, reply.body) == (418, "I am a teapot", body)
    assert (reply.header("Content-Type"), reply.header("X-Own")) == ("image/png", "1")


async def test_authorization_goes_up_when_the_operator_says_so() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({}))

    forward = {"forward_authorization": True}
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, upstream=forward) as gate:
        await ask(gate.address, "POST", "/api/me", None, {"Authorization": "Bearer key"})
        [got] = ollama.got
    assert got.headers["authorization"] == "Bearer key"
    assert got.body == b""


async def test_progress_comes_line_by_line() -> None:
    step = asyncio.Event()
    lines = [b'{"status":"pulling manifest"}\n', b'{"status":"pulling x","completed":1}\n', b'{"error":"disk full"}\n']

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for line in lines:
            writer.write(chunk(line))
            await step.wait()
            step.clear()
        writer.write(LAST_CHUNK)

    async with (
        ScriptedOllama(script) as ollama,
        running_gate(ollama.url) as gate,
        await Client.connect(gate.address) as client,
    ):
        await client.send("POST", "/api/pull", {"model": "x"})
        reply = await client.head()
        for line in lines:
            assert await client.next_chunk(reply) == line
            step.set()
        assert await client.next_chunk(reply) is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 40\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 301 Moved Permanently\r\nLocation: /api/tags\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_answers_without_a_body_leave_the_connection_ready_for_the_next(method: str, answer: bytes) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with (
        ScriptedOllama(script) as ollama,
        running_gate(ollama.url) as gate,
        await Client.connect(gate.address) as client,
    ):
        for _ in range(2):
            await client.send(method, "/api/nowhere")
            reply = await client.rest(await client.head(), method=method)
            assert f" {reply.status} ".encode() in answer
            assert reply.header("Transfer-Encoding") is None
        assert len(ollama.got) == 2


async def test_a_head_keeps_the_length_of_what_a_get_would_give() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 123456\r\n\r\n")

    async with (
        ScriptedOllama(script) as ollama,
        running_gate(ollama.url) as gate,
        await Client.connect(gate.address) as client,
    ):
        for _ in range(2):
            await client.send("HEAD", "/api/blobs/sha256-0")
            assert (await client.head()).header("Content-Length") == "123456"


async def _upload(address: tuple[str, int], size: int, *, chunked: bool) -> tuple[Reply, str]:
    piece = bytes(range(256)) * 256
    hashed = hashlib.sha256(piece * (size // len(piece)))
    digest = f"sha256:{hashed.hexdigest()}"
    async with await Client.connect(address) as client:
        framing = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(size)}
        await client.send("POST", f"/api/blobs/{digest}", None, framing)
        for _ in range(size // len(piece)):
            client.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await client.writer.drain()
        if chunked:
            client.writer.write(b"0\r\n\r\n")
        return await client.rest(await client.head()), digest


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_blob_of_64_megabytes_goes_up_whole(ollama: Rehearsal, *, chunked: bool) -> None:
    size = 64 << 20
    async with running_gate(ollama.url) as gate:
        reply, digest = await _upload(gate.address, size, chunked=chunked)
    [entry] = ollama.journal.to(f"/api/blobs/{digest}")
    assert (reply.status, entry.size) == (201, size)
    assert (entry.header("Content-Length") is None) == chunked


async def test_an_upload_goes_no_faster_than_ollama_takes_it() -> None:
    taken = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        await taken.wait()
        while (await reader.read(1 << 20)) != b"":
            continue

    sent = 0
    async with (
        raw_ollama("/api/blobs", slow) as url,
        running_gate(url) as gate,
        await Client.connect(gate.address) as client,
    ):
        await client.send("POST", "/api/blobs/sha256-0", None, {"Content-Length": str(1 << 30)})
        client.writer.transport.set_write_buffer_limits(1 << 16)
        piece = b"x" * (1 << 16)
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                client.writer.write(piece)
                async with asyncio.timeout(0.3):
                    await client.writer.drain()
                sent += len(piece)
        # What was taken lies in the sockets' buffers and in the gate's bounded ones: not the whole of it.
        assert sent < 48 << 20
        client.reset()
        taken.set()


@pytest.mark.slow
async def test_a_download_of_64_megabytes_comes_whole() -> None:
    piece = hashlib.sha512(b"x").digest() * 1024
    pieces = (64 << 20) // len(piece)

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (pieces * len(piece)))
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "GET", "/api/nowhere")
    assert hashlib.sha256(reply.body).digest() == hashlib.sha256(piece * pieces).digest()


@pytest.mark.parametrize(("path", "status"), [("/api/chat", 200), ("/v1/chat/completions", 200), ("/api/show", 200)])
async def test_a_client_that_waits_for_100_continue_gets_it(path: str, status: int, ollama: Rehearsal) -> None:
    body = b'{"model":"rehearsal","stream":false,"messages":[{"role":"user","content":"hi"}]}'
    async with running_gate(ollama.url) as gate, await Client.connect(gate.address) as client:
        await client.send(
            "POST", path, None, {"Content-Length": str(len(body)), "Expect": "100-continue", "Content-Type": "x/y"}
        )
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(body)
        reply = await client.rest(await client.head())
    assert reply.status == status


async def test_a_body_that_is_too_long_is_refused_without_being_asked_for(ollama: Rehearsal) -> None:
    async with (
        running_gate(ollama.url, server={"max_body": "1MiB"}) as gate,
        await Client.connect(gate.address) as client,
    ):
        await client.send("POST", "/api/chat", None, {"Content-Length": str(1 << 30), "Expect": "100-continue"})
        assert (await client.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")


async def test_an_answer_that_comes_before_the_body_is_whole_reaches_the_client() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(whole({"error": "digest mismatch"}, 400, "Bad Request"))
        await writer.drain()
        await reader.read(1 << 20)

    async with (
        raw_ollama("/api/blobs", early) as url,
        running_gate(url) as gate,
        await Client.connect(gate.address) as client,
    ):
        await client.send("POST", "/api/blobs/sha256-0", b"x" * 1000, {"Content-Length": "1000000"})
        reply = await client.rest(await client.head())
    assert (reply.status, reply.json) == (400, {"error": "digest mismatch"})


async def test_what_changes_models_is_noticed_at_once(ollama: Rehearsal) -> None:
    chat = {"model": "mine", "stream": False, "messages": [{"role": "user", "content": "hi"}]}
    async with running_gate(ollama.url) as gate:
        before = await ask(gate.address, "POST", "/api/chat", chat)
        await ask(gate.address, "POST", "/api/create", {"model": "mine", "from": "rehearsal"})
        after = await ask(gate.address, "POST", "/api/chat", chat)
        await ask(gate.address, "DELETE", "/api/delete", {"model": "mine"})
        gone = await ask(gate.address, "POST", "/api/chat", chat)
    assert [one.status for one in (before, after, gone)] == [404, 200, 404]


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/chat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /api/show HTTP/1.1\r\nHost: x\r\nX: a\nY: b\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /api/show HTTP/1.1\r\nHost: x\r\nX-A : b\r\nContent-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /api/chat HTTP/9.9\r\n\r\n",
    ],
)
async def test_requests_that_two_servers_could_read_in_two_ways_end_here(head: bytes) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({}))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reader, writer = await asyncio.open_connection(*gate.address)
        writer.write(head)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert not ollama.got
    assert answer.startswith(b"HTTP/1.") or answer == b""
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b" 500 " not in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize("length", [{}, {"Content-Length": "0"}])
async def test_a_request_without_a_body_says_its_length_once(length: dict[str, str]) -> None:
    heads: list[bytes] = []

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        heads.append(head.lower())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with raw_ollama("/api/me", script) as url, running_gate(url) as gate:
        assert (await ask(gate.address, "POST", "/api/me", headers=length)).status == 200
    assert [head.count(b"content-length: 0\r\n") for head in heads] == [1]
