"""Reading the key/values of a GGUF file (`ggml/docs/gguf.md`, version 2 and 3); tensors are not touched."""

import mmap
import struct
from pathlib import Path
from typing import Any

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read_metadata(path: Path) -> dict[str, Any]:
    """All key/values of the file at `path`.

    Raises:
        ValueError: for a file that is not GGUF.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file")
        reader = _Reader(data)
        reader.take("<I")  # version
        reader.take("<Q")  # tensors
        return {reader.string(): reader.value(reader.take("<I")) for _ in range(reader.take("<Q"))}


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 4

    def take(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def string(self) -> str:
        size = self.take("<Q")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.take("<" + _SCALARS[kind])
        item, count = self.take("<I"), self.take("<Q")
        if item in {_STRING, _ARRAY}:
            return [self.value(item) for _ in range(count)]
        layout = f"<{count}{_SCALARS[item]}"
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return list(values)
