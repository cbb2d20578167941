"""Which headers cross the gate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.upstream.headers import HOP_BY_HOP, connection_named, for_client, for_upstream
from ollama_gate.wire.http1 import Field


def pairs(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]


def fields(headers: list[tuple[str, str]]) -> list[Field]:
    return [(name.lower(), name + b": " + value) for name, value in pairs(headers)]


def names(lines: list[bytes]) -> list[bytes]:
    return [line.partition(b":")[0] for line in lines]


def named(lines: list[bytes], name: str) -> list[bytes]:
    return [line.partition(b": ")[2] for line in lines if line.lower().startswith(name.lower().encode() + b":")]


SENT = pairs(
    [
        ("Host", "gate.example.org"),
        ("Origin", "null"),
        ("Referer", "http://x"),
        ("Cookie", "a=b"),
        ("Expect", "100-continue"),
        ("Authorization", "Bearer x"),
        ("X-Api-Key", "k"),
        ("Connection", "keep-alive, X-Named"),
        ("x-named", "1"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Type", "text/plain"),
        ("Content-Length", "5"),
        ("Content-Encoding", "gzip"),
        ("Accept-Encoding", "br"),
        ("User-Agent", "agent"),
        ("X-Own", "a"),
        ("X-Own", "b"),
        ("x-session-id", "s"),
    ]
)


@pytest.mark.parametrize("authorization", [True, False])
def test_what_is_passed_on_keeps_the_bodys_own_headers(*, authorization: bool) -> None:
    out = for_upstream(SENT, own_body=False, authorization=authorization)
    kept = [b"Content-Type", b"Content-Length", b"Content-Encoding", b"Accept-Encoding", b"User-Agent"]
    assert [name for name in names(out) if name not in (b"X-Own", b"x-session-id", b"Authorization")] == kept
    assert named(out, "X-Own") == [b"a", b"b"]
    assert bool(named(out, "Authorization")) == authorization


def test_the_gates_own_body_has_the_gates_own_headers() -> None:
    out = for_upstream(SENT, own_body=True, authorization=False)
    assert named(out, "Content-Type") == [b"application/json"]
    for name in ("Content-Length", "Content-Encoding", "Accept-Encoding", "Transfer-Encoding", "Authorization"):
        assert not named(out, name)
    assert named(out, "User-Agent") == [b"agent"]


def test_answers_lose_what_belongs_to_one_connection_only() -> None:
    answer = fields(
        [
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Type", "application/x-ndjson"),
            ("Content-Encoding", "gzip"),
            ("Set-Cookie", "a"),
            ("set-cookie", "b"),
            ("Date", "now"),
            ("Server", "Ollama's own"),
            ("X-Note", "Ollama's own"),
            ("X-Ollama-Gate-Verdict", "another gate's"),
        ]
    )
    out = for_client(answer, {"server": "the gate", "x-note": "J\udcfcrgen"})
    assert {name.lower() for name in names(out)} == {b"content-type", b"content-encoding", b"set-cookie", b"date"}
    assert named(out, "Set-Cookie") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], set()),
        ([b"close"], {b"close"}),
        ([b"A, b ,C"], {b"a", b"b", b"c"}),
        ([b"a", b"b"], {b"a", b"b"}),
        ([b",,"], {b""}),
    ],
)
def test_a_connection_header_names_others(values: list[bytes], found: set[bytes]) -> None:
    assert connection_named(values) == found


NAMES = st.sampled_from(
    [*sorted(name.decode() for name in HOP_BY_HOP), "Host", "X-A", "x-b", "Cookie", "Content-Length", "Origin"]
)


@given(st.lists(st.tuples(NAMES, st.text(st.characters(codec="ascii"), max_size=5))), st.booleans(), st.booleans())
def test_nothing_that_is_kept_back_gets_through(
    headers: list[tuple[str, str]], own_body: object, authorization: object
) -> None:
    up = for_upstream(pairs(headers), own_body=bool(own_body), authorization=bool(authorization))
    assert not {name.lower() for name in names(up)} & {*HOP_BY_HOP, b"host", b"origin", b"cookie"}
    assert not {name.lower() for name in names(for_client(fields(headers), ()))} & HOP_BY_HOP
