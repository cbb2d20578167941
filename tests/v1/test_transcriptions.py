"""POST /v1/audio/transcriptions: a form becomes a guarded chat, and the words come back as JSON or as plain text."""

import asyncio
import base64
from typing import Any

import pytest

from support.gate import running_gate
from support.http import Reply, ask
from support.scripted import Got, ScriptedOllama, whole

PATH = "/v1/audio/transcriptions"
BOUNDARY = "----seam"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
SOUND = b"RIFF\x00\xff\r\n--not the seam\r\n"
SAID = {"message": {"role": "assistant", "content": " So they said.\n"}, "done": True, "done_reason": "stop"}


def form(sound: bytes | None = SOUND, **fields: str) -> bytes:
    """A multipart body as the official client builds it."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    if sound is not None:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        parts.append(head.encode() + b"Content-Type: audio/wav\r\n\r\n" + sound + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


async def transcribed(
    body: bytes, answer: bytes | None = None, headers: dict[str, str] | None = None, **sections: Any
) -> tuple[Reply, list[Got]]:
    """What a client gets for a form, and what Ollama got of it."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(SAID) if answer is None else answer)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, **sections) as gate:
        return await ask(gate.address, "POST", PATH, body, FORM if headers is None else headers), ollama.got


async def test_the_sound_goes_up_in_a_guarded_chat_and_the_words_come_back() -> None:
    reply, [got] = await transcribed(form(model="llama3.2", language="no", prompt="A ferry."))
    assert (reply.status, reply.header("Content-Type")) == (200, "application/json")
    assert reply.body == b'{"text":"So they said."}\n'
    native = got.json
    assert got.target == "/api/chat"
    assert (native["truncate"], native["shift"], native["stream"]) == (False, False, False)
    assert native["options"] == {"temperature": 0, "num_ctx": 8192}
    system, user = native["messages"]
    assert system["role"] == "system"
    assert system["content"].endswith(" The audio is in no. Context: A ferry.")
    assert [base64.b64decode(image) for image in user["images"]] == [SOUND]


async def test_as_text_the_words_come_back_bare() -> None:
    reply, _ = await transcribed(form(model="llama3.2", response_format="text"))
    assert (reply.body, reply.header("Content-Type")) == (b"So they said.", "text/plain")


@pytest.mark.parametrize("format_", ["json", "verbose_json", "srt", ""])
async def test_any_other_format_is_json(format_: str) -> None:
    reply, _ = await transcribed(form(model="llama3.2", response_format=format_))
    assert reply.json == {"text": "So they said."}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (form(sound=None, model="llama3.2"), "file is required"),
        (form(), "model is required"),
        (form(b"", model="llama3.2"), "audio file is empty"),
        (b"--wrong\r\n\r\n", "multipart form"),
        (b"", "multipart form"),
        (form(model="llama3.2")[:-20], "multipart form"),
    ],
    ids=["no file", "no model", "empty file", "another boundary", "nothing", "cut short"],
)
async def test_what_is_no_such_form_is_refused(body: bytes, message: str) -> None:
    reply, got = await transcribed(body)
    assert not got
    assert reply.status == 400
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert message in reply.json["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary="])
async def test_a_body_that_does_not_say_where_its_seams_are_is_refused(kind: str) -> None:
    reply, got = await transcribed(form(model="llama3.2"), headers={"Content-Type": kind})
    assert not got
    assert reply.status == 400


async def test_a_form_that_is_too_large_is_refused_by_its_bytes() -> None:
    reply, got = await transcribed(form(b"x" * 70_000, model="llama3.2"), server={"max_body": "64KiB"})
    assert not got
    assert reply.status == 413


async def test_ollamas_error_is_told_in_openais_shape() -> None:
    refusal = whole({"error": "this model does not hear"}, 400, "Bad Request")
    reply, _ = await transcribed(form(model="llama3.2", response_format="text"), refusal)
    assert (reply.status, reply.header("Content-Type")) == (400, "application/json")
    assert reply.json["error"] == {
        "message": "this model does not hear",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
