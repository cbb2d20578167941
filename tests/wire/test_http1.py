"""Answers of HTTP/1.1 are read the same whatever pieces they come in, and what is ambiguous is not read at all."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.errors import UpstreamBroken
from ollama_gate.wire.http1 import MOST_HEAD_BYTES, AnswerReader, answer_head, request_head

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def read(pieces: Iterable[bytes], *, bodiless: bool = False) -> tuple[AnswerReader, bytes]:
    reader = AnswerReader()
    reader.begin(bodiless=bodiless)
    return reader, b"".join(reader.feed(piece) for piece in pieces)


def chunked(parts: Iterable[bytes], trailer: bytes = b"", more: bytes = b"") -> bytes:
    framed = [b"%x%b\r\n%b\r\n" % (len(part), more, part) for part in parts]
    return b"".join(framed) + b"0" + more + b"\r\n" + trailer + b"\r\n"


def cut(data: bytes, at: Iterable[int]) -> list[bytes]:
    places = [0, *sorted({place % (len(data) + 1) for place in at}), len(data)]
    return [data[a:b] for a, b in pairwise(places) if a < b]


PIECES = st.lists(st.integers(0, 10_000), max_size=12)
PARTS = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


@given(parts=PARTS, at=PIECES, trailer=st.sampled_from([b"", b"X-Sum: 1\r\n"]), more=st.sampled_from([b"", b";a=b"]))
def test_a_chunked_body_is_the_same_wherever_the_reads_fall(
    parts: list[bytes], at: list[int], trailer: bytes, more: bytes
) -> None:
    reader, body = read(cut(CHUNKED + chunked(parts, trailer, more), at))
    assert body == b"".join(parts)
    assert reader.done
    assert not reader.excess
    assert reader.keep_alive


@given(body=st.binary(max_size=200), at=PIECES)
def test_a_body_of_known_length_is_the_same_wherever_the_reads_fall(body: bytes, at: list[int]) -> None:
    reader, found = read(cut(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, at))
    assert found == body
    assert reader.done
    assert reader.head is not None
    assert reader.head.length == len(body)
    assert dict(reader.head.fields)[b"content-type"] == b"Content-Type: application/x-ndjson"


@given(body=st.binary(max_size=200), at=PIECES)
def test_a_body_of_unknown_length_ends_with_the_connection(body: bytes, at: list[int]) -> None:
    reader, found = read(cut(HEAD + b"\r\n" + body, at))
    assert found == body
    assert not reader.done
    reader.end()
    assert reader.done


LINES = st.sampled_from(
    [
        b"Date: Tue, 01 Dec 2026 10:00:00 GMT",
        b"date:x",
        b"DATE: y",
        b"Date:",
        b"X-Date: z",
        b"Content-Length: 0",
        b"A: Date: b",
    ]
)


@given(lines=st.lists(LINES, max_size=5, unique=True))
def test_headers_come_as_they_stand_with_the_date_among_them(lines: list[bytes]) -> None:
    reader, _ = read([b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""])])
    assert reader.head is not None
    assert list(reader.head.fields) == [(line.split(b":")[0].lower(), line) for line in lines]


@pytest.mark.parametrize("date", [b"Date: a\0b", b"Date: a\nb", b"Date: a\rb", b"Date: a\r\n b", b"Date : a", b"Date"])
def test_a_date_that_is_no_header_is_refused_as_any_other(date: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read([HEAD + date + b"\r\nContent-Length: 0\r\n\r\n"])


@given(st.binary(max_size=300), PIECES)
def test_whatever_comes_is_an_answer_or_a_broken_upstream(data: bytes, at: list[int]) -> None:
    for start in (b"", HEAD, CHUNKED, CHUNKED + b"5\r\n"):
        try:
            read(cut(start + data, at))
        except UpstreamBroken:
            continue


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: +5",
        b"Content-Length: 5_0",
        b"Content-Length: -1",
        b"Content-Length: 0x5",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"X: a\nY: b",
        b"X: a\rY: b",
        b"X: a\0b",
        b"X: a\r\n folded",
        b"X : a",
        b": a",
        b"no colon",
        "Ä: a".encode(),
    ],
)
def test_a_head_that_two_readers_could_read_in_two_ways_is_refused(lines: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read([b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\nhello"])


@pytest.mark.parametrize(
    "line", [b"HTTP/2 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"ICY 200 OK", b"SSH-2.0-x"]
)
def test_what_is_no_http_answer_is_refused(line: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read([line + b"\r\n\r\n"])


@pytest.mark.parametrize("size", [b"0x5", b"+5", b"5_0", b" 5", b"", b"g", b"ffffffffffffffff"])
def test_a_chunk_size_that_is_no_plain_number_is_refused(size: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read([CHUNKED, size + b"\r\nhello\r\n"])


def test_a_chunk_that_is_longer_than_it_says_is_refused() -> None:
    with pytest.raises(UpstreamBroken):
        read([CHUNKED, b"5\r\nhello!\r\n"])


def test_equal_lengths_said_twice_are_one_length() -> None:
    reader, body = read([b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nhi"])
    assert body == b"hi"
    assert reader.done


def test_a_length_beside_a_chunked_body_means_nothing_and_is_not_handed_on() -> None:
    reader, body = read(
        [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: Chunked\r\n\r\n", chunked([b"hello"])]
    )
    assert body == b"hello"
    assert reader.head is not None
    assert reader.head.length is None
    assert b"content-length" not in dict(reader.head.fields)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body_whatever_they_say(status: int) -> None:
    reader, body = read([b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status])
    assert (body, reader.done) == (b"", True)


def test_the_answer_to_a_head_request_has_no_body() -> None:
    reader, body = read([HEAD + b"Content-Length: 5\r\n\r\n"], bodiless=True)
    assert (body, reader.done) == (b"", True)
    assert reader.head is not None
    assert dict(reader.head.fields)[b"content-length"] == b"Content-Length: 5"


def test_an_interim_answer_is_passed_over() -> None:
    reader, body = read(
        [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CHUNKED, chunked([b"x"])]
    )
    assert (body, reader.done) == (b"x", True)


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "one by one"])
def test_interim_answers_without_end_are_given_up(*, together: bool) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    _, body = read([interim * 64 + HEAD + b"Content-Length: 1\r\n\r\nx"])
    assert body == b"x"
    with pytest.raises(UpstreamBroken, match="without end"):
        read([interim * 10_000] if together else [interim] * 10_000)


def test_bytes_after_the_answer_are_told() -> None:
    for answer in (HEAD + b"Content-Length: 2\r\n\r\nhi", CHUNKED + chunked([b"hi"])):
        reader, body = read([answer + b"HTTP/1.1 200 OK"])
        assert body == b"hi"
        assert reader.excess


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_whether_the_connection_stays_open_is_read(head: bytes, kept: bool) -> None:  # noqa: FBT001 - a parameter
    assert read([head])[0].keep_alive is kept


@pytest.mark.parametrize("data", [b"", HEAD, CHUNKED, CHUNKED + b"5\r\nhel", CHUNKED + b"0\r\n"])
def test_an_end_before_the_end_is_told(data: bytes) -> None:
    reader, _ = read([data])
    with pytest.raises(UpstreamBroken):
        reader.end()


def test_a_head_without_end_is_given_up() -> None:
    with pytest.raises(UpstreamBroken):
        read([b"HTTP/1.1 200 OK\r\n"] + [b"X: " + b"a" * 1000 + b"\r\n"] * (MOST_HEAD_BYTES // 1000 + 1))


def test_a_trailer_without_end_is_given_up() -> None:
    with pytest.raises(UpstreamBroken):
        read([CHUNKED, b"0\r\n"] + [b"X: " + b"a" * 1000 + b"\r\n"] * (MOST_HEAD_BYTES // 1000 + 1))


def test_a_reader_reads_one_answer_after_another() -> None:
    reader, _ = read([CHUNKED + chunked([b"one"])])
    reader.begin(bodiless=False)
    assert not reader.done
    assert reader.feed(HEAD + b"Content-Length: 3\r\n\r\ntwo") == b"two"
    assert reader.done


def test_a_request_head_is_written() -> None:
    headers = [b"Content-Type: application/json", b"X-Name: J\xfcrgen"]
    assert request_head("POST", "/api/chat?x=%20", "127.0.0.1:11434", headers) == (
        b"POST /api/chat?x=%20 HTTP/1.1\r\nHost: 127.0.0.1:11434\r\nContent-Type: application/json\r\n"
        b"X-Name: J\xfcrgen\r\n\r\n"
    )


@pytest.mark.parametrize("evil", ["a\r\nX: b", "a\nX: b", "a\rb", "a\0b"])
def test_no_header_can_become_two(evil: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        request_head("GET", "/", "host", [b"X: " + evil.encode()])
    with pytest.raises(ValueError, match="line end"):
        request_head("GET", "/" + evil, "host", [])
    with pytest.raises(ValueError, match="line end"):
        answer_head(200, b"OK", [], [f"X: {evil}"])


def test_an_answer_head_is_written() -> None:
    own = ["Server: gate", "X-Name: J\udcfcrgen"]
    assert answer_head(404, b"Not here", [b"Date: now"], own) == (
        b"HTTP/1.1 404 Not here\r\nDate: now\r\nServer: gate\r\nX-Name: J\xfcrgen\r\n\r\n"
    )
