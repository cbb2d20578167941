"""Slow and greedy clients: heads, bodies and numbers of connections."""

import asyncio
import json
import sys
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from ollama_gate.access import connections
from ollama_gate.access.connections import RATE_OVER, ClientConnection, ClientServer, ConnectionLimits, client_address
from ollama_gate.app import Gate
from ollama_gate.tasks import spawn
from support.cases import Front, front
from support.gate import metric, running_gate
from support.http import Client
from support.scripted import STREAM_HEAD, Got, ScriptedOllama, chunk
from support.waiting import until

CHAT = {"model": "qwen2.5:0.5b", "messages": [{"role": "user", "content": "hi"}], "stream": False}


def server_of(gate: Gate) -> ClientServer:
    server = gate.entrance._server
    assert server is not None
    return server


def connection_of(gate: Gate) -> ClientConnection:
    [found] = server_of(gate).connections
    assert isinstance(found, ClientConnection)
    return found


def later(gate: Gate, seconds: float) -> None:
    """Look at all connections as if so much time had passed."""
    server_of(gate).look(asyncio.get_running_loop().time() + seconds)


async def closed(client: Client) -> bool:
    async with asyncio.timeout(5):
        try:
            return await client.reader.read() == b""
        except ConnectionResetError:  # a byte of the client's was on its way
            return True


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
async def test_a_head_that_does_not_end_is_not_waited_for(sent: bytes) -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        client.writer.write(sent)
        await until(lambda: server_of(line.gate).connections)
        connection = connection_of(line.gate)
        await until(lambda: connection._received == len(sent))
        later(line.gate, 29)
        client.writer.write(b"a" if sent else b"")  # one byte now and then does not help
        later(line.gate, 31)
        assert await closed(client)


async def test_what_newer_versions_of_aiohttp_keep_need_not_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        await client.send("GET", "/api/version")
        await client.rest(await client.head())
        connection = connection_of(line.gate)
        with monkeypatch.context() as older:
            older.delattr(connection, "_buffer_paused", raising=False)
            connection.resume_reading()
        await client.send("GET", "/api/version")
        assert (await client.rest(await client.head())).status == 200


async def test_a_second_head_has_its_own_time_and_an_idle_connection_has_more() -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        await client.send("GET", "/api/version")
        await client.rest(await client.head())
        later(line.gate, 500)
        await client.send("GET", "/api/version")
        assert (await client.rest(await client.head())).status == 200
        connection = connection_of(line.gate)
        before = connection._received
        client.writer.write(b"GET /")
        await until(lambda: connection._received > before)
        later(line.gate, 31)
        assert await closed(client)


async def slow_post(line: Front, client: Client, path: str, sent: bytes, length: int) -> ClientConnection:
    client.writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode() + sent)
    await until(lambda: line.gate.turns)
    connection = connection_of(line.gate)
    await until(lambda: connection._received > len(sent))
    return connection


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/gate/count", "/v1/messages/count_tokens"])
async def test_a_body_that_trickles_is_answered_408(path: str) -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        await slow_post(line, client, path, b'{"model"', 5000)
        later(line.gate, 0)
        client.writer.write(b":")
        later(line.gate, RATE_OVER + 1)
        reply = await client.rest(await client.head())
        assert await closed(client)
        assert not line.got()
    assert (reply.status, "1024 bytes a second" in reply.body.decode()) == (408, True)


CHUNKED = "POST {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages", "/gate/count", f"/api/blobs/sha256:{'0' * 64}"])
@pytest.mark.parametrize("pieces", [[b"zz\r\n"], [b'5\r\n{"a":\r\n', b"zz\r\n"], [b"3\r\nxxxxxxxx\r\n"]])
async def test_a_chunk_that_is_none_is_answered_400_whenever_it_comes(path: str, pieces: list[bytes]) -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        client.writer.write(CHUNKED.format(path).encode())
        await until(lambda: line.gate.turns)
        connection = connection_of(line.gate)
        for piece in pieces:
            before = connection._received
            client.writer.write(piece)
            await until(partial(received, connection, before))
        reply = await client.rest(await client.head())
        assert await closed(client)
        await until(lambda: not line.gate.turns)
    assert reply.status == 400
    assert "breaks the rules of HTTP" in reply.body.decode()
    assert ("request_id" in reply.json) == (path == "/v1/messages")


async def test_so_is_one_of_a_request_that_waits_for_the_one_before_it() -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        line.ollama.fault("hang", path="/api/chat", at="start")
        body = json.dumps({"model": "qwen2.5:0.5b", "messages": [{"role": "user", "content": "hi"}]})
        await client.send("POST", "/api/chat", body.encode())
        await until(line.got)
        client.writer.write(CHUNKED.format("/api/chat").encode())
        connection = connection_of(line.gate)
        await until(lambda: len(connection._messages) == 1)
        client.writer.write(b"zz\r\n")
        [(_, waiting)] = connection._messages
        await until(lambda: waiting.exception() is not None)
        assert len(connection._messages) == 1


def received(connection: ClientConnection, most: int) -> bool:
    return connection._received > most


async def test_an_upload_that_trickles_is_cut_and_one_that_is_fast_enough_is_not() -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        connection = await slow_post(line, client, f"/api/blobs/sha256:{'0' * 64}", b"a", 10_000_000)
        now = asyncio.get_running_loop().time()
        server_of(line.gate).look(now)
        for step in range(1, 4):
            client.writer.write(b"a" * 40_000)
            await until(partial(received, connection, step * 40_000))
            server_of(line.gate).look(now + step * (RATE_OVER + 1))
            assert not connection._force_close
            assert line.gate.turns
        server_of(line.gate).look(now + 5 * (RATE_OVER + 1))
        reply = await client.rest(await client.head())
        assert (reply.status, reply.json["code"]) == (408, "request_timeout")
        await until(lambda: not line.gate.turns)


async def test_who_waits_for_the_gate_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front() as line, await Client.connect(line.gate.address) as client:
        connection = await slow_post(line, client, "/api/chat", b'{"model"', 5000)
        later(line.gate, 0)
        monkeypatch.setattr(connection, "_reading_paused", True)
        later(line.gate, RATE_OVER + 1)
        monkeypatch.setattr(connection, "_reading_paused", False)
        later(line.gate, RATE_OVER + 2)
        assert line.gate.turns


async def test_an_answer_that_nobody_takes_does_not_hold_its_slot_for_ever() -> None:
    piece = json.dumps(
        {"model": "m", "message": {"role": "assistant", "content": "x" * 60_000}, "done": False}
    ).encode()

    async def script(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(chunk(piece + b"\n"))
            await writer.drain()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        async with await Client.connect(gate.address) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's own has it
            await client.send("POST", "/api/chat", {**CHAT, "model": "m", "stream": True})
            await until(lambda: server_of(gate).connections)
            connection = connection_of(gate)
            await until(lambda: connection._paused, within=20)
            later(gate, 0)
            later(gate, 599)
            assert gate.turns
            later(gate, 601)
            await until(lambda: not gate.turns)
        assert metric(gate, "slots_running", model="registry.ollama.ai/library/m:latest") == 0


async def test_no_rate_is_no_limit() -> None:
    async with front(server={"body_rate": 0}) as line, await Client.connect(line.gate.address) as client:
        await slow_post(line, client, "/api/chat", b"{", 5000)
        later(line.gate, 0)
        later(line.gate, 1000)
        assert line.gate.turns


async def test_one_address_holds_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "client_address", lambda _: "203.0.113.9")
    async with running_gate("http://127.0.0.1:9", server={"connections_per_client": 2}) as gate:
        server = server_of(gate)
        async with await Client.connect(gate.address) as first, await Client.connect(gate.address) as second:
            await until(lambda: server.open_by["203.0.113.9"] == 2)
            async with asyncio.timeout(5), await Client.connect(gate.address) as third:
                reply = await third.rest(await third.head())
                assert (reply.status, reply.json["code"]) == (503, "too_many_connections")
                assert await third.reader.read() == b""
            await first.send("GET", "/gate/health/live")
            assert (await first.rest(await first.head())).status == 200
            await second.close()
            await until(lambda: server.open_by["203.0.113.9"] == 1)
            async with await Client.connect(gate.address) as fourth:
                await fourth.send("GET", "/gate/health/live")
                assert (await fourth.rest(await fourth.head())).status == 200
        await until(lambda: not server.open_by)
        assert not server.connections


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("@", "@"),
    ],
)
def test_by_what_clients_are_told_apart(peer: str, client: str) -> None:
    assert client_address(peer) == client


async def test_idle_connections_are_closed_after_a_time_that_can_be_set() -> None:
    async with front(server={"keep_alive": "1s"}) as line, await Client.connect(line.gate.address) as client:
        await client.send("GET", "/api/version")
        await client.rest(await client.head())
        assert connection_of(line.gate).keepalive_timeout == 1.0


async def test_what_fails_before_the_gate_had_it_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: Any) -> Any:
        raise RuntimeError("secret of the inside")

    async with front() as line:
        monkeypatch.setattr(server_of(line.gate), "request_handler", broken)
        reply = await line.ask("/api/chat", CHAT)
    assert (reply.status, json.loads(reply.body)["code"]) == (500, "internal_error")
    assert b"secret" not in reply.body


async def test_many_requests_at_once_give_way_to_others_between_any_two() -> None:
    happened: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        happened.append(request.path)
        return web.Response(text=request.path)

    async def others() -> None:
        while True:
            happened.append("others")
            await asyncio.sleep(0)

    server = ClientServer(handler, ConnectionLimits(), handler_cancellation=True, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    beside = spawn(others(), name="others")
    try:
        async with await Client.connect(listener.sockets[0].getsockname()[:2]) as client:
            paths = [f"/{number}" for number in range(20)]
            client.writer.write(b"".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in paths))
            assert [(await client.rest(await client.head())).body.decode() for _ in paths] == paths
    finally:
        beside.cancel()
        listener.close()
        await server.shutdown(1.0)
    turns = [at for at, what in enumerate(happened) if what != "others"]
    assert [happened[at] for at in turns] == paths
    assert all(happened[at - 1] == "others" for at in turns[1:])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="aiohttp begins a request's own task at once there")
async def test_a_request_alone_has_no_task_of_its_own() -> None:
    tasks: list[bool] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        tasks.append(asyncio.current_task() is request.task)
        return web.Response()

    server = ClientServer(handler, ConnectionLimits(), handler_cancellation=True, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        async with await Client.connect(listener.sockets[0].getsockname()[:2]) as client:
            for _ in range(2):
                await client.send("GET", "/")
                assert (await client.rest(await client.head())).status == 200
    finally:
        listener.close()
        await server.shutdown(1.0)
    assert tasks == [True, True]
