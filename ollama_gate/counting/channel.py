"""Messages between the gate and a tokenizer's process: length-prefixed frames on a socket, and what is in them.

A request is an operation, the number of texts, their lengths and their UTF-8 bytes; an answer is a status and numbers,
or JSON. Both ends are this program's, but a length is never believed beyond `MAX_FRAME`.
"""

import socket
import struct
from collections.abc import Sequence
from enum import IntEnum

HEAD = struct.Struct("<Q")
MAX_FRAME = 1 << 30


class Operation(IntEnum):
    """What is asked of a tokenizer's process."""

    COUNT = 1
    """Tokens of each text: one number each."""
    IDS = 2
    """Ids of one text: one number each."""
    PIECES = 3
    """Texts of the tokens of one text, as JSON."""


class Status(IntEnum):
    """How it went."""

    DONE = 0
    FAILED = 1
    """The rest of the answer is the reason."""


def send(channel: socket.socket, payload: bytes) -> None:
    """Send one frame.

    Raises:
        OSError: The other end is gone, or does not read (TimeoutError).
    """
    channel.sendall(HEAD.pack(len(payload)) + payload)  # at once, so that the other end is woken once


def receive(channel: socket.socket) -> bytes | None:
    """Wait for one frame; None when the other end has closed.

    Raises:
        OSError: The connection broke inside a frame, or nothing came in time (TimeoutError).
    """
    head = _exactly(channel, HEAD.size)
    if head is None:
        return None
    (size,) = HEAD.unpack(head)
    if size > MAX_FRAME:
        raise OSError(f"a frame of {size} bytes was announced")
    payload = _exactly(channel, size)
    if payload is None and size:
        raise ConnectionResetError("the connection ended inside a frame")
    return payload or b""


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    received = bytearray(size)
    view = memoryview(received)
    at = 0
    while at < size:
        count = channel.recv_into(view[at:])
        if not count:
            if at:
                raise ConnectionResetError("the connection ended inside a frame")
            return None
        at += count
    return bytes(received)


def pack_texts(operation: Operation, texts: Sequence[str]) -> bytes:
    """A request; lone surrogates go as they are and are replaced by the tokenizer."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = struct.pack(f"<BI{len(encoded)}I", operation, len(encoded), *map(len, encoded))
    return lengths + b"".join(encoded)


def unpack_texts(request: bytes) -> tuple[Operation, list[str]]:
    """What `pack_texts` packed."""
    operation, count = struct.unpack_from("<BI", request)
    lengths = struct.unpack_from(f"<{count}I", request, 5)
    texts: list[str] = []
    at = 5 + 4 * count
    for length in lengths:
        texts.append(request[at : at + length].decode("utf-8", "surrogatepass"))
        at += length
    return Operation(operation), texts


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """An answer of numbers."""
    return struct.pack(f"<B{len(numbers)}I", Status.DONE, *numbers)


def unpack_numbers(body: bytes) -> list[int]:
    """What `pack_numbers` packed, without its first byte."""
    return list(struct.unpack(f"<{len(body) // 4}I", body))
