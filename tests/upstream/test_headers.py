"""Which headers cross the gate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from ollama_gate.upstream.headers import HOP_BY_HOP, connection_named, for_client, for_upstream

SENT = CIMultiDict(
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
    kept = ["Content-Type", "Content-Length", "Content-Encoding", "Accept-Encoding", "User-Agent"]
    assert [name for name in out if name not in ("X-Own", "x-session-id", "Authorization")] == kept
    assert out.getall("X-Own") == ["a", "b"]
    assert ("Authorization" in out) == authorization


def test_the_gates_own_body_has_the_gates_own_headers() -> None:
    out = for_upstream(SENT, own_body=True, authorization=False)
    assert out["Content-Type"] == "application/json"
    assert out.getall("Content-Type") == ["application/json"]
    for name in ("Content-Length", "Content-Encoding", "Accept-Encoding", "Transfer-Encoding", "Authorization"):
        assert name not in out
    assert out["User-Agent"] == "agent"


def test_answers_lose_what_belongs_to_one_connection_only() -> None:
    answer = CIMultiDict(
        [
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Type", "application/x-ndjson"),
            ("Content-Encoding", "gzip"),
            ("Set-Cookie", "a"),
            ("set-cookie", "b"),
            ("Date", "now"),
        ]
    )
    out = for_client(answer)
    assert {name.lower() for name in out} == {"content-type", "content-encoding", "set-cookie", "date"}
    assert out.getall("Set-Cookie") == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([], set()),
        (["close"], {"close"}),
        (["A, b ,C"], {"a", "b", "c"}),
        (["a", "b"], {"a", "b"}),
        ([",,"], {""}),
    ],
)
def test_a_connection_header_names_others(values: list[str], names: set[str]) -> None:
    assert connection_named(values) == names


NAMES = st.sampled_from([*sorted(HOP_BY_HOP), "Host", "X-A", "x-b", "Cookie", "Content-Length", "Origin"])


@given(st.lists(st.tuples(NAMES, st.text(st.characters(codec="ascii"), max_size=5))), st.booleans(), st.booleans())
def test_nothing_that_is_kept_back_gets_through(
    headers: list[tuple[str, str]], own_body: object, authorization: object
) -> None:
    sent = CIMultiDict(headers)
    up = for_upstream(sent, own_body=bool(own_body), authorization=bool(authorization))
    assert not {name.lower() for name in up} & {*HOP_BY_HOP, "host", "origin", "cookie"}
    assert not {name.lower() for name in for_client(sent)} & HOP_BY_HOP
