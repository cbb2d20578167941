import contextlib
import json
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.wire import repair as mending
from ollama_gate.wire.repair import TooBroken, repair


def go_text(string: bytes) -> str:
    """What Go's `encoding/json` makes of the inside of a valid JSON string, byte by byte (`decode.go:unquoteBytes`)."""
    out = []
    position = 0
    while position < len(string):
        rest = string[position:]
        if match := re.match(rb"\\u([0-9a-fA-F]{4})", rest):
            unit = int(match[1], 16)
            position += 6
            if 0xD800 <= unit < 0xE000:
                low = re.match(rb"\\u([dD][c-fC-F][0-9a-fA-F]{2})", string[position:])
                if unit < 0xDC00 and low:
                    out.append(chr(0x10000 + ((unit - 0xD800) << 10) + int(low[1], 16) - 0xDC00))
                    position += 6
                else:
                    out.append("\ufffd")
            else:
                out.append(chr(unit))
        elif rest[:1] == b"\\":
            out.append(json.loads(b'"' + rest[:2] + b'"'))
            position += 2
        else:
            for size in (1, 2, 3, 4):
                try:
                    out.append(rest[:size].decode())
                except UnicodeDecodeError:
                    continue
                position += size
                break
            else:
                out.append("\ufffd")
                position += 1
    return "".join(out)


PIECES = st.sampled_from(
    [
        b"\\\\",
        b'\\"',
        b"\\n",
        b"\\ud83d",
        b"\\uD800",
        b"\\ude00",
        b"\\uDFFF",
        b"\\u0041",
        b"\\ufffd",
        b"ud83d",
        b"a",
        "é".encode(),
        "日".encode(),
        "😀".encode(),
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\x80",
        b"\xc0\xaf",
    ]
)


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_text_is_mended_as_go_mends_it(inside: bytes) -> None:
    assert orjson.loads(repair(b'["' + inside + b'"]')) == [go_text(inside)]


@given(st.lists(PIECES, max_size=40).map(b"".join), st.integers(2, 40))
def test_it_is_mended_the_same_in_pieces_of_any_size(inside: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mending, "_PIECE", size)
        assert orjson.loads(repair(b'["' + inside + b'"]')) == [go_text(inside)]


@pytest.mark.parametrize(
    "run", [b"\xe6\xbc\xa2", b"\x80", b"\xff", b"a", b"\\\\", b"\\ud83d", b"\\ude00", b"\\ud83d\\ude00", b"\\u0041"]
)
def test_nothing_long_is_mended_in_one_go(run: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    mended = mending._mended

    def noted(raw: bytes) -> tuple[bytes, int, int]:
        lengths.append(len(raw))
        return mended(raw)

    monkeypatch.setattr(mending, "_mended", noted)
    with contextlib.suppress(TooBroken):
        repair(b'{"a":"' + run * (1_000_000 // len(run)) + b'\xff"}')
    assert max(lengths) < 66_000


@pytest.mark.parametrize(
    "sound",
    [b"", b"{}", b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\\\ud800 \\\\\\\\udc00"}', '{"é":"😀"}'.encode(), b"not json"],
)
def test_what_needs_no_mending_is_returned_itself(sound: bytes) -> None:
    assert repair(sound) is sound


def test_bytes_that_are_not_utf_8_count_one_by_one() -> None:
    assert repair(b"a\xed\xa0\x80\xe2\x82b").decode() == "a" + "\ufffd" * 5 + "b"


def test_more_than_an_accident_is_not_mended() -> None:
    assert len(repair(b"\xff" * 100_000)) == 300_000
    with pytest.raises(TooBroken):
        repair(b"\xff" * 100_001)
    with pytest.raises(TooBroken):
        repair(b"\\udc00" * 50_001 + b"\\ud800" * 50_000)
