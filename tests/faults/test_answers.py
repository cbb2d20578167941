"""Answers of Ollama's that break at a chosen byte, on every route: what the client sees, and what is left of it."""

import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import nullcontext

import pytest

from support import faultproxy as faulty
from support.faultfront import EMBEDDER, WAYS, Behind, behind, never_ends_cleanly
from support.faultproxy import Fault
from support.gate import metric


@pytest.fixture
async def line(written_log: io.StringIO) -> AsyncIterator[Behind]:
    async with behind(written_log) as front:
        yield front


UNTOLD: dict[str, tuple[Fault, int]] = {
    "its request is not read": (faulty.unread(10), 504),
    "silence before the head": (faulty.hang(head=0), 504),
    "silence within the head": (faulty.hang(head=30), 504),
    "reset before the head": (faulty.reset(head=0), 502),
    "reset within the head": (faulty.reset(head=30), 502),
    "half-closed before the head": (faulty.half_close(head=0), 502),
    "half-closed within the head": (faulty.half_close(head=30), 502),
    "no HTTP": (faulty.says(b"\x16\x03\x01\x02\x00 who is there\r\n\r\n"), 502),
    "a status that is none": (faulty.says(b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\n{}"), 502),
    "another HTTP": (faulty.says(b"HTTP/2 200\r\n\r\n"), 502),
    "another protocol": (faulty.says(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"), 502),
    "a head without end": (faulty.says(b"HTTP/1.1 200 OK\r\n" + b"X-Fill: 0123456789\r\n" * 4000), 502),
    "nothing but 100 Continue": (faulty.says(b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000), 502),
    "a header that is none": (faulty.says(b"HTTP/1.1 200 OK\r\nContent Length: 2\r\n\r\n{}"), 502),
    "a negative length": (faulty.says(b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"), 502),
    "a coding that nobody knows": (faulty.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 502),
}


@pytest.mark.parametrize("fault", UNTOLD)
async def test_what_breaks_before_the_answer_is_an_error_in_the_dialect(line: Behind, fault: str) -> None:
    play, status = UNTOLD[fault]
    code = "upstream_timeout" if status == 504 else "upstream_broken"
    for name, way in WAYS.items():
        for stream in (True, False):
            line.proxy.arm(way.native, play)
            with line.impatient() if status == 504 else nullcontext():
                reply = await line.ask(way, stream=stream)
            assert (reply.status, reply.complete) == (status, True), name
            assert (reply.header("Content-Type") or "").startswith("application/json")
            assert way.error(reply)["message"], name
            assert reply.gate("verdict") == "failed"
            await line.rid_of_it()
            assert line.told("request")[-1]["code"] == code
        await line.serves(way)
    assert metric(line.gate, "upstream_errors_total", kind=code) == line.proxy.struck == 2 * len(WAYS)


SHOWN: dict[str, bytes] = {
    "an error": b'HTTP/1.1 500 Internal Server Error\r\nContent-Length: 28\r\n\r\n{"error":"a file is broken"}',
    "no object": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
}


@pytest.mark.parametrize("said", SHOWN)
async def test_a_model_that_ollama_lists_and_does_not_describe_is_never_run_unguarded(line: Behind, said: str) -> None:
    """Without its description there is no window to force on it, and no memory to book for its load."""
    for name, way in WAYS.items():
        line.gate.wiring.catalog._cards.clear()
        line.proxy.arm("/api/show", faulty.says(SHOWN[said]))
        before = len(line.ollama.journal.to(way.native))
        reply = await line.ask(way)
        assert (reply.status, reply.complete) == (502, True), name
        assert "/api/show" in way.error(reply)["message"], name
        assert len(line.ollama.journal.to(way.native)) == before
        await line.rid_of_it()
        assert line.told("request")[-1]["code"] == "upstream_broken"
        await line.serves(way)
    assert line.proxy.struck == len(WAYS)


BEGUN: dict[str, tuple[Fault, str]] = {
    "silence after the head": (faulty.hang(body=0), "upstream_timeout"),
    "silence in the middle": (faulty.hang(body=300), "upstream_timeout"),
    "reset after the head": (faulty.reset(body=0), "upstream_broken"),
    "reset in the middle": (faulty.reset(body=300), "upstream_broken"),
    "half-closed after the head": (faulty.half_close(body=0), "upstream_broken"),
    "half-closed in the middle": (faulty.half_close(body=300), "upstream_broken"),
    "a length that is too long": (faulty.with_length(50), "upstream_broken"),
    "a chunk of no size": (
        faulty.remade(lambda head, body: faulty.chunked(head) + b"20\r\n" + body[:32] + b"\r\n\r\n"),
        "upstream_broken",
    ),
    "a chunk of a size that is none": (
        faulty.remade(lambda head, body: faulty.chunked(head) + b"20\r\n" + body[:32] + b"\r\n-1\r\n"),
        "upstream_broken",
    ),
    "a chunk longer than it says": (
        faulty.remade(lambda head, body: faulty.chunked(head) + b"20\r\n" + body[:64] + b"\r\n0\r\n\r\n"),
        "upstream_broken",
    ),
    "a chunk of a size that no machine has": (
        faulty.remade(lambda head, body: faulty.chunked(head) + b"f" * 16 + b"\r\n" + body),
        "upstream_broken",
    ),
}


@pytest.mark.parametrize("fault", BEGUN)
async def test_what_breaks_in_a_stream_never_ends_cleanly(line: Behind, fault: str) -> None:
    play, code = BEGUN[fault]
    for name, way in WAYS.items():
        line.proxy.arm(way.native, play)
        with line.impatient() if code == "upstream_timeout" else nullcontext():
            reply = await line.ask(way)
        assert (reply.status, reply.complete) == (200, False), name
        if fault != "a length that is too long":  # there every line came, the last one too
            never_ends_cleanly(reply)
            assert way.path.startswith("/api/") or way.error_event(reply), name
        await line.rid_of_it()
        assert line.told("request")[-1]["code"] == code
        await line.serves(way)
    assert metric(line.gate, "upstream_errors_total", kind=code) == line.proxy.struck == len(WAYS)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_answer_in_chunks_of_one_byte_is_the_same_answer(line: Behind, *, stream: bool) -> None:
    for name, way in WAYS.items():
        expected = texts((await line.ask(way, stream=stream)).body)
        line.proxy.arm(way.native, faulty.in_chunks(1))
        reply = await line.ask(way, stream=stream)
        assert (reply.status, reply.complete) == (200, True), name
        assert texts(reply.body) == expected, name
    await line.rid_of_it()
    assert line.proxy.struck == len(WAYS)


def long_line(text: bytes) -> Fault:
    """Have the first line of a stream hold so much text."""

    def remake(head: bytes, body: bytes) -> bytes:
        first, rest = body.split(b"\n", 1)
        field = re.search(rb'"(?:content|response)":"([^"]*)', first)
        assert field is not None
        line = first[: field.start(1)] + text + first[field.end(1) :] + b"\n"
        return faulty.chunked(head) + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (line, rest)) + b"0\r\n\r\n"

    return faulty.remade(remake)


@pytest.mark.parametrize("name", WAYS)
async def test_a_line_of_eight_megabytes_goes_through(line: Behind, name: str) -> None:
    way, text = WAYS[name], b"x" * 7_999_000
    line.proxy.arm(way.native, long_line(text))
    reply = await line.ask(way)
    assert (reply.status, reply.complete) == (200, True)
    assert text in reply.body
    await line.serves(way)


@pytest.mark.parametrize("name", WAYS)
async def test_a_line_longer_than_any_client_of_ollamas_takes_breaks_off_where_it_has_to_be_read(
    line: Behind, name: str
) -> None:
    way, text = WAYS[name], b"x" * 8_000_100
    line.proxy.arm(way.native, long_line(text))
    reply = await line.ask(way)
    assert reply.status == 200
    if way.path.startswith("/api/"):
        assert (reply.complete, text in reply.body) == (True, True)
    else:
        never_ends_cleanly(reply)
        assert way.error_event(reply)
    await line.rid_of_it()
    await line.serves(way)


async def test_an_answer_in_one_piece_that_is_shorter_than_it_says_is_a_502(line: Behind) -> None:
    for name, way in WAYS.items():
        line.proxy.arm(way.native, faulty.with_length(7))
        reply = await line.ask(way, stream=False)
        assert (reply.status, reply.complete) == (502, True), name
        assert way.error(reply)["message"], name
        await line.rid_of_it()
        await line.serves(way)


async def test_what_stands_beyond_the_length_is_never_taken_for_the_next_answer(line: Behind) -> None:
    for way in WAYS.values():
        line.proxy.arm(way.native, faulty.with_length(-5))
        cut = await line.ask(way, stream=False)
        # On /api as Ollama framed it, which nobody can read; an error where it has to be read here.
        assert cut.status == (200 if way.path.startswith("/api/") else 502)
        if cut.status == 200:
            with pytest.raises(json.JSONDecodeError):
                _ = cut.json
        await line.rid_of_it()
        await line.serves(way)


async def test_of_two_answers_to_one_request_the_second_reaches_nobody(line: Behind) -> None:
    def doubled(head: bytes, body: bytes) -> bytes:
        one = faulty.chunked(head) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return one + one

    for name, way in WAYS.items():
        expected = texts((await line.ask(way)).body)
        line.proxy.arm(way.native, faulty.remade(doubled))
        reply = await line.ask(way)
        assert (reply.status, reply.complete) == (200, True), name
        assert texts(reply.body) == expected, name
        await line.serves(way)


async def test_what_is_said_by_the_way_before_an_answer_changes_nothing(line: Behind) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: 1\r\n\r\n" * 5

    def remake(head: bytes, body: bytes) -> bytes:
        return early + faulty.chunked(head) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

    for name, way in WAYS.items():
        expected = texts((await line.ask(way)).body)
        line.proxy.arm(way.native, faulty.remade(remake))
        reply = await line.ask(way)
        assert (reply.status, texts(reply.body)) == (200, expected), name
    await line.rid_of_it()


async def test_an_embedding_that_breaks_is_an_error_and_never_half_a_vector(line: Behind) -> None:
    asked = {"model": EMBEDDER, "input": ["one", "two"]}
    for path in ("/api/embed", "/v1/embeddings"):
        for play in (faulty.reset(body=100), faulty.half_close(body=100), faulty.with_length(3), faulty.reset(head=0)):
            line.proxy.arm("/api/embed", play)
            reply = await line.post(path, asked)
            assert (reply.status, reply.complete) == (502, True), path
            await line.rid_of_it()
        assert (await line.post(path, asked)).status == 200


def texts(body: bytes) -> list[str]:
    """The pieces of text in an answer, in their order; ids and times are left out."""
    return re.findall(r'"(?:content|response|text|delta)":"((?:[^"\\]|\\.)+)"', body.decode())
