"""Bodies on their way in: whole, within their limit, or refused in the caller's shape."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.app import Gate
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.conversations import conversation_key, prompt_key
from ollama_gate.counting import bound
from ollama_gate.counting.remembered import key_of
from ollama_gate.dialects import native
from ollama_gate.dialects.translation import without_thinking
from ollama_gate.receive import weighed
from support.gate import running_gate
from support.http import Client, Reply, ask
from support.scripted import Got, ScriptedOllama, whole

LIMIT = 4096
CARD = ModelCard(key="m", name="m", digest="d", mode=Mode.GO_TEMPLATE)
CHAT = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}], "stream": False}


async def answers(got: Got, writer: asyncio.StreamWriter) -> None:
    if got.target == "/api/chat":
        writer.write(whole({"model": "llama3.2", "message": {"role": "assistant", "content": "x"}, "done": True}))
    else:
        writer.write(whole({}))


@pytest.fixture
async def line() -> AsyncIterator[tuple[Gate, ScriptedOllama]]:
    async with ScriptedOllama(answers) as ollama, running_gate(ollama.url, server={"max_body": LIMIT}) as gate:
        yield gate, ollama


def padded(size: int) -> bytes:
    """A chat body of exactly so many bytes."""
    body = json.dumps(CHAT).encode()
    return body + b" " * (size - len(body))


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1, 4 * LIMIT])
@pytest.mark.parametrize("piece", [None, 1, 100, LIMIT, 100_000])
async def test_the_limit_holds_to_the_byte_in_every_framing(
    line: tuple[Gate, ScriptedOllama], size: int, piece: int | None
) -> None:
    gate, ollama = line
    body = padded(size)
    if piece is None:
        reply = await ask(gate.address, "POST", "/api/chat", body)
    else:
        async with await Client.connect(gate.address) as client:
            await client.send("POST", "/api/chat", None, {"Transfer-Encoding": "chunked"})
            client.writer.write(chunked(body, piece))
            reply = await client.rest(await client.head())
    assert reply.status == (200 if size <= LIMIT else 413)
    assert len(ollama.got) == (size <= LIMIT)


async def test_a_body_that_comes_in_drops_is_read_whole(line: tuple[Gate, ScriptedOllama]) -> None:
    gate, ollama = line
    body = padded(200)
    async with await Client.connect(gate.address) as client:
        await client.send("POST", "/api/chat", None, {"Content-Length": str(len(body))})
        for at in range(len(body)):
            client.writer.write(body[at : at + 1])
            await asyncio.sleep(0)
        reply = await client.rest(await client.head())
    assert reply.status == 200
    assert ollama.got[0].json["messages"] == CHAT["messages"]


@pytest.mark.parametrize(
    ("path", "body"), [("/api/chat", b""), ("/v1/chat/completions", b""), ("/gate/count", b""), ("/gate/tokenize", b"")]
)
async def test_no_body_is_a_400_in_the_callers_shape(line: tuple[Gate, ScriptedOllama], path: str, body: bytes) -> None:
    gate, ollama = line
    for headers in ({"Content-Length": "0"}, {}):
        reply = await ask(gate.address, "POST", path, body or None, headers)
        assert reply.status == 400
        assert reply.json["error"]
    assert not ollama.got


@pytest.mark.parametrize("broken", [b"zz\r\nxx\r\n0\r\n\r\n", b"5\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n"])
async def test_chunks_that_are_none_end_the_request(line: tuple[Gate, ScriptedOllama], broken: bytes) -> None:
    gate, ollama = line
    async with await Client.connect(gate.address) as client:
        await client.send("POST", "/api/chat", None, {"Transfer-Encoding": "chunked"})
        client.writer.write(broken)
        client.writer.write_eof()
        answer = await asyncio.wait_for(client.reader.read(), 5)
    assert answer == b"" or answer.split(b" ", 2)[1] == b"400"
    assert not ollama.got


BOUNDARY = "xXx"


async def form(gate: Gate, raw: bytes, *, length: bool = False) -> Reply:
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    async with await Client.connect(gate.address) as client:
        framing = {"Content-Length": str(len(raw))} if length else {"Transfer-Encoding": "chunked"}
        await client.send("POST", "/v1/audio/transcriptions", None, headers | framing)
        client.writer.write(raw if length else chunked(raw, 1000))
        return await client.rest(await client.head())


def part(name: str, value: bytes, file: str = "") -> bytes:
    named = f'; filename="{file}"' if file else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + value + b"\r\n"


@pytest.mark.parametrize("length", [True, False])
async def test_a_form_longer_than_the_limit_is_413(line: tuple[Gate, ScriptedOllama], *, length: bool) -> None:
    gate, ollama = line
    reply = await form(gate, part("file", b"x" * 2 * LIMIT, "a.wav") + f"--{BOUNDARY}--\r\n".encode(), length=length)
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")
    assert not ollama.got


async def test_a_form_of_endless_empty_parts_has_an_end(line: tuple[Gate, ScriptedOllama]) -> None:
    gate, ollama = line
    reply = await form(gate, b"".join(part(f"field{number}", b"") for number in range(200)))
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")
    assert not ollama.got


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"--xXx--\r\n",
        b"not a form",
        b"--xXx\r\n",
        b"--xXx\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xXx--\r\n",
        b"--xXx\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y--\r\n--xXx--\r\n",
        part("model", b"\xff\xfe") + b"--xXx--\r\n",
    ],
)
async def test_what_is_no_form_is_a_400(line: tuple[Gate, ScriptedOllama], raw: bytes) -> None:
    gate, ollama = line
    reply = await form(gate, raw, length=True)
    assert reply.status in (400, 404)
    assert reply.json["error"]
    assert not ollama.got


WORDS = st.text(max_size=20)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool", "critic"]), "content": WORDS},
        optional={
            "thinking": WORDS,
            "tool_calls": st.lists(
                st.fixed_dictionaries(
                    {
                        "function": st.fixed_dictionaries(
                            {"arguments": st.dictionaries(WORDS, WORDS, max_size=3), "name": WORDS}
                        )
                    }
                ),
                max_size=3,
            ),
        },
    ),
    max_size=6,
)
TOOLS = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"description": WORDS, "name": WORDS})}), max_size=3
)


@given(MESSAGES, TOOLS, st.sampled_from([0, 1, 3]))
def test_what_was_weighed_says_the_same_as_a_look_at_the_body(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], indents: int
) -> None:
    request = native.parse("/api/chat", {"model": "m", "messages": messages, "tools": tools}, session=None)
    heavy, cost = weighed(request), bound.TemplateCost(indents=indents)
    assert heavy.weighed is not None
    assert bound.most_bytes(heavy, cost) == bound.most_bytes(request, cost)
    assert bound.at_least(heavy, 7) == bound.at_least(request, 7)
    assert prompt_key(heavy) == prompt_key(request)
    assert conversation_key(heavy) == conversation_key(request)


def test_a_weight_is_of_one_body_and_says_nothing_of_another() -> None:
    request = native.parse("/api/chat", dict(CHAT), session=None)
    heavy = weighed(request)
    shorter = replace(heavy, body={**heavy.body, "messages": []})
    assert shorter.weighed is None
    assert bound.most_bytes(shorter, bound.TemplateCost()) == bound.most_bytes(
        replace(request, body=shorter.body), bound.TemplateCost()
    )
    assert key_of(shorter, CARD.digest, None, exactly=False) != key_of(heavy, CARD.digest, None, exactly=False)
    thinking = weighed(replace(request, dialect="anthropic", body={**request.body, "think": True}))
    assert without_thinking(thinking).weighed is not None


def test_heavy_bodies_are_counted_once_whatever_they_say_beside_their_prompt() -> None:
    keys = {
        key_of(weighed(native.parse("/api/chat", body, session=None)), CARD.digest, None, exactly=False)
        for body in (dict(CHAT), {**CHAT, "stream": True}, {**CHAT, "options": {"seed": 1}})
    }
    assert len(keys) == 1
    other = {**CHAT, "messages": [{"role": "user", "content": "ho"}]}
    assert key_of(weighed(native.parse("/api/chat", other, session=None)), CARD.digest, None, exactly=False) not in keys
