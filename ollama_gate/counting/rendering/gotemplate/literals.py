"""Go's literals: quoted strings, characters and numbers (`strconv`, `text/template/parse/node.go:newNumber`)."""

import math
import re
from typing import Final

from ollama_gate.counting.rendering.gotemplate.values import from_bytes, refuse, to_bytes
from ollama_gate.errors import RenderError

_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def unquote(literal: str) -> str:
    """The text of a string or character literal (`strconv.Unquote`)."""
    mark, text = literal[0], literal[1:-1]
    if mark == "`":
        return text.replace("\r", "")
    if "\\" not in text:
        return text
    out = bytearray()
    position = 0
    while (start := text.find("\\", position)) >= 0:
        out += to_bytes(text[position:start])
        match = _ESCAPE.match(text, start)
        if match is None:
            raise refuse("invalid syntax in a literal")
        out += _escaped(match, mark)
        position = match.end()
    out += to_bytes(text[position:])
    return from_bytes(bytes(out))


def _escaped(match: re.Match[str], mark: str) -> bytes:
    byte, octal, short, long, letter = match.groups()
    if byte is not None or octal is not None:
        code = int(byte, 16) if byte is not None else int(octal, 8)
        if code > 0xFF:
            raise refuse("invalid syntax in a literal")
        return bytes([code])
    if letter is not None:
        text = mark if letter == mark else _SIMPLE.get(letter)
        if text is None:
            raise refuse("invalid syntax in a literal")
        return text.encode()
    code = int(short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise refuse("invalid syntax in a literal")
    return chr(code).encode()


def character(literal: str) -> int:
    """The code of a character literal."""
    text = unquote(literal)
    if len(text) != 1 or literal == "'''":
        raise refuse("malformed character constant")
    code = ord(text)
    return code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code


_UNDERSCORES: Final = re.compile(r"(?:0[xob]_?)?[0-9a-f]+(?:_[0-9a-f]+)*")
_FLOAT: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?")
_BASES: Final = {"0x": 16, "0o": 8, "0b": 2}


def number(text: str) -> int | float:
    """A number as an untyped constant becomes one: an int where it is written as one.

    Raises:
        TemplateRefused: it is none, or it does not fit.
        RenderError: it is written in a way that is not known here (imaginary, hexadecimal float).
    """
    body = text.lstrip("+-").lower()
    sign = -1 if text.startswith("-") else 1
    if body.endswith("i") or ("_" in body and not _UNDERSCORES.fullmatch(body)):
        raise RenderError(f"the number {text} in the template")
    digits = body.replace("_", "")
    whole = _integer(digits)
    if whole is not None:
        if not -(2**63) <= sign * whole < 2**63:
            raise refuse(f"{text} overflows int")
        return sign * whole
    if digits[:2] == "0x" and ("." in digits or "p" in digits):
        raise RenderError(f"the number {text} in the template")
    if not _FLOAT.fullmatch(digits) or not ("." in digits or "e" in digits):
        raise refuse(f"illegal number syntax: {text!r}")
    value = sign * float(digits)
    if not math.isfinite(value):
        raise refuse(f"illegal number syntax: {text!r}")
    return value


def _integer(digits: str) -> int | None:
    if len(digits) > 80:
        raise refuse("a number that overflows")
    base = _BASES.get(digits[:2])
    if base is None:
        base = 8 if digits.startswith("0") else 10
    elif "_" in digits or not digits[2:]:
        return None
    try:
        return int(digits[2:] if digits[:2] in _BASES else digits, base) if digits.isalnum() else None
    except ValueError:
        return None
