import contextlib
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ollama_gate.dialects.native import FIELDS
from ollama_gate.errors import Refusal, Refused
from ollama_gate.wire.body import BodyLimits, decode_json, encode_json
from ollama_gate.wire.folding import fold

RECORDED = Path(__file__).parent.parent / "data" / "wire"
CHAT = FIELDS["/api/chat"]


def refusal_of(raw: bytes, limits: BodyLimits | None = None) -> Refusal:
    with pytest.raises(Refused) as caught:
        decode_json(raw, limits or BodyLimits())
    return caught.value.refusal


def recorded(name: str) -> dict[str, Any]:
    exchange: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return exchange


# --- what Ollama was recorded to do


def test_bytes_after_the_first_value_are_ignored() -> None:
    exchange = recorded("http-trailing-bytes")
    assert exchange["response"]["status"] == 200
    raw = exchange["request"]["body"].encode()
    value = decode_json(raw)
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(raw)
    assert value == json.JSONDecoder().raw_decode(raw.decode())[0]


@pytest.mark.parametrize("name", ["native-chat-empty-body", "native-chat-bad-json", "v1-chat-bad-json"])
def test_what_ollama_refused_to_decode_is_refused(name: str) -> None:
    exchange = recorded(name)
    assert exchange["response"]["status"] == 400
    refusal = refusal_of((exchange["request"]["body"] or "").encode())
    assert (refusal.status, refusal.code) == (400, "invalid_json")


@pytest.mark.parametrize("raw", [b"", b" \r\n\t "])
def test_an_empty_body_is_refused_in_ollamas_words(raw: bytes) -> None:
    answer = "".join(recorded("native-chat-empty-body")["response"]["chunks"])
    assert json.loads(answer)["error"] == refusal_of(raw).message


@pytest.mark.parametrize("name", ["key-duplicate-messages", "key-duplicate-options-merged", "over-chat-dup-key"])
def test_a_key_that_ollama_read_twice_is_refused(name: str) -> None:
    exchange = recorded(name)
    with pytest.raises(Refused) as caught:
        fold(decode_json(exchange["request"]["body"].encode()), CHAT)
    assert (caught.value.refusal.status, caught.value.refusal.code) == (400, "ambiguous_keys")
    assert caught.value.refusal.param in {"messages", "options", "truncate"}


def test_halves_of_surrogate_pairs_become_replacement_characters_and_whole_pairs_survive() -> None:
    raw = rb'{"content":"left \ud83d right, then a whole \ud83d\ude00, then a low one alone \udc8d, then \u0000 end"}'
    content = decode_json(raw)["content"]
    assert content == "left \ufffd right, then a whole \U0001f600, then a low one alone \ufffd, then \x00 end"
    assert decode_json(encode_json({"content": content})) == {"content": content}


# --- what is refused, and in which words


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"a":NaN}', "line 1, column 6"),
        (b'{"a":-Infinity}', "not valid JSON"),
        (b'{"a":1e400}', "not valid JSON"),
        (b'{"a":' + b"9" * 5_000_000 + b"}", "not valid JSON"),
        (b'{"a":01}', "not valid JSON"),
        (b'{\n "a" : tru}', "line 2"),
        (b'{"a":1', "not valid JSON"),
        (b'{"a":1,}', "not valid JSON"),
        (b"{'a':1}", "line 1, column 2"),
        (b'{"a":"\n"}', "not valid JSON"),
        (b'{"a":"\\x"}', "not valid JSON"),
        (b"\x00", "not valid JSON"),
        (b"model=llama&prompt=hi", "line 1, column 1"),
        (b"[]", "not an array"),
        (b"null", "not null"),
        (b"true", "not a boolean"),
        (b'"{}"', "not a string"),
        (b"12", "not a number"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "nested too deeply"),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b"[" * 1_000_000, "more than 300000 values"),
        (b'{"a":[' + b"{}," * 20_000 + b"{}]}", "more than 20000 objects"),
        (b"{" + b'"":0,' * 80_000 + b'"":0}', "more than 80000 keys"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(raw: bytes, part: str) -> None:
    refusal = refusal_of(raw)
    assert (refusal.status, refusal.code) == (400, "invalid_json")
    assert part in refusal.message
    assert len(refusal.message) < 200


def test_nesting_that_can_be_sent_on_is_accepted() -> None:
    value = decode_json(b'{"a":' * 250 + b"1" + b"}" * 250)
    assert len(encode_json(value)) == 250 * 6 + 1


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":[' + b"[]," * 60 + b"[]]}",
        b'{"a":[' + b"{}," * 60 + b"{}]}",
        b'{"a":[' + b'"",' * 60 + b'""]}',
        b"[" * 150,
        b'{"a":[' + b"0," * 60 + b"0]}",
    ],
)
def test_a_body_of_nothing_but_values_is_refused_before_it_is_parsed(raw: bytes) -> None:
    assert "more than 50 values" in refusal_of(raw, BodyLimits(values=50)).message


def test_values_are_not_counted_inside_strings() -> None:
    content = ',[{"\\' * 1000
    raw = json.dumps({"content": content}).encode()
    assert decode_json(raw, BodyLimits(values=50)) == {"content": content}


def test_a_body_full_of_broken_bytes_is_refused() -> None:
    assert "not UTF-8" in refusal_of(b'{"a":"' + b"\xff" * 100_001 + b'"}').message
    assert "surrogate" in refusal_of(b'{"a":"' + rb"\ud800" * 100_001 + b'"}').message


# --- numbers


@pytest.mark.parametrize("number", [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1])
def test_integers_of_up_to_64_bits_survive_exactly(number: int) -> None:
    assert encode_json(decode_json(b'{"seed":%d}' % number)) == b'{"seed":%d}' % number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_exactly(number: float) -> None:
    assert decode_json(encode_json({"x": number}))["x"] == number


def test_longer_integers_become_doubles_as_in_go() -> None:
    assert decode_json(b'{"x":123456789012345678901234}') == {"x": 1.2345678901234568e23}


# --- duplicates


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b'{"model":"a","model":"a"}', "model"),
        (b'{"model":"a","mode\\u006c":"b"}', "model"),
        (b'{"messages":[{"role":"user","content":"a","content":"b"}]}', "content"),
        (b'{"options":{"seed":1,"num_ctx":2,"seed":3}}', "seed"),
        (b'{"a":{"x:y":1,"x\\u003ay":2}}', "x:y"),
        (b'{"a":{"x":":::","x":"b"},"c":"\\u003a\\u003A\\u003a\\u003a"}', "x"),
        (b'{"a":1,"b":"\\u003a","a" : 2}', "a"),
        (b'{"\\ud800":1,"\\udc00":2}', "\ufffd"),
        (b'{"a":0,"a":%s}' % (b"9" * 300), "a"),
    ],
)
def test_a_key_twice_in_one_object_is_refused_however_it_is_spelled(raw: bytes, key: str) -> None:
    refusal = refusal_of(raw)
    assert (refusal.code, refusal.param) == ("ambiguous_keys", key)


def test_a_key_after_the_first_value_does_not_count() -> None:
    assert decode_json(b'{"a":1} {"a":2}') == {"a": 1}
    assert decode_json('{"é":"\\ud800"} \xff{'.encode("latin-1").replace(b"\xe9", "é".encode())) == {"é": "\ufffd"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=6)
    | st.sampled_from([":", '":', "\\"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(':"\\abé', max_size=4), inner, max_size=4),
    max_leaves=12,
)


def written(pairs: list[tuple[str, Any]], *, ascii_only: bool, spaced: bool, hex_colon: bool) -> bytes:
    """An object with every pair it is given, whether or not their keys are equal."""
    comma, colon = separators = (" , ", " : ") if spaced else (",", ":")
    rows = []
    for key, value in pairs:
        name = json.dumps(key, ensure_ascii=ascii_only)
        name = name.replace(":", "\\u003a") if hex_colon else name
        rows.append(name + colon + json.dumps(value, ensure_ascii=ascii_only, separators=separators))
    return ("{" + comma.join(rows) + "}").encode()


@given(
    st.lists(st.tuples(st.text(':"\\ab', max_size=2), JSON), max_size=5),
    st.fixed_dictionaries({"ascii_only": st.booleans(), "spaced": st.booleans(), "hex_colon": st.booleans()}),
)
@example([("a", ":"), ("a", "")], {"ascii_only": False, "spaced": False, "hex_colon": False})
def test_duplicates_are_refused_exactly_when_there_are_some(pairs: list[tuple[str, Any]], how: dict[str, bool]) -> None:
    raw = written(pairs, **how)
    if len({key for key, _ in pairs}) == len(pairs):
        assert decode_json(raw) == dict(pairs)
    else:
        assert refusal_of(raw).code == "ambiguous_keys"


@given(st.binary(max_size=80) | st.text('{}[]":,\\ud8dc00 \n', max_size=60).map(str.encode))
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes) -> None:
    with contextlib.suppress(Refused):
        value = decode_json(raw)
        assert decode_json(encode_json(value)) == value


# --- the way out


def test_what_a_client_hid_in_a_string_is_refused_on_the_way_out() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    for value in (deep, 2**64, "\ud800"):
        with pytest.raises(Refused) as caught:
            encode_json({"arguments": value})
        assert caught.value.refusal.code == "invalid_json"


def test_a_value_of_the_gates_own_that_is_no_json_is_a_bug_and_not_a_refusal() -> None:
    with pytest.raises(TypeError):
        encode_json({"a": object()})
