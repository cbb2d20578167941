import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.catalog import gguf
from ollama_gate.catalog.gguf import GGUFError, TensorInfo
from support.small_vocabularies import byte_level, gguf_bytes

WORDS = st.text(max_size=8).filter(lambda text: "\ud800" not in text)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.floats(width=32, allow_nan=False), WORDS)
LISTS = st.one_of(
    st.lists(st.booleans(), min_size=1), st.lists(st.integers(0, 9), min_size=1), st.lists(WORDS, min_size=1)
)
METADATA = st.dictionaries(WORDS, st.one_of(SCALARS, LISTS, st.lists(LISTS, min_size=1, max_size=3)), max_size=6)


@given(METADATA)
def test_every_value_comes_back(values: dict[str, Any]) -> None:
    assert gguf.parse(gguf_bytes(values)).metadata == values


@given(METADATA, st.data())
def test_a_file_cut_short_is_an_error_of_ours(values: dict[str, Any], data: st.DataObject) -> None:
    whole = gguf_bytes(values, [("token_embd.weight", (4, 8), 0, 0)])
    with pytest.raises(GGUFError):
        gguf.parse(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(METADATA, st.data())
def test_a_damaged_file_never_crashes(values: dict[str, Any], data: st.DataObject) -> None:
    damaged = bytearray(gguf_bytes(values, [("token_embd.weight", (4, 8), 0, 0)]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        gguf.parse(bytes(damaged))
    except GGUFError as error:
        assert str(error)  # noqa: PT017 - either outcome is right, another exception is not


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_are_listed_without_their_data(version: int) -> None:
    read = gguf.parse(
        gguf_bytes({"a": 1}, [("v.blk", (2, 3, 4), 12, 64), ("token_embd.weight", (640, 262144), 1, 0)], version)
    )

    assert read.version == version
    assert read.tensors == (
        TensorInfo("v.blk", (2, 3, 4), 12, 64),
        TensorInfo("token_embd.weight", (640, 262144), 1, 0),
    )


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "sha256-0123"
    path.write_bytes(gguf_bytes(byte_level(), [("output.weight", (1,), 0, 0)]))

    assert gguf.read(path).metadata == byte_level()
    assert gguf.read(path, tensors=False).tensors == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "magic"),
        (b"GGML" + bytes(40), "magic"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "are announced"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "are announced"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 40) + bytes(9), "are announced"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QBI", 1, 65, 99) + bytes(9), "type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QBIIQ", 1, 65, 9, 8, 1 << 50), "are announced"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QBIIQQ", 1, 65, 9, 8, 1, 1 << 50), "runs past"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QBI", 1, 65, 9) + struct.pack("<IQ", 9, 1) * 6,
            "nested",
        ),
        (gguf_bytes({}, [("t", range(9), 0, 0)]), "9 dimensions"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, said: str) -> None:
    with pytest.raises(GGUFError, match=said):
        gguf.parse(data)


def test_a_key_that_is_there_twice_is_refused() -> None:
    once = gguf_bytes({"a": 1})
    twice = once[:8] + struct.pack("<QQ", 0, 2) + once[24:] * 2
    with pytest.raises(GGUFError, match="twice"):
        gguf.parse(twice)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(GGUFError, match="empty"):
        gguf.read(path)


def test_bad_utf8_becomes_the_replacement_character() -> None:
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QBIQ", 1, 65, 8, 2) + b"\xff!"
    assert gguf.parse(data).metadata == {"A": "\ufffd!"}
