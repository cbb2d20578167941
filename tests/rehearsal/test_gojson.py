"""Go's JSON: what it reads where others refuse, what it says when it refuses, and how it writes."""

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.rehearsal import forms, gojson, structs
from ollama_gate.rehearsal.gojson import JsonError, Pairs

# What encoding/json says, by its scanner.go and decode.go.
COMPLAINTS = [
    (b"", "EOF"),
    (b"  \n", "EOF"),
    (b'{"model":', "unexpected EOF"),
    (b'{"a":"b', "unexpected EOF"),
    (b"[1,", "unexpected EOF"),
    (b"tru", "unexpected EOF"),
    (b"\x1f\x8b", "invalid character '\\x1f' looking for beginning of value"),
    (b"(\xb5/\xfd", "invalid character '(' looking for beginning of value"),
    (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
    (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
    (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    (b'{"a" 1}', "invalid character '1' after object key"),
    (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    (b"[1 2]", "invalid character '2' after array element"),
    (b"[1,]", "invalid character ']' looking for beginning of value"),
    (b'"a\nb"', "invalid character '\\n' in string literal"),
    (b'"\\q"', "invalid character 'q' in string escape code"),
    (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
    (b"nul1", "invalid character '1' in literal null (expecting 'l')"),
    (b"[-x]", "invalid character 'x' in numeric literal"),
    (b"[1.x]", "invalid character 'x' after decimal point in numeric literal"),
    (b"[1e+x]", "invalid character 'x' in exponent of numeric literal"),
    (b"NaN", "invalid character 'N' looking for beginning of value"),
    (b"'a'", "invalid character '\\'' looking for beginning of value"),
]


@pytest.mark.parametrize(("body", "text"), COMPLAINTS)
def test_complains_as_go_does(body: bytes, text: str) -> None:
    with pytest.raises(JsonError) as refused:
        gojson.read(body)
    assert str(refused.value) == text


def test_ignores_what_follows_the_first_value() -> None:
    assert gojson.read(b' {"a":1} garbage') == Pairs([("a", 1)])


def test_keeps_duplicates_in_order() -> None:
    assert gojson.read(b'{"a":1,"A":2,"a":3}') == Pairs([("a", 1), ("A", 2), ("a", 3)])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'"\\ud800"', "\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd" * 3),
        (b'"a\xffb"', "a\ufffdb"),
        (b'"\\ud83d\\ude00"', "😀"),
    ],
)
def test_repairs_text_as_go_does(body: bytes, text: str) -> None:
    assert gojson.plain(gojson.read(body)) == text


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(JsonError, match="exceeded max depth"):
        gojson.read(b"[" * 200_000 + b"]" * 200_000)


def test_huge_numbers_do_not_break_it() -> None:
    assert gojson.read(b"[" + b"9" * 5000 + b"]") == [math.inf]


def test_escapes_what_go_escapes() -> None:
    assert (
        gojson.write("<a>&\u2028\u2029\n\x01é\x7f")
        == rb'"\u003ca\u003e\u0026\u2028\u2029\n\u0001' + "é\x7f".encode() + b'"'
    )


scalars = st.none() | st.booleans() | st.text() | st.integers(-(2**53), 2**53)


@given(st.recursive(scalars, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=8))
def test_what_is_written_is_read_back(value: object) -> None:
    assert gojson.plain(gojson.read(gojson.write(value))) == value


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        (0.1, "0.1"),
        (-0.47702485, "-0.47702485"),
        (1.0, "1"),
        (0.0, "0"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (2.5e-9, "2.5e-9"),
        (1e22, "1e+22"),
    ],
)
def test_writes_32_bit_floats_as_go_does(value: float, digits: str) -> None:
    assert gojson.float32(value).decode() == digits


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_32_bit_floats_come_back_exactly(value: float) -> None:
    written = json.loads(gojson.float32(value))
    assert struct.pack("f", written) == struct.pack("f", value) or value == written == 0


def read(body: str) -> dict[str, object]:
    return structs.read(body.encode(), forms.CHAT, "ChatRequest")


def test_field_names_match_in_any_case_and_the_last_wins() -> None:
    assert read('{"model":"a","MODEL":"b"}')["model"] == "b"
    assert read('{"\\u017fhift":false,"trunCATE":false}') == {"shift": False, "truncate": False}


def test_options_are_merged_and_their_names_are_exact() -> None:
    body = '{"options":{"num_ctx":1,"NUM_CTX":2},"Options":{"seed":3}}'
    assert read(body)["options"] == {"num_ctx": 1, "NUM_CTX": 2, "seed": 3}


def test_a_second_list_of_messages_replaces_the_first() -> None:
    body = '{"messages":[{"role":"user","content":"a","tool_name":"x"}],"messages":[{"role":"user"}]}'
    assert read(body)["messages"] == [{"role": "user"}]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("[1]", "json: cannot unmarshal array into Go value of type api.ChatRequest"),
        ('{"model":1}', "json: cannot unmarshal number into Go struct field ChatRequest.model of type string"),
        (
            '{"messages":{}}',
            "json: cannot unmarshal object into Go struct field ChatRequest.messages of type []api.Message",
        ),
        (
            '{"top_logprobs":1.5}',
            "json: cannot unmarshal number 1.5 into Go struct field ChatRequest.top_logprobs of type int",
        ),
        ('{"messages":[{"images":["%"]}]}', "illegal base64 data at input byte 0"),
        ('{"keep_alive":"abc"}', 'time: invalid duration "abc"'),
        ('{"keep_alive":"-1"}', 'time: missing unit in duration "-1"'),
        ('{"keep_alive":"1h5x3s"}', 'time: unknown unit "x" in duration "1h5x3s"'),
        ("", "missing request body"),
    ],
)
def test_wrong_types_are_told_as_go_tells_them(body: str, text: str) -> None:
    with pytest.raises(JsonError) as refused:
        read(body)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("100ms", 0.1),
        (60, 60.0),
        (-1, math.inf),
        ("-1s", math.inf),
        (0, 0.0),
        ("0", 0.0),
    ],
)
def test_durations(given: object, seconds: float) -> None:
    assert forms.seconds(given) == pytest.approx(seconds)
