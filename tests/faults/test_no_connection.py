"""An Ollama that cannot be reached, or takes a connection and does nothing with it; and one that comes back."""

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.faultfront import WAYS, Behind, behind
from support.gate import metric, running_gate
from support.http import ask
from support.waiting import until


@pytest.fixture
async def line(written_log: io.StringIO) -> AsyncIterator[Behind]:
    async with behind(written_log) as front:
        yield front


async def test_an_ollama_that_is_not_there_is_503_on_every_route_and_served_again_when_it_is(line: Behind) -> None:
    await line.proxy.refuse()
    for name, way in WAYS.items():
        reply = await line.ask(way)
        assert (reply.status, reply.complete) == (503, True), name
        assert "Ollama" in way.error(reply)["message"]
        assert reply.gate("verdict") == "failed"
        await line.rid_of_it()
    assert metric(line.gate, "upstream_errors_total", kind="upstream_unreachable") == len(WAYS)
    health = await ask(line.gate.address, "GET", "/gate/health")
    assert (health.status, health.json["live"], health.json["ready"]) == (503, True, False)
    await line.proxy.listen()
    for way in WAYS.values():
        await line.serves(way)
    assert (await ask(line.gate.address, "GET", "/gate/health")).json["ready"] is True


async def test_an_ollama_that_is_killed_under_streams_breaks_every_one_of_them_off(line: Behind) -> None:
    for path in ("/api/chat", "/api/generate"):
        line.ollama.fault("hang", path=path, at="stream", after=2)
    asked = [asyncio.ensure_future(line.ask(way)) for way in WAYS.values()]
    await until(lambda: any(turn.phase == "streaming" for turn in line.gate.turns.values()))
    await line.proxy.refuse()
    replies = await asyncio.gather(*asked)
    assert sum(reply.status == 200 for reply in replies) >= 1
    for reply in replies:
        # The one slot: whoever held it is broken off, and those who waited are told.
        assert (reply.status, reply.complete) in ((200, False), (502, True), (503, True))
    await line.rid_of_it()
    line.ollama.service.faults.active.clear()
    await line.proxy.listen()
    await line.serves(WAYS["chat"])


async def test_a_connection_that_is_taken_and_never_read_is_a_504(line: Behind) -> None:
    line.proxy.deaf = True
    await line.proxy.refuse()  # those that are kept are gone
    await line.proxy.listen()
    with line.impatient():
        for name, way in WAYS.items():
            reply = await line.ask(way)
            assert (reply.status, reply.complete) == (504, True), name
            assert way.error(reply)["message"], name
            await line.rid_of_it()
    line.proxy.deaf = False
    await line.proxy.refuse()
    await line.proxy.listen()
    await line.serves(WAYS["openai"])


async def test_a_body_that_is_not_taken_is_a_504_and_holds_nothing(line: Behind) -> None:
    """More than fits into the buffers of the sockets."""
    line.proxy.deaf = True
    await line.proxy.refuse()
    await line.proxy.listen()
    picture = "A" * 24_000_000
    body = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "what?", "images": [picture]}]}
    with line.impatient(0.5):
        reply = await line.post("/api/chat", body)
    assert (reply.status, reply.json["code"]) == (504, "upstream_timeout")
    await line.rid_of_it()


async def test_a_connection_that_is_never_taken_is_a_503_after_the_connect_timeout() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # and the kernel takes one connection for nobody: further ones are not answered at all
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with running_gate(url, upstream={"connect_timeout": 0.1}) as gate:
            reply = await ask(gate.address, "POST", "/api/chat", {"model": "x", "messages": []})
        for one in waiting:
            one.close()
    assert (reply.status, reply.json["code"]) == (503, "upstream_unreachable")
    assert "connect timeout" in reply.json["error"]


async def test_a_name_that_does_not_resolve_is_503_and_served_once_it_does(
    written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind(written_log) as line:
        port = line.proxy.url.rpartition(":")[2]
        known = False
        loop = asyncio.get_running_loop()
        resolve = loop.getaddrinfo

        async def lookup(host: Any, *rest: Any, **how: Any) -> Any:
            if host != "ollama.internal":
                return await resolve(host, *rest, **how)
            if not known:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return await resolve("127.0.0.1", *rest, **how)

        monkeypatch.setattr(loop, "getaddrinfo", lookup)
        async with running_gate(f"http://ollama.internal:{port}") as gate:
            for name, way in WAYS.items():
                reply = await ask(gate.address, "POST", way.path, way.body())
                assert (reply.status, reply.complete) == (503, True), name
                assert "Name or service not known" in way.error(reply)["message"]
            assert not gate.turns
            known = True
            for way in WAYS.values():
                reply = await ask(gate.address, "POST", way.path, way.body())
                assert (reply.status, reply.complete) == (200, True), reply.body
