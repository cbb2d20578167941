"""A corpus of input that broke others, and mutations of it: never a fault of the gate's own, never a hang."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.archive.records import prefix_of
from ollama_gate.catalog.names import canonical
from ollama_gate.config import load
from ollama_gate.errors import ConfigError, GateError, Refused
from ollama_gate.receive import BodyLimit, _received
from ollama_gate.routes import LANES
from ollama_gate.wire.body import decode_json, encode_json
from support.cases import Front, front
from support.gate import running_gate
from support.http import Client, Reply, ask
from support.scripted import Got, ScriptedOllama

DATA = Path(__file__).parents[1] / "data" / "hostile"
BODIES = sorted((DATA / "bodies").iterdir())
ANSWERS = sorted((DATA / "answers").iterdir())
CONFIGS = sorted((DATA / "configs").iterdir())
ROUTES = [
    *LANES,
    *("/v1/messages/count_tokens", "/v1/responses/input_tokens"),
    *("/gate/count", "/gate/tokenize", "/gate/chunk", "/api/show", "/api/pull", "/gate/nothing"),
]
JSON_LANES = [path for path, lane in LANES.items() if not lane.form]


def named(path: Path) -> str:
    return path.stem


def assert_answered(reply: Reply) -> None:
    """An answer that is whole, or says that Ollama's was not, and no fault of the gate's."""
    # Of 40 equal letters the rehearsal makes as many equal tokens, and then it stops as Ollama does.
    assert reply.complete or b"the answer ended without its end mark" in reply.body, reply
    assert b"internal_error" not in reply.body, reply.body
    assert reply.header("Set-Cookie") is None
    assert reply.header("X-Injected") is None


@pytest.mark.parametrize("file", BODIES, ids=named)
def test_every_dialect_refuses_a_body_or_makes_a_request_that_can_be_sent(file: Path) -> None:
    raw = file.read_bytes()
    for path in JSON_LANES:
        with contextlib.suppress(Refused):
            got = _received(raw, None, BodyLimit(1 << 20, 1 << 20))
            body, request = LANES[path].read(decode_json(got.text), {}, "drop")
            assert orjson.loads(encode_json(dict(request.body)))["model"] == request.model
            assert isinstance(body, dict)


@pytest.mark.parametrize("file", BODIES, ids=named)
async def test_every_route_answers_a_hostile_body(file: Path) -> None:
    raw = file.read_bytes()
    async with front() as line, asyncio.timeout(60):
        for path in ROUTES:
            for headers in ({}, {"Content-Type": "multipart/form-data; boundary=x"}):
                reply = await line.ask(path, raw, headers=headers)
                assert_answered(reply)
                assert reply.status < 500 or reply.status in {502, 503}, (path, reply.body)
        assert (await line.ask("/gate/health", method="GET")).status == 200


@asynccontextmanager
async def upstream_that_says(raw: bytes) -> AsyncIterator[str]:
    """Whatever it is asked, it answers these bytes and closes the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


TELLS = ("/api/tags", "/api/ps", "/api/version", "/v1/models", "/v1/models/x", "/gate/health", "/gate/status")
CHAT = {
    "model": "qwen2.5:0.5b",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
    "prompt": "hi",
    "input": "hi",
}


@pytest.mark.parametrize("file", ANSWERS, ids=named)
async def test_an_upstream_that_says_anything_at_all_does_no_harm(file: Path) -> None:
    async with upstream_that_says(file.read_bytes()) as url, running_gate(url) as gate, asyncio.timeout(60):
        for path in (
            "/api/tags",
            "/api/ps",
            "/api/version",
            "/v1/models",
            "/v1/models/x",
            "/gate/health",
            "/gate/status",
        ):
            assert b"internal_error" not in (await ask(gate.address, "GET", path)).body, path
        for path in (*JSON_LANES, "/api/show", "/v1/messages/count_tokens", "/gate/count"):
            for stream in (False, True):
                with contextlib.suppress(asyncio.IncompleteReadError):  # the stream had begun, and is cut
                    reply = await ask(gate.address, "POST", path, {**CHAT, "stream": stream})
                    assert b"internal_error" not in reply.body, (path, reply.body)
                    assert reply.header("Set-Cookie") is None
        assert (await ask(gate.address, "GET", "/gate/health/live")).status == 200
        assert not gate.turns


@pytest.mark.parametrize("file", ANSWERS, ids=named)
async def test_a_model_that_answers_anything_at_all_does_no_harm(file: Path) -> None:
    """Here the model is known, so that the answer meets the relay and each translator."""
    raw = file.read_bytes()

    async def script(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close()

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate, asyncio.timeout(60):
        for path in JSON_LANES:
            for stream in (False, True):
                with contextlib.suppress(asyncio.IncompleteReadError):
                    reply = await ask(gate.address, "POST", path, {**CHAT, "model": "m", "stream": stream})
                    assert b"internal_error" not in reply.body, (path, reply.body)
                    assert reply.status == 200 or reply.status >= 300
        assert not gate.turns


@pytest.mark.parametrize("file", CONFIGS, ids=named)
def test_a_hostile_configuration_is_refused_with_reasons(file: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(file, {}, canonical)
    assert str(file) in str(refused.value)
    assert len(str(refused.value)) < 20_000


@given(st.text(max_size=80))
def test_any_text_is_the_start_of_a_hash_or_none(asked: str) -> None:
    prefix = prefix_of(asked)
    assert prefix is None or (prefix == asked.lower() and set(prefix) <= set("0123456789abcdef"))


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """The same bytes with a few of them changed, doubled or left out."""
    out = bytearray(raw)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(4):
            case 0:
                out[at:at] = bytes([chance.randrange(256)])
            case 1:
                del out[at : at + chance.randint(1, 9)]
            case 2:
                out[at:at] = out[at : at + chance.randint(1, 40)]
            case _:
                out[at : at + 1] = chance.choice([b"\r\n", b"\0", b"\xff", b'"', b"{", b"9" * 30, b"\r\n\r\n"])
    return bytes(out)


async def bytes_back(line: Front, raw: bytes) -> bytes:
    """What comes back for these bytes, until the gate closes or waits for more."""
    async with await Client.connect(line.gate.address) as client:
        client.writer.write(raw)
        client.writer.write_eof()
        with contextlib.suppress(ConnectionError):
            return await client.reader.read()
    return b""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_mutated_requests_over_a_socket_do_no_harm(seed: int) -> None:
    chance = random.Random(seed)
    bodies = [file.read_bytes() for file in BODIES if file.stat().st_size < 4000]
    async with front(log={"level": "error"}) as line, asyncio.timeout(100):
        for _ in range(150):
            path, body = chance.choice(ROUTES), chance.choice(bodies)
            head = (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            answer = await bytes_back(line, mutated(head.encode() + body, chance))
            assert b"internal_error" not in answer
            assert answer == b"" or answer.startswith(b"HTTP/1.")
        assert (await line.ask("/gate/health", method="GET")).status == 200


def test_every_refusal_of_a_body_is_one_of_the_gates() -> None:
    """Nothing but a GateError leaves the reading of a body, whatever is mutated."""
    chance = random.Random(0)
    bodies = [file.read_bytes() for file in BODIES if file.stat().st_size < 4000]
    for _ in range(1500):
        raw = mutated(chance.choice(bodies), chance)
        lane = LANES[chance.choice(JSON_LANES)]
        with contextlib.suppress(GateError):
            coding = chance.choice([None, None, "gzip", "deflate", "zstd", "x, y"])
            got = _received(raw, coding, BodyLimit(1 << 20, 1 << 20))
            lane.read(decode_json(got.text), {}, "drop")
