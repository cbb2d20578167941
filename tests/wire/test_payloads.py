"""Large payloads: taken out, stood in for, and put back in their places to the byte."""

import base64
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.dialects.media import base64_fault
from ollama_gate.wire.payloads import LEAST, Lifted, StandIns, TooMuchText, in_pieces, lift

MOST = 1 << 30
IMAGE = base64.b64encode(bytes(range(256)) * 256).decode()
"""87,384 characters, with padding."""
OTHER = base64.b64encode(bytes(range(255)) * 256).decode()
"""87,040 characters, without."""


def lifted(body: Any, **how: Any) -> Lifted:
    return lift(json.dumps(body, **how).encode(), MOST)


def whole(text: Lifted) -> bytes:
    return b"".join(StandIns(text.payloads).put_back(text.text))


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,", "data:;base64,"])
def test_an_image_is_taken_out_and_put_back(prefix: str) -> None:
    body = {"model": "m", "images": [prefix + IMAGE, "short", prefix + OTHER], "x": 1}
    found = lifted(body)
    assert len(found.text) < 400
    assert [bytes(one).decode() for one in found.payloads.values()] == [IMAGE, OTHER]
    told = json.loads(found.text)
    assert told["images"][1] == "short"
    assert all(one.startswith(prefix) for one in (told["images"][0], told["images"][2]))
    assert whole(found) == json.dumps(body).encode()


def test_a_stand_in_is_base64_itself_the_same_for_the_same_and_nobody_can_name_one() -> None:
    found = lifted({"images": [IMAGE, IMAGE, OTHER]})
    one, again, other = json.loads(found.text)["images"]
    assert one == again != other
    assert base64_fault(one) is None
    assert len(one) % 4 == 0
    forged = "ollamaGateStandIn+++" + "A" * 40
    text = json.dumps({"images": [forged, IMAGE]}).encode()
    assert whole(lift(text, MOST)) == text


@pytest.mark.parametrize(
    "odd",
    [
        IMAGE[:-1],
        IMAGE[:-1] + "A",
        IMAGE[:50_000] + "=" + IMAGE[50_001:],
        IMAGE[:50_000] + " " + IMAGE[50_001:],
        IMAGE[:50_000] + "é" + IMAGE[50_001:],
        IMAGE[:50_000] + "\n" + IMAGE[50_001:],
        "data:image/png;base64" + IMAGE,
        "x" * 200 + "," + IMAGE,
        IMAGE[: LEAST - 4],
        "word " * 20_000,
        "漢字" * 40_000,
    ],
)
def test_what_is_not_plain_sound_base64_stays_in_the_text(odd: str) -> None:
    for ascii_only in (True, False):
        text = json.dumps({"content": odd}, ensure_ascii=ascii_only).encode()
        found = lift(text, MOST)
        assert (found.text, dict(found.payloads)) == (text, {})


def test_only_what_the_dialects_take_for_base64_is_taken_out() -> None:
    for tail, sound in (("AA==", True), ("AB==", True), ("AAA=", True), ("AA=A", False), ("AA\n=", False)):
        text = "A" * LEAST + tail
        assert (base64_fault(text) is None) is sound, tail
        assert bool(lifted({"images": [text]}).payloads) is sound, tail


def test_text_is_whole_again_before_anything_is_counted_and_images_are_not() -> None:
    body: Any = {
        "model": "m",
        "prompt": OTHER,
        "images": [IMAGE],
        OTHER: 1,
        "messages": [
            {"role": "user", "content": f"look: {IMAGE}", "images": [IMAGE, OTHER]},
            {"role": "assistant", "tool_calls": [{"function": {"arguments": {"images": [IMAGE], OTHER: True}}}]},
            OTHER,
        ],
        "tools": [{"images": IMAGE}],
    }
    found = lifted({**body, "messages": [{**body["messages"][0], "content": IMAGE}, *body["messages"][1:]]})
    told = json.loads(found.text)
    told["messages"][0]["content"] = f"look: {told['messages'][0]['content']}"
    put = StandIns(found.payloads).text_put_back(told, MOST)
    images = (put["images"], put["messages"][0]["images"])
    assert all(len(one) == 60 for some in images for one in some)
    put["images"], put["messages"][0]["images"] = body["images"], body["messages"][0]["images"]
    assert put == body
    assert list(put) == [key for key in body if key != "messages"] + ["messages"]


def test_more_text_than_is_allowed_is_noticed_before_it_is_made() -> None:
    with pytest.raises(TooMuchText):
        lift(b'"' + b"x" * 100 + b'"', 50)
    found = lifted({"prompt": IMAGE})
    with pytest.raises(TooMuchText):
        StandIns(found.payloads).text_put_back(json.loads(found.text), len(IMAGE) - 1)
    assert lift(json.dumps({"images": [IMAGE]}).encode(), 200).payloads


def test_pieces_are_short_and_together_the_same() -> None:
    raw = os.urandom(1000)
    pieces = list(in_pieces([b"a", memoryview(raw), b"b"], most=300))
    assert max(map(len, pieces)) == 300
    assert b"".join(pieces) == b"a" + raw + b"b"


STRINGS = st.sampled_from(
    [
        "",
        "x",
        '"',
        "\\",
        IMAGE,
        OTHER,
        f"data:image/png;base64,{IMAGE}",
        f'a"{OTHER}',
        f"{OTHER}\\",
        "A" * LEAST,
        " " * LEAST,
    ]
)
JSON = st.recursive(
    STRINGS | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=6,
)


@given(body=JSON, array=st.booleans())
def test_any_body_comes_back_to_the_byte(body: Any, *, array: bool) -> None:
    text = json.dumps(body).encode()
    found = lift(bytearray(text) if array else text, MOST)
    assert whole(found) == text
    assert json.loads(whole(found)) == body
    fields = body if isinstance(body, dict) else {"x": body}
    told = json.loads(found.text)
    put = StandIns(found.payloads).text_put_back(told if isinstance(told, dict) else {"x": told}, MOST)
    assert put == fields


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_come_back(noise: bytes, quotes: int) -> None:
    raw = noise + b'"' * quotes + IMAGE.encode() + b'"' * quotes + noise
    assert whole(lift(raw, MOST)) == raw
