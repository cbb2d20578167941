"""Metadata and tensor names of a GGUF file, without reading a single weight.

The format is ggml's (`docs/gguf.md`), versions 2 and 3, little endian: a header, key-value pairs, tensor infos. The
file is mapped, so only the pages of the header are touched. Every length in it is checked against the bytes that are
really there before anything is allocated: a hostile file gives a `GGUFError`, never a crash or a gigabyte.
"""

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama_gate.errors import GateError

Buffer = bytes | mmap.mmap

MAGIC = b"GGUF"
VERSIONS = (2, 3)

STRING, ARRAY, BOOL = 8, 9, 7
SCALARS: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    BOOL: "B",
    10: "Q",
    11: "q",
    12: "d",
}
"""GGUF value type → struct code."""

MAX_DEPTH = 4
"""Arrays of arrays exist in the format and nowhere in practice; deeper ones are refused."""
MAX_DIMENSIONS = 8
"""ggml knows four (GGML_MAX_DIMS)."""

U32 = struct.Struct("<I").unpack_from
U64 = struct.Struct("<Q").unpack_from


class GGUFError(GateError):
    """The file is not a GGUF, is cut short, or lies about a length."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What the file says about one tensor."""

    name: str
    shape: tuple[int, ...]
    """Dimensions as stored: the row length first."""
    type: int
    """ggml's type number (0 f32, 1 f16, 2 q4_0 …)."""
    offset: int
    """Bytes from the start of the data section."""


@dataclass(frozen=True, slots=True, eq=False)
class GGUF:
    """The header of one file."""

    version: int
    metadata: Mapping[str, Any]
    """Keys and values in file order. Strings are str (bad UTF-8 becomes U+FFFD), arrays are lists, bytes arrays too."""
    tensors: tuple[TensorInfo, ...]


def read(path: Path, *, tensors: bool = True) -> GGUF:
    """Read the header of the file at `path`.

    Args:
        path: The file, e.g. a model blob of Ollama's store.
        tensors: Whether to list the tensors; without, reading ends with the metadata.

    Raises:
        GGUFError: The content cannot be used.
        OSError: The file cannot be opened.
    """
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # an empty file cannot be mapped
            raise GGUFError("the file is empty") from error
        with mapped:
            return parse(mapped, tensors=tensors)


def parse(data: Buffer, *, tensors: bool = True) -> GGUF:
    """Read a header from bytes or a mapping.

    Raises:
        GGUFError: The content cannot be used.
    """
    try:
        return _parse(data, tensors=tensors)
    except struct.error as error:
        raise GGUFError("the file ends inside its header") from error


def _parse(data: Buffer, *, tensors: bool) -> GGUF:
    if data[:4] != MAGIC:
        raise GGUFError("not a GGUF file: the magic bytes are missing")
    version = U32(data, 4)[0]
    if version not in VERSIONS:
        # A big-endian file shows here as a huge version.
        raise GGUFError(f"GGUF version {version} is not one of {', '.join(map(str, VERSIONS))} (little endian)")
    reader = _Reader(data, 8)
    tensor_count = reader.u64()
    pair_count = reader.u64()
    reader.expect(pair_count, least=13)  # key length, one value type, one byte
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = reader.string()
        if key in metadata:
            raise GGUFError(f"the key {key!r} is there twice")
        metadata[key] = reader.value(reader.u32())
    if not tensors:
        return GGUF(version, metadata, ())
    reader.expect(tensor_count, least=24)
    return GGUF(version, metadata, tuple(reader.tensor() for _ in range(tensor_count)))


class _Reader:
    """A cursor over the header that believes no length."""

    def __init__(self, data: Buffer, at: int) -> None:
        self.data = data
        self.at = at
        self.size = len(data)

    def expect(self, count: int, least: int) -> None:
        """Check that `count` items of at least `least` bytes can still follow."""
        if count * least > self.size - self.at:
            raise GGUFError(f"{count} items are announced at byte {self.at}, but the file has {self.size} bytes")

    def u32(self) -> int:
        value: int = U32(self.data, self.at)[0]
        self.at += 4
        return value

    def u64(self) -> int:
        value: int = U64(self.data, self.at)[0]
        self.at += 8
        return value

    def string(self) -> str:
        length = self.u64()
        self.expect(length, least=1)
        start, self.at = self.at, self.at + length
        return self.data[start : self.at].decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array(depth + 1)
        code = SCALARS.get(kind)
        if code is None:
            raise GGUFError(f"unknown value type {kind} at byte {self.at}")
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return bool(value) if kind == BOOL else value

    def array(self, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise GGUFError("arrays are nested too deeply")
        kind = self.u32()
        count = self.u64()
        if kind == STRING:
            self.expect(count, least=8)
            return self.strings(count)
        if kind == ARRAY:
            self.expect(count, least=12)
            return [self.value(kind, depth) for _ in range(count)]
        code = SCALARS.get(kind)
        if code is None:
            raise GGUFError(f"unknown value type {kind} at byte {self.at}")
        size = struct.calcsize("<" + code)
        self.expect(count, least=size)
        values = list(struct.unpack_from(f"<{count}{code}", self.data, self.at))
        self.at += count * size
        return [bool(value) for value in values] if kind == BOOL else values

    def strings(self, count: int) -> list[str]:
        # The hot loop: a vocabulary has a quarter of a million of these, its merges half a million.
        data, at, size = self.data, self.at, self.size
        u64: Callable[..., tuple[int]] = U64
        found: list[str] = []
        append = found.append
        for _ in range(count):
            start = at + 8
            at = start + u64(data, at)[0]
            if at > size:
                raise GGUFError(f"a string at byte {start} runs past the end of the file")
            append(data[start:at].decode("utf-8", "replace"))
        self.at = at
        return found

    def tensor(self) -> TensorInfo:
        name = self.string()
        dimensions = self.u32()
        if dimensions > MAX_DIMENSIONS:
            raise GGUFError(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self.u64() for _ in range(dimensions))
        kind = self.u32()
        return TensorInfo(name, shape, kind, self.u64())
