"""Bodies of many megabytes: images pass whole, text has an end, and neither memory nor the loop is taken by them."""

import asyncio
import base64
import binascii
import gc
import gzip
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.cases import front
from support.gate import running_gate
from support.http import ask
from support.scripted import Got, ScriptedOllama, whole

MB = 1024 * 1024
IMAGE = base64.b64encode(bytes(range(256)) * 3072).decode()
"""A megabyte of base64."""
MODEL = "gemma3:4b"


def native(images: list[str]) -> dict[str, Any]:
    return {"model": MODEL, "stream": False, "messages": [{"role": "user", "content": "look", "images": images}]}


def openai(images: list[str]) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{one}"}} for one in images]
    return {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}]}


def anthropic(images: list[str]) -> dict[str, Any]:
    parts = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": one}} for one in images]
    message = {"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}
    return {"model": MODEL, "max_tokens": 5, "messages": [message]}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("path", "made"), [("/api/chat", native), ("/v1/chat/completions", openai), ("/v1/messages", anthropic)]
)
async def test_images_reach_ollama_to_the_byte(path: str, made: Any, *, packed: bool) -> None:
    raw = json.dumps(made([IMAGE, IMAGE[:1000], IMAGE])).encode()
    headers = {"Content-Encoding": "gzip"} if packed else {}
    async with front() as line:
        reply = await ask(line.gate.address, "POST", path, gzip.compress(raw, 1) if packed else raw, headers)
        [got] = line.got()
    assert reply.status == 200, reply.body[:300]
    sent = [image for message in got.json()["messages"] for image in message.get("images", ())]
    assert sent == [IMAGE, IMAGE[:1000], IMAGE]
    assert b"ollamaGateStandIn" not in got.body
    assert b"ollamaGateStandIn" not in reply.body


async def test_base64_that_is_text_is_counted_as_text() -> None:
    text = IMAGE * 2
    async with front() as line:
        chat = await line.ask("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": text}]})
        counted = await line.ask("/gate/count", {"model": MODEL, "prompt": text})
        tools = [{"type": "function", "function": {"name": "f", "description": text, "parameters": {}}}]
        tool = await line.ask(
            "/api/chat", {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "x"}], "tools": tools}
        )
        assert not line.got()
    assert (chat.status, chat.json["code"]) == (400, "context_length_exceeded")
    assert (tool.status, tool.json["code"]) == (400, "context_length_exceeded")
    assert counted.json["at_most"] > len(text) / 8


async def test_more_text_than_any_window_holds_is_413_with_the_key_that_says_so() -> None:
    async with front(server={"max_text": "1MiB"}) as line:
        replies = [
            await line.ask("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": content}]})
            for content in ("word " * 250_000, IMAGE * 2)
        ]
        assert (await line.ask("/api/chat", native([IMAGE]))).status == 200
    for reply in replies:
        assert (reply.status, reply.json["code"]) == (413, "text_too_large")
        assert "server.max_text" in reply.json["error"]


@pytest.mark.parametrize("odd", ["\U0001f600", "\u00e9"])
@pytest.mark.parametrize("escaped", [False, True])
async def test_text_with_a_wide_letter_has_its_end_sooner(odd: str, *, escaped: bool) -> None:
    """Python keeps four bytes for each letter of it, and filling them holds everybody up."""
    async with front() as line:
        for words, end, code in (
            (1_300_000, "", "context_length_exceeded"),
            (1_300_000, odd, "text_too_large"),
            (1_200_000, odd, "context_length_exceeded"),
        ):
            body = {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "word " * words + end}]}
            reply = await line.ask("/api/chat", json.dumps(body, ensure_ascii=escaped).encode())
            assert (words, end, reply.json["code"]) == (words, end, code)


async def test_a_large_body_that_was_refused_is_known_again() -> None:
    body: Any = {"model": MODEL, "messages": [{"role": "user", "content": "word " * 400_000}]}
    async with front() as line:
        first = await line.ask("/api/chat", body)
        again = await line.ask("/api/chat", body)
        body["messages"][0]["content"] += "other"
        other = await line.ask("/api/chat", body)
    assert (first.status, again.status, other.status) == (400, 400, 400)
    assert (first.gate("repeated"), again.gate("repeated"), other.gate("repeated")) == (None, "true", None)


async def test_a_body_of_too_many_objects_is_refused() -> None:
    messages = [{"role": "user", "content": "{{{{ no objects"}] * 20_001
    async with front() as line:
        reply = await line.ask("/api/chat", {"model": MODEL, "messages": messages})
        fewer = await line.ask("/api/chat", {"model": MODEL, "messages": messages[:3000]})
    assert (reply.status, "more than 20000 objects" in reply.json["error"]) == (400, True)
    assert fewer.json["code"] == "context_length_exceeded"


@contextmanager
def calls_in_a_turn() -> Iterator[list[int]]:
    """The most calls that one turn of the event loop made, of Python's functions and C's: what time says, and exact."""
    loop, most, made, over = asyncio.get_running_loop(), [0], 0, False

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    def turn() -> None:
        nonlocal made
        most[0] = max(most[0], made)
        made = 0
        if not over:
            loop.call_soon(turn)

    loop.call_soon(turn)
    sys.setprofile(count)
    try:
        yield most
    finally:
        sys.setprofile(None)
        over = True


def many_messages(words: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "assistant" if at % 2 else "user", "content": words, **more} for at in range(4000)]
    return {"model": MODEL, "messages": messages}


def input_items(words: str) -> dict[str, Any]:
    return {"model": MODEL, "input": many_messages(words)["messages"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", many_messages("word and more words " * 16)),
        (
            "/api/chat",
            {
                **many_messages("word " * 9),
                "model": "llama3.2:1b",
                "tools": [{"type": "function", "function": {"name": "f" * 300}}] * 4000,
            },
        ),
        ("/v1/chat/completions", many_messages("word and more words " * 16)),
        ("/v1/responses", input_items("word and more words " * 16)),
        ("/v1/messages", {**many_messages("word and more words " * 16), "max_tokens": 9}),
        ("/gate/count", many_messages("word and more words " * 16)),
    ],
    ids=["chat", "tools", "openai", "responses", "anthropic", "count"],
)
async def test_no_turn_of_the_loop_goes_through_a_large_body(path: str, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    assert len(raw) > MB
    async with front() as line:
        await line.ask(
            path, {**body, "messages": body["messages"][:2]} if "messages" in body else {**body, "input": "x"}
        )
        with calls_in_a_turn() as most:
            reply = await ask(line.gate.address, "POST", path, raw)
    assert reply.status in {200, 400}, reply.body[:300]
    assert b"internal" not in reply.body
    assert most[0] < 2000  # it has four thousand messages


async def test_a_large_sound_is_spelled_in_a_thread_and_reaches_ollama_to_the_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = bytes(range(256)) * 10_000
    expected = base64.b64encode(sound).decode()
    where: set[str] = set()
    spell = binascii.b2a_base64

    def noted(data: bytes, *, newline: bool) -> bytes:
        assert len(data) < MB
        where.add(threading.current_thread().name)
        return spell(data, newline=newline)

    monkeypatch.setattr(binascii, "b2a_base64", noted)
    head = b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    form = head % (b"model", MODEL.encode()) + head % (b"file", sound) + b"--x--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    async with front() as line:
        reply = await ask(line.gate.address, "POST", "/v1/audio/transcriptions", form, headers)
        [got] = line.got()
    assert reply.status == 200, reply.body[:300]
    [sent] = [image for message in got.json()["messages"] for image in message.get("images", ())]
    assert sent == expected
    assert where
    assert all(name.startswith("body") for name in where)


async def most_gained(address: tuple[str, int], raw: bytes) -> tuple[int, int]:
    """Most memory that this process gained while a body came in and was answered, and the status of the answer.

    Pages that were touched, not what was reserved: orjson reserves eight bytes for each character and uses one.
    """
    before = begin_anew()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n".encode())
    try:
        for at in range(0, len(raw), MB):
            writer.write(raw[at : at + MB])
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        return memory("VmHWM") - before, int(head.split()[1])
    finally:
        writer.close()


def begin_anew() -> int:
    """Let the kernel's high-water mark begin at what is taken now, and say what that is."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the kernel does not let a process reset its high-water mark here")
    return memory("VmRSS")


def memory(name: str) -> int:
    """One of the kernel's numbers about this process, in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{name}:"))


@pytest.mark.slow
async def test_images_take_at_most_three_times_their_body_and_a_constant() -> None:
    raw = json.dumps(native([IMAGE * 4] * 6)).encode()
    answer = whole({"model": MODEL, "message": {"role": "assistant", "content": "x"}, "done": True})

    async def script(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        most, status = await most_gained(gate.address, raw)  # what the upstream of this test holds is in it, too
    assert status == 200
    assert most < 3 * len(raw) + 64 * MB


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["", "\U0001f600", "base64"])
async def test_text_takes_at_most_three_times_its_body_and_a_constant(odd: str) -> None:
    content = IMAGE * 5 if odd == "base64" else "word " * (1_200_000 if odd else 1_900_000) + odd
    body: Any = {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "word " * 8000}]}
    async with front() as line:
        assert (await line.ask("/api/chat", body)).status == 400  # its tokenizer is there now
        body["messages"][0]["content"] = content
        raw = json.dumps(body, ensure_ascii=False).encode()
        most, status = await most_gained(line.gate.address, raw)
    assert status == 400
    # One character beyond the first plane makes Python keep four bytes for each.
    assert most < 3 * len(raw) + 64 * MB


async def test_others_are_answered_while_a_large_body_is_worked_on() -> None:
    large = {"model": MODEL, "messages": [{"role": "user", "content": "word " * 1_900_000}]}
    async with front() as line, asyncio.TaskGroup() as group:
        work = group.create_task(line.ask("/api/chat", large))
        served = 0
        while not work.done():
            assert (await line.ask("/gate/health/live", method="GET")).status == 200
            served += 1
        assert (await work).status == 400
    assert served > 3
