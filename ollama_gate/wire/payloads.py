"""Large payloads taken out of a body before it is decoded, and put back when it is sent.

A body of many megabytes is images in base64: text of that size fits no window. An image is never looked into, so its
base64 need not pass through a JSON parser, become a string, be encoded again and be copied at each of these. In its
place a stand-in passes: base64 too, short, made from the payload's hash with a key of this process, so that the same
payload has the same stand-in and no client can name one. What a stand-in stands for in a place that is text is put back
before anything is counted.

Everything is looked at in pieces of a megabyte, so that it can be done in a thread while others run.
"""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LEAST: Final = 64 * 1024
"""Bytes of base64 that are worth a stand-in."""
_STEP: Final = 1 << 20
_THREES: Final = 3 << 18
"""Bytes that become a step of base64, without padding between two of them."""
_SECRET: Final = secrets.token_bytes(32)
_MARK: Final = "ollamaGateStandIn+++"
"""How each stand-in begins: 20 characters, so that with 40 of its hash it is whole groups of four."""
_LENGTH: Final = len(_MARK) + 40
_ALPHABET: Final = bytes(sorted(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
_PAD: Final = ord("=")
_LONGEST_PREFIX: Final = 128
"""Characters that may stand before a payload in its string: `data:image/png;base64,`."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A body whose large payloads were taken out."""

    text: bytes
    """The JSON text, with stand-ins."""
    payloads: Mapping[str, memoryview] = field(default_factory=dict)
    """Base64 by stand-in."""


class TooMuchText(ValueError):
    """What is no payload is longer than allowed."""


def lift(raw: bytes | bytearray, most: int) -> Lifted:
    """Take large base64 payloads out of a JSON text.

    Only whole strings are taken, or what follows the comma of a `data:` URL, and only sound base64 without a break or
    an escape. Whatever else is long stays in the text.

    Args:
        raw: the JSON text.
        most: bytes that may stay in it.

    Raises:
        TooMuchText: more would.
    """
    whole = memoryview(raw)
    parts: list[bytes | memoryview] = []
    payloads: dict[str, memoryview] = {}
    kept = 0
    for start, end in _long_strings(raw):
        begin = _payload(raw, start, end)
        if end - begin < LEAST:
            continue
        sound, digest = _looked_at(whole, begin, end)
        if sound:
            stand_in = _MARK + base64.b64encode(digest).decode()
            payloads[stand_in] = whole[begin:end]
            parts += [whole[kept:begin], stand_in.encode()]
            kept = end
    parts.append(whole[kept:])
    if sum(map(len, parts)) > most:
        raise TooMuchText
    if not payloads:
        return Lifted(bytes(raw))
    return Lifted(b"".join(parts), payloads)


def spelled(data: bytes | bytearray) -> Lifted:
    """Bytes as the text of a JSON string in base64, or the stand-in of a long one and what it stands for."""
    text = bytearray()
    for at in range(0, len(data), _THREES):
        text += binascii.b2a_base64(data[at : at + _THREES], newline=False)
    if len(text) < LEAST:
        return Lifted(bytes(text))
    whole = memoryview(text)
    mark = hashlib.blake2b(digest_size=30, key=_SECRET)
    for at in range(0, len(text), _STEP):
        mark.update(whole[at : at + _STEP])
    stand_in = _MARK + base64.b64encode(mark.digest()).decode()
    return Lifted(stand_in.encode(), {stand_in: whole})


def _long_strings(raw: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Runs of at least `LEAST` bytes between two quotes. Whether they are strings, or what stands between, is not said.

    A look backward from every `LEAST`-th byte finds the last quote: only where there is none, a run is that long.
    """
    at, size = 0, len(raw)
    while at + LEAST < size:
        quote = raw.rfind(b'"', at, at + LEAST)
        if quote >= 0:
            at = quote + 1
            continue
        end = raw.find(b'"', at + LEAST)
        if end < 0:
            return
        yield at, end
        at = end + 1


def _payload(raw: bytes | bytearray, start: int, end: int) -> int:
    """Where the payload of a run begins: at its start, or behind the comma of a `data:` URL."""
    if raw[start : start + 5] != b"data:":
        return start
    comma = raw.find(b",", start, min(start + _LONGEST_PREFIX, end))
    return comma + 1 if comma >= 0 else start


def _looked_at(whole: memoryview, begin: int, end: int) -> tuple[bool, bytes]:
    """Whether this is sound base64, as strictly as Go's decoder takes it, and its hash."""
    mark = hashlib.blake2b(digest_size=30, key=_SECRET)
    if (end - begin) % 4:
        return False, b""
    padding = bytes(whole[end - 2 : end]).count(b"=")
    if padding == 1 and whole[end - 1] != _PAD:
        return False, b""
    for at in range(begin, end, _STEP):
        piece = bytes(whole[at : min(at + _STEP, end)])
        mark.update(piece)
        plain = piece[: len(piece) - padding] if at + _STEP >= end else piece
        if plain.translate(None, _ALPHABET):
            return False, b""
    return True, mark.digest()


class _TextPutBack:
    """Puts payloads back into texts, as long as there is room.

    No functions that call one another: such a knot would keep a whole body until Python looks for cycles.
    """

    __slots__ = ("_payloads", "_room")

    def __init__(self, payloads: Mapping[str, memoryview], room: int) -> None:
        self._payloads = payloads
        self._room = room

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {self._whole(key): value if key == "images" else self.value(value) for key, value in fields.items()}

    def value(self, value: Any) -> Any:
        match value:
            case str():
                return self._whole(value)
            case dict():
                return {self._whole(key): self.value(one) for key, one in value.items()}
            case list():
                return [self.value(one) for one in value]
            case _:
                return value

    def _whole(self, text: str) -> str:
        if _MARK in text:
            for stand_in, payload in self._payloads.items():
                if times := text.count(stand_in):
                    self._room -= len(payload) * times
                    if self._room < 0:
                        raise TooMuchText
                    text = text.replace(stand_in, str(payload, "ascii"))
        return text


class StandIns:
    """The payloads of one request, in their places again where they are not images, and at the end everywhere."""

    __slots__ = ("_payloads",)

    def __init__(self, payloads: Mapping[str, memoryview] | None = None) -> None:
        """Stand for these."""
        self._payloads = payloads or {}

    def text_put_back(self, body: Mapping[str, Any], most: int) -> dict[str, Any]:
        """A native body whose texts are whole again; images stay as they are.

        Args:
            body: with stand-ins.
            most: bytes that may be put back.

        Raises:
            TooMuchText: there are more.
        """
        put_back = _TextPutBack(self._payloads, most)
        told = put_back.fields({key: value for key, value in body.items() if key != "messages"})
        messages = body.get("messages")
        if isinstance(messages, list):
            told["messages"] = [
                put_back.fields(one) if isinstance(one, dict) else put_back.value(one) for one in messages
            ]
        elif "messages" in body:
            told["messages"] = put_back.value(messages)
        return told

    def put_back(self, text: bytes) -> list[bytes | memoryview]:
        """An encoded body in pieces, every payload in its place."""
        pieces: list[bytes | memoryview] = []
        kept, mark = 0, _MARK.encode()
        at = text.find(mark)
        while at >= 0:
            payload = self._payloads.get(text[at : at + _LENGTH].decode("latin-1"))
            if payload is None:
                at = text.find(mark, at + 1)
                continue
            pieces += [text[kept:at], payload]
            kept = at + _LENGTH
            at = text.find(mark, kept)
        return [piece for piece in (*pieces, text[kept:]) if len(piece)]


def in_pieces(pieces: list[bytes | memoryview], most: int = 256 * 1024) -> Iterator[bytes]:
    """The same bytes, in pieces that are copied and sent one by one."""
    for piece in pieces:
        for at in range(0, len(piece), most):
            yield bytes(piece[at : at + most])
