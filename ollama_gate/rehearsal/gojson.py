"""JSON as Go's encoding/json reads and writes it, with its error texts.

Objects are read as `Pairs`, so that duplicate keys survive until a struct or a map decides what they mean.
"""

import json
import re
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

_LONE = re.compile("[\ud800-\udfff]")
_ESCAPED = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}
_BEYOND = 2**1024 - 2**970
"""What rounds to more than the largest float64."""
_SPACE = " \t\n\r"
_MAX_DIGITS = 4000
"""Python refuses to read longer integers; Go reads them as infinity and refuses the number later."""


class JsonError(ValueError):
    """The text is not JSON, or not of the wanted type; the message is Go's."""


class Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object as it stood in the text, duplicates and order included."""

    __slots__ = ()


def read(body: bytes) -> Any:
    """The first JSON value in `body`; what follows it is ignored (`json.Decoder.Decode`).

    Raises:
        JsonError: with Go's text; `EOF` when there is nothing but white space.
    """
    text = body.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip(_SPACE))
    if start == len(text):
        raise JsonError("EOF")
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise JsonError("exceeded max depth") from None
    except ValueError:
        raise JsonError(complaint(body)) from None
    return value


def _constant(name: str) -> Any:
    raise ValueError(name)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < _MAX_DIGITS else float("inf")


_DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_constant=_constant, parse_int=_integer)


def text(value: str) -> str:
    """A string with every lone surrogate and every invalid byte as U+FFFD, as Go reads it."""
    return value if value.isascii() else _LONE.sub("\ufffd", value)


def plain(value: Any) -> Any:
    """`value` as `interface{}` holds it: dicts (last duplicate wins), lists, repaired strings.

    Raises:
        JsonError: a number is beyond a float64.
    """
    if isinstance(value, Pairs):
        return {text(key): plain(item) for key, item in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, int | float) and not abs(value) < _BEYOND:
        raise JsonError("json: cannot unmarshal number into Go value of type float64")
    return text(value) if isinstance(value, str) else value


def in_key_order(value: Any) -> Any:
    """`value` with the keys of every object sorted, as Go writes a map."""
    if isinstance(value, Mapping):
        return {key: in_key_order(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [in_key_order(item) for item in value]
    return value


def marshal(value: Any) -> str:
    """A value that was read from JSON, as `json.Marshal` writes it: every number was a float64 in between."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{marshal(key)}:{marshal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(marshal, value)) + "]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return go_number(float(value), repr(float(value))).decode()
    return write(value).decode()


def write(value: Any) -> bytes:
    """Compact JSON as `json.Marshal` writes it: `<`, `>`, `&` and the line separators escaped."""
    out = orjson.dumps(value)
    for raw, escaped in _ESCAPED.items():
        if raw in out:
            out = out.replace(raw, escaped)
    return out


def float32(value: float) -> bytes:
    """The shortest digits that give the same 32-bit float, laid out as Go does."""
    (exact,) = struct.unpack("f", struct.pack("f", value))
    for digits in range(6, 10):
        shortest = f"{exact:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(shortest)))[0] == exact:
            return go_number(float(shortest), shortest)
    return go_number(exact, repr(exact))


def go_number(value: float, digits: str) -> bytes:
    """A float with the digits that Python gives it, laid out as Go does.

    Go writes an exponent outside 1e-6 to 1e21, and a negative one without leading zeros.
    """
    if "e" not in digits:
        return digits.removesuffix(".0").encode()
    mantissa, _, exponent = digits.partition("e")
    if not 1e-6 <= abs(value) < 1e21:
        return f"{mantissa}e{int(exponent):+d}".encode()
    return f"{Decimal(digits):f}".encode()  # the digits given, and zeros


def complaint(body: bytes) -> str:
    """What Go's scanner says about text that is not JSON (`encoding/json/scanner.go`)."""
    return _Scanner(body).complaint()


_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_DIGITS = b"0123456789"


class _Wrong(Exception):
    """Internal: the complaint."""


class _Scanner:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def complaint(self) -> str:
        try:
            self.values()
        except _Wrong as wrong:
            return str(wrong)
        return "unexpected EOF"

    def peek(self) -> int:
        if self.at >= len(self.body):
            raise _Wrong("unexpected EOF")
        return self.body[self.at]

    def skip(self) -> int:
        while self.peek() in b" \t\r\n":
            self.at += 1
        return self.body[self.at]

    def wrong(self, where: str) -> _Wrong:
        byte = self.body[self.at]
        shown = {0x27: "\\'", 0x22: '"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}.get(byte)
        if shown is None:
            shown = (
                chr(byte)
                if 0x20 <= byte < 0x7F or byte >= 0xA1
                else f"\\x{byte:02x}"
                if byte < 0x80
                else f"\\u{byte:04x}"
            )
        return _Wrong(f"invalid character '{shown}' {where}")

    def values(self) -> None:
        """Walk one value without recursion: `stack` holds what each open object or array waits for."""
        stack: list[str] = []
        while True:
            byte = self.skip()
            if byte in b"{[":
                self.at += 1
                closing = b"}" if byte == 0x7B else b"]"
                empty = self.skip() == closing[0]
                stack.append("{" if byte == 0x7B else "[")
                if not empty:
                    self.key(stack)
                    continue
            else:
                self.scalar(byte)
            while stack:
                what = stack[-1]
                byte = self.skip()
                if byte == (0x7D if what == "{" else 0x5D):
                    self.at += 1
                    stack.pop()
                    continue
                if byte != 0x2C:
                    raise self.wrong("after object key:value pair" if what == "{" else "after array element")
                self.at += 1
                self.key(stack)
                break
            if not stack:
                return

    def key(self, stack: list[str]) -> None:
        if stack[-1] != "{":
            return
        if self.skip() != 0x22:
            raise self.wrong("looking for beginning of object key string")
        self.string()
        if self.skip() != 0x3A:
            raise self.wrong("after object key")
        self.at += 1

    def scalar(self, byte: int) -> None:
        if byte == 0x22:
            self.string()
        elif byte in _LITERALS:
            word = _LITERALS[byte]
            for expected in word:
                if self.peek() != expected:
                    raise self.wrong(f"in literal {word.decode()} (expecting {chr(expected)!r})")
                self.at += 1
        elif byte == 0x2D or byte in _DIGITS:
            self.number(byte)
        else:
            raise self.wrong("looking for beginning of value")

    def string(self) -> None:
        self.at += 1
        while (byte := self.peek()) != 0x22:
            if byte < 0x20:
                raise self.wrong("in string literal")
            self.at += 1
            if byte != 0x5C:
                continue
            escape = self.peek()
            if escape not in b'"\\/bfnrtu':
                raise self.wrong("in string escape code")
            self.at += 1
            for _ in range(4 if escape == 0x75 else 0):
                if self.peek() not in b"0123456789abcdefABCDEF":
                    raise self.wrong("in \\u hexadecimal character escape")
                self.at += 1
        self.at += 1

    def number(self, byte: int) -> None:
        if byte == 0x2D:
            self.at += 1
            if self.peek() not in _DIGITS:
                raise self.wrong("in numeric literal")
        zero = self.peek() == 0x30
        self.at += 1
        if not zero:
            self.digits()
        if self.at < len(self.body) and self.body[self.at] == 0x2E:
            self.at += 1
            if self.peek() not in _DIGITS:
                raise self.wrong("after decimal point in numeric literal")
            self.digits()
        if self.at < len(self.body) and self.body[self.at] in b"eE":
            self.at += 1
            if self.peek() in b"+-":
                self.at += 1
            if self.peek() not in _DIGITS:
                raise self.wrong("in exponent of numeric literal")
            self.digits()

    def digits(self) -> None:
        while self.at < len(self.body) and self.body[self.at] in _DIGITS:
            self.at += 1
