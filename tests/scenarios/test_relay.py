"""Answers on their way to the client, in every framing and with every ending that Ollama or its network has."""

import asyncio
import json

import pytest

from ollama_gate import pipeline
from support.gate import looked, metric, running_gate
from support.http import Client, Reply, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, Script, ScriptedOllama, chunk, whole
from support.waiting import until

CHAT = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}]}
MODEL = "registry.ollama.ai/library/llama3.2:latest"


def line(text: str, *, done: bool = False) -> bytes:
    """A line of a chat stream, as Ollama writes it."""
    told: dict[str, object] = {"model": "llama3.2", "message": {"role": "assistant", "content": text}, "done": done}
    if done:
        told |= {"done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


LINES = [line("He"), line("llo \u00e9\U0001f600"), line("", done=True)]
BODY = b"".join(LINES)


def sends(*pieces: bytes, close: bool = False) -> Script:
    """A script that writes these bytes and may then close the connection."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if close:
            writer.close()

    return script


async def through(script: Script, path: str = "/api/chat", *, stream: bool = True, **sections: object) -> Reply:
    """What a client gets through the gate."""
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url, **sections) as gate:
        return await ask(gate.address, "POST", path, {**CHAT, "stream": stream})


def spoken(reply: Reply) -> str:
    """The text of an OpenAI stream."""
    events = [event.removeprefix(b"data: ") for event in reply.body.split(b"\n\n") if event]
    assert events[-1] == b"[DONE]"
    return "".join(json.loads(one)["choices"][0]["delta"].get("content") or "" for one in events[:-1])


FRAMINGS = {
    "a chunk a line": [chunk(one) for one in LINES] + [LAST_CHUNK],
    "a chunk a byte": [b"".join(chunk(BODY[at : at + 1]) for at in range(len(BODY))) + LAST_CHUNK],
    "one chunk": [chunk(BODY) + LAST_CHUNK],
    "chunks across lines": [chunk(BODY[at : at + 37]) for at in range(0, len(BODY), 37)] + [LAST_CHUNK],
    "with extensions and trailers": [b"%x;a=b\r\n%b\r\n" % (len(BODY), BODY), b"0\r\nX-Checked: yes\r\n\r\n"],
}


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_bytes_are_the_same_whatever_their_framing(framing: str) -> None:
    script = sends(STREAM_HEAD, *FRAMINGS[framing])
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        native = await ask(gate.address, "POST", "/api/chat", CHAT)
        openai = await ask(gate.address, "POST", "/v1/chat/completions", {**CHAT, "stream": True})
        assert metric(gate, "output_tokens_total", model=MODEL) == 6
    assert (native.body, native.complete) == (BODY, True)
    assert (spoken(openai), openai.complete) == ("Hello \u00e9\U0001f600", True)


async def test_every_byte_of_the_answers_wire_may_come_alone() -> None:
    wire = STREAM_HEAD + chunk(LINES[0]) + chunk(LINES[2]) + LAST_CHUNK

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        for at in range(len(wire)):
            writer.write(wire[at : at + 1])
            await asyncio.sleep(0)

    reply = await through(script)
    assert (reply.body, reply.complete) == (LINES[0] + LINES[2], True)


async def test_lines_as_long_as_ollamas_own_clients_take_go_through_and_are_understood() -> None:
    long = line("x" * (8_000_000 - len(line(""))))
    assert len(long) == 8_000_000
    script = sends(STREAM_HEAD, chunk(long), chunk(LINES[2]), LAST_CHUNK)
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        native = await ask(gate.address, "POST", "/api/chat", CHAT)
        openai = await ask(gate.address, "POST", "/v1/chat/completions", {**CHAT, "stream": True})
        assert metric(gate, "output_tokens_total", model=MODEL) == 6
    assert native.body == long + LINES[2]
    assert len(spoken(openai)) == 8_000_000 - len(line(""))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_error_before_the_first_byte_keeps_status_and_text(*, stream: bool) -> None:
    error = b'{"error":"model runner has unexpectedly stopped"}'
    script = sends(whole(error, 500, "Internal Server Error"))
    native = await through(script, stream=stream)
    openai = await through(script, "/v1/chat/completions", stream=stream)
    anthropic = await through(script, "/v1/messages", stream=stream)
    assert (native.status, native.reason, native.body) == (500, "Internal Server Error", error)
    assert (openai.status, openai.json["error"]["message"]) == (500, "model runner has unexpectedly stopped")
    assert (anthropic.status, anthropic.json["type"]) in ((500, "error"), (400, "error"))


ENDINGS: dict[str, tuple[Script, bool]] = {
    "closed in mid-stream": (sends(STREAM_HEAD, chunk(LINES[0]), close=True), True),
    "closed inside a chunk": (sends(STREAM_HEAD, chunk(LINES[0]), b"50\r\n{", close=True), True),
    "closed before the last line": (sends(STREAM_HEAD, chunk(LINES[0] + LINES[1]), close=True), True),
    "a chunk size that is none": (sends(STREAM_HEAD, chunk(LINES[0]), b"zz\r\n"), True),
    "closed after the head": (sends(STREAM_HEAD, close=True), True),
    "closed before the head": (sends(b"", close=True), False),
    "closed inside the head": (sends(b"HTTP/1.1 200 OK\r\nContent-", close=True), False),
    "not HTTP": (sends(b"\x16\x03\x01\x02 hello\r\n\r\n", close=True), False),
    "a length that is none": (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n", close=True), False),
    "two lengths": (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", close=True), False),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/responses"])
async def test_an_answer_that_breaks_off_is_never_given_a_clean_end(path: str, ending: str) -> None:
    script, begun = ENDINGS[ending]
    body = {"model": "llama3.2", "stream": True, "input" if "resp" in path else "messages": CHAT["messages"]}
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", path, body)
        assert metric(gate, "upstream_errors_total", kind="upstream_broken") == 1
        assert len(ollama.got) == 1, "a POST was sent again"
        assert not gate.wiring.admission.gatekeeper.scheduler.queues.popitem()[1].running
    if begun:
        assert reply.status == 200
        assert not reply.complete
        assert b"[DONE]" not in reply.body
        assert b"response.completed" not in reply.body
    else:
        assert reply.status == 502
        assert reply.complete
        error = reply.json if path.startswith("/api") else reply.json["error"]
        assert error["code"] == "upstream_broken"


async def test_a_last_chunk_that_never_comes_leaves_the_stream_open_ended_though_its_last_line_is_there() -> None:
    reply = await through(sends(STREAM_HEAD, chunk(BODY), close=True))
    assert (reply.body, reply.complete) == (BODY, False)


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_an_answer_shorter_than_its_length_is_not_passed_off_as_whole(path: str) -> None:
    cut = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"model":"llama3.2","mess'
    reply = await through(sends(cut, close=True), path, stream=False)
    assert reply.status == 502
    assert reply.complete


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("odd", [b'{"model":]\n', b"[]\n", b"\xff\xfe\n"])
async def test_a_line_that_is_no_json_breaks_a_translated_stream_off(path: str, odd: bytes) -> None:
    body = {"model": "llama3.2", "stream": True, "max_tokens": 9}
    body["input" if "resp" in path else "messages"] = CHAT["messages"]
    script = sends(STREAM_HEAD, chunk(LINES[0]), chunk(odd), chunk(LINES[2]), LAST_CHUNK)
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", path, body)
    assert reply.status == 200
    assert not reply.complete
    assert b"error" in reply.body
    for mark in (b"[DONE]", b"message_stop", b"response.completed"):
        assert mark not in reply.body


async def test_a_translated_stream_that_ends_without_done_has_no_end_mark() -> None:
    reply = await through(sends(STREAM_HEAD, chunk(LINES[0]), LAST_CHUNK), "/v1/chat/completions")
    assert not reply.complete
    assert b"[DONE]" not in reply.body


@pytest.mark.parametrize(
    "parts",
    [[chunk(LINES[0]), LAST_CHUNK], [chunk(LINES[0]) + LAST_CHUNK], [LAST_CHUNK]],
    ids=["in two", "at once", "nothing at all"],
)
async def test_a_native_stream_that_ends_without_done_ends_with_an_error_line_and_no_last_chunk(
    parts: list[bytes],
) -> None:
    async with (
        ScriptedOllama(sends(STREAM_HEAD, *parts)) as ollama,
        running_gate(ollama.url) as gate,
    ):
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
        assert metric(gate, "upstream_errors_total", kind="upstream_broken") == 1
    *came, last = reply.body.splitlines(keepends=True)
    assert came == [LINES[0]] * (len(parts[0]) > len(LAST_CHUNK))
    assert "the answer ended without its end mark" in json.loads(last)["error"]
    assert not reply.complete


@pytest.mark.parametrize("size", [10, 20_000, 200_000])
@pytest.mark.parametrize("after", [True, False], ids=["done first", "done last"])
async def test_a_long_last_line_is_an_end_mark_too(size: int, *, after: bool) -> None:
    """The last line of /api/generate holds the prompt's tokens, `context`, between `done` and the counts."""
    context, done = {"context": list(range(size))}, {"done": True, "done_reason": "stop"}
    told = {"model": "llama3.2", "response": "", **(done | context if after else context | done), "eval_count": 3}
    last = json.dumps(told, separators=(",", ":")).encode() + b"\n"
    pieces = [chunk(last[at : at + 50_001]) for at in range(0, len(last), 50_001)]
    script = sends(STREAM_HEAD, chunk(LINES[0]), *pieces, LAST_CHUNK)
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", "/api/generate", {"model": "llama3.2", "prompt": "hi"})
        assert metric(gate, "output_tokens_total", model=MODEL) == 3
    assert (reply.complete, reply.body == LINES[0] + last) == (True, True)


async def test_what_has_no_done_by_its_nature_ends_as_it_came() -> None:
    """Progress of /api/pull, and what is not streamed, where `done:false` itself says that it is half an answer."""
    pulled, half = b'{"status":"success"}\n', {"message": {"role": "assistant", "content": "x"}, "done": False}
    streamed = await through(sends(STREAM_HEAD, chunk(pulled), LAST_CHUNK), "/api/pull")
    at_once = await through(sends(whole(half)), stream=False)
    assert (streamed.body, streamed.complete) == (pulled, True)
    assert (at_once.status, at_once.json, at_once.complete) == (200, half, True)


async def forever(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def begun(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + chunk(LINES[0]))
    await asyncio.Event().wait()


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages"])
async def test_silence_before_the_first_byte_is_504_and_ollamas_work_ends(path: str) -> None:
    async with ScriptedOllama(forever) as ollama, running_gate(ollama.url, upstream={"idle_timeout": 0.1}) as gate:
        reply = await ask(gate.address, "POST", path, {**CHAT, "max_tokens": 9, "stream": True})
        await asyncio.wait_for(ollama.left.wait(), 1)
        assert metric(gate, "upstream_errors_total", kind="upstream_timeout") == 1
    assert reply.status == 504
    assert reply.json["error"]


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_silence_in_mid_stream_aborts_the_stream(path: str) -> None:
    async with ScriptedOllama(begun) as ollama, running_gate(ollama.url, upstream={"idle_timeout": 0.1}) as gate:
        reply = await ask(gate.address, "POST", path, {**CHAT, "stream": True})
        await asyncio.wait_for(ollama.left.wait(), 1)
        assert metric(gate, "upstream_errors_total", kind="upstream_timeout") == 1
    assert reply.status == 200
    assert not reply.complete
    assert b"He" in reply.body


async def test_a_slow_answer_has_no_time_limit_as_long_as_it_is_not_silent() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for _ in range(10):
            writer.write(chunk(LINES[0]))
            await asyncio.sleep(0.05)
        writer.write(chunk(LINES[2]) + LAST_CHUNK)

    reply = await through(script, upstream={"idle_timeout": 0.3})
    assert reply.complete
    assert len(reply.lines) == 11


async def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_by_the_connections() -> None:
    script = sends(STREAM_HEAD, *FRAMINGS["a chunk a line"])
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        reader, writer = await asyncio.open_connection(*gate.address)
        body = json.dumps(CHAT).encode()
        writer.write(b"POST /api/chat HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))
    assert b"chunked" not in head.lower()
    assert rest == BODY


async def test_a_client_that_reads_slowly_slows_ollama_down_instead_of_filling_memory() -> None:
    piece = chunk(b'{"x":"' + b"y" * 65_000 + b'"}\n')
    written = 0

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(STREAM_HEAD)
        for _ in range(2000):
            writer.write(piece)
            await writer.drain()
            written += len(piece)
        writer.write(chunk(LINES[2]) + LAST_CHUNK)

    async with (
        ScriptedOllama(script) as ollama,
        running_gate(ollama.url) as gate,
        await Client.connect(gate.address) as client,
    ):
        client.reader._limit = 1 << 16  # type: ignore[attr-defined]
        await client.send("POST", "/api/chat", CHAT)
        reply = await client.head()
        seen = -1
        while seen != written:
            seen = written
            for _ in range(20):
                await asyncio.sleep(0.005)
        # 130 MB are to come; what is on its way fits into the sockets' buffers and the gate's bounded ones.
        assert 0 < written < 30_000_000
        while await client.next_chunk(reply) is not None:
            reply.chunks.clear()
        assert reply.complete
    assert written == 2000 * len(piece)


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_one_connection_to_ollama_serves_one_request_after_the_other(path: str) -> None:
    connections = set()

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        connections.add(writer.get_extra_info("peername"))
        writer.write(STREAM_HEAD + b"".join(FRAMINGS["one chunk"]))

    resident = {"name": "llama3.2:latest", "model": "llama3.2:latest", "size": 1000, "context_length": 8192}
    async with (
        ScriptedOllama(script, loaded=[resident]) as ollama,
        running_gate(ollama.url) as gate,
        await Client.connect(gate.address) as client,
    ):
        await client.send("POST", path, {**CHAT, "stream": True})
        assert (await client.rest(await client.head())).complete
        # With a model's first request the gate asks for its vocabulary too, on a connection of its own.
        await until(lambda: all(known.preparing is None for known in gate.wiring.counter._models.values()))
        await looked(gate)  # and behind it what became of its load
        connections.clear()
        for _ in range(5):
            await client.send("POST", path, {**CHAT, "stream": True})
            assert (await client.rest(await client.head())).complete
    assert len(connections) == 1


async def test_a_kept_connection_that_died_costs_a_get_nothing_and_a_post_is_never_sent_twice() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        if got.method == "POST" and len(ollama.got) > 1:
            writer.transport.abort()
        else:
            writer.write(whole({"done": True}))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        first = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
        second = await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
        posts = len(ollama.got)
    assert (first.status, second.status, second.json["code"]) == (200, 502, "upstream_broken")
    assert posts == 2


async def test_something_by_the_way_is_passed_over() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    reply = await through(sends(early + STREAM_HEAD, *FRAMINGS["one chunk"]))
    assert (reply.status, reply.body) == (200, BODY)
    assert reply.header("Link") is None


async def test_headers_that_belong_to_one_connection_stay_there_and_all_others_pass() -> None:
    head = (
        b"HTTP/1.1 200 Fine\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b"X-Own: a\r\nX-Own: b\r\nServer: other\r\n\r\n"
    )
    reply = await through(sends(head, chunk(BODY), LAST_CHUNK))
    assert (reply.status, reply.reason) == (200, "Fine")
    assert [value for name, value in reply.headers if name == "X-Own"] == ["a", "b"]
    for name in ("X-Hop", "Keep-Alive"):
        assert reply.header(name) is None
    assert [value for name, value in reply.headers if name.lower() == "server"] == ["ollama-gate"]


@pytest.mark.parametrize("length", [0, 10, 2_000_000])
async def test_an_answer_with_a_length_keeps_it(length: int) -> None:
    body = b'{"done":true,"x":"' + b"y" * length + b'"}'
    reply = await through(sends(whole(body)), stream=False)
    assert reply.header("Content-Length") == str(len(body))
    assert reply.header("Transfer-Encoding") is None
    assert reply.body == body


async def test_a_cut_stream_of_known_length_is_cut_for_the_client_too() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 5000\r\n\r\n"
    reply = await through(sends(head + LINES[0], close=True))
    assert reply.status == 200
    assert not reply.complete


def _after(step: asyncio.Event, *pieces: bytes, close: bool = False) -> Script:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        await step.wait()
        await sends(*pieces, close=close)(got, writer)

    return script


class TestSignsOfLife:
    """While Ollama is silent for long, a translated stream is opened early and kept alive."""

    async def test_a_chat_stream_gets_comments_and_then_its_answer(self) -> None:
        step = asyncio.Event()
        script = _after(step, STREAM_HEAD, chunk(BODY), LAST_CHUNK)
        async with (
            ScriptedOllama(script) as ollama,
            running_gate(ollama.url) as gate,
            await Client.connect(gate.address) as client,
        ):
            gate.wiring.pipeline.signs_every = 0.05
            await client.send("POST", "/v1/chat/completions", {**CHAT, "stream": True})
            reply = await client.head()
            sign = await client.next_chunk(reply)
            step.set()
            await client.rest(reply)
        assert (reply.status, reply.complete) == (200, True)
        assert (sign or b"").startswith(b":")
        assert reply.body.endswith(b"data: [DONE]\n\n")

    async def test_a_count_that_does_not_come_holds_up_neither_them_nor_the_answer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def hangs(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(pipeline, "_COUNT_WITHIN", 0.05)
        step = asyncio.Event()
        async with (
            ScriptedOllama(_after(step, STREAM_HEAD, chunk(BODY), LAST_CHUNK)) as ollama,
            running_gate(ollama.url) as gate,
            await Client.connect(gate.address) as client,
        ):
            gate.wiring.pipeline.signs_every = 0.05
            monkeypatch.setattr(gate.wiring.counter, "count", hangs)
            await client.send("POST", "/v1/messages", {**CHAT, "max_tokens": 9, "stream": True})
            reply = await client.head()
            sign = await client.next_chunk(reply)
            step.set()
            await client.rest(reply)
        assert (reply.status, reply.complete) == (200, True)
        assert b"event: " in (sign or b"")
        assert b"message_stop" in reply.body

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
    async def test_an_error_after_that_is_an_event_and_no_clean_end(self, path: str) -> None:
        overflow = json.dumps(
            {"error": {"type": "exceed_context_size_error", "message": "x", "n_prompt_tokens": 9000, "n_ctx": 8192}}
        )
        for answer in (
            whole({"error": "runner stopped"}, 500, "Internal Server Error"),
            whole({"error": overflow}, 400, "Bad Request"),
            b"",
        ):
            step = asyncio.Event()
            body = {"model": "llama3.2", "stream": True, "max_tokens": 9}
            body["input" if "resp" in path else "messages"] = CHAT["messages"]
            async with (
                ScriptedOllama(_after(step, answer, close=not answer)) as ollama,
                running_gate(ollama.url) as gate,
                await Client.connect(gate.address) as client,
            ):
                gate.wiring.pipeline.signs_every = 0.05
                await client.send("POST", path, body)
                reply = await client.head()
                step.set()
                await client.rest(reply)
            assert reply.status == 200
            assert not reply.complete
            assert b"HTTP/1.1" not in reply.body
            assert b'"error"' in reply.body
            for mark in (b"[DONE]", b"message_stop", b"response.completed"):
                assert mark not in reply.body

    async def test_a_refusal_before_the_first_sign_keeps_its_status(self) -> None:
        reply = await through(sends(whole({"error": "no"}, 400, "Bad Request")), "/v1/chat/completions")
        assert reply.status == 400
