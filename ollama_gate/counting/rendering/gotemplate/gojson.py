"""encoding/json: values as the `json` function and most `String()` methods write them.

Source: Go's `encoding/json/encode.go` (Go 1.26, which Ollama's go.mod names) and, for the keys of ordered maps,
`mailru/easyjson/jwriter`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ollama_gate.counting.rendering.gotemplate.values import (
    ANY_MAP,
    ANY_SLICE,
    GoField,
    GoType,
    GoValue,
    Kind,
    Nothing,
    Typed,
)
from ollama_gate.errors import RenderError

_SPECIAL: Final = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029\ud800-\udfff]')
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def quote(text: str) -> str:
    """A string: HTML-safe, everything beyond ASCII literal, a byte that is not UTF-8 as an escaped U+FFFD."""
    if _SPECIAL.search(text) is None:
        return f'"{text}"'
    return f'"{_SPECIAL.sub(_escape, text)}"'


def quote_key(text: str) -> str:
    """A key of an ordered map, which another library writes: two of the controls have no short form there."""
    return f'"{_SPECIAL.sub(_escape_key, text)}"'


def _escape(match: re.Match[str]) -> str:
    rune = match[0]
    if "\ud800" <= rune <= "\udfff":
        return "\\ufffd"
    return _ESCAPES.get(rune) or f"\\u{ord(rune):04x}"


def _escape_key(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}" if match[0] in "\b\f" else _escape(match)


def digits(number: float) -> tuple[str, int]:
    """The shortest decimal digits that mean a positive number, and its exponent: 0.d1d2d3… times 10 to the exponent."""
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) if whole.strip("0") else len(fraction.lstrip("0")) - len(fraction)
    return (whole + fraction).strip("0") or "0", point + int(exponent or 0)


def shortest(number: float, low: int, high: int) -> str:
    """A float with the fewest digits, in exponent form when its decimal exponent is below `low` or from `high` on."""
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    if not math.isfinite(number):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[str(number)]
    sign = "-" if number < 0 else ""
    text, point = digits(abs(number))
    exponent = point - 1
    if exponent < low or exponent >= high:
        rest = "." + text[1:] if len(text) > 1 else ""
        return f"{sign}{text[0]}{rest}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{text}"
    if point >= len(text):
        return sign + text + "0" * (point - len(text))
    return f"{sign}{text[:point]}.{text[point:]}"


def json_float(number: float) -> str:
    """A number: exponents from 1e21 and below 1e-6, without a leading zero in a negative one."""
    if number.is_integer() and abs(number) < 1e15 and number != 0:
        return str(int(number))  # nearly every number in a request
    text = shortest(number, -6, 21)
    return text[:-2] + text[-1] if text[-4:-1] == "e-0" else text


def encode(value: GoValue) -> str:
    """Any value, as `json.Marshal` writes it."""
    if isinstance(value, Typed):
        return encode_data(value.type, value.data)
    if isinstance(value, Nothing):
        return "null"
    return _scalar(value)


def encode_data(go_type: GoType, data: Any) -> str:
    """Raw data of a static type."""
    if go_type.json is not None:
        return go_type.json(data)
    kind = go_type.kind
    if kind is Kind.ANY:
        return _free(data)
    if kind is Kind.STRUCT:
        return _struct(go_type.fields.values(), data)
    if kind is Kind.MAP:
        return _map(go_type.inner, data)
    if kind is Kind.SLICE:
        return _slice(go_type.inner, data)
    if kind is Kind.POINTER:
        return "null" if data is None else encode_data(go_type.inner, data)
    if kind is Kind.ITERATOR:
        return ""  # json.Marshal fails, and Ollama's json function ignores that
    if kind is Kind.OPAQUE:
        raise RenderError("the bytes of an image in the text")
    return _scalar(data)


def ordered_map(go_type: GoType, data: Mapping[str, Any] | None) -> str:
    """A map of Ollama's that keeps the client's key order."""
    if data is None:
        return "null"
    return "{" + ",".join([f"{quote_key(key)}:{encode_data(go_type, item)}" for key, item in data.items()]) + "}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_float(value) if isinstance(value, float) else str(value)


def _free(data: Any) -> str:
    if data is None:
        return "null"
    kind = type(data)
    if kind is dict:
        return _map(ANY_MAP.inner, data)
    if kind is list:
        return _slice(ANY_SLICE.inner, data)
    if kind is Typed:
        return encode_data(data.type, data.data)
    return _scalar(data)


def _slice(elem: GoType, data: Iterable[Any] | None) -> str:
    return "null" if data is None else "[" + ",".join([encode_data(elem, item) for item in data]) + "]"


def _map(elem: GoType, data: Mapping[str, Any] | None) -> str:
    if data is None:
        return "null"
    return "{" + ",".join([f"{quote(key)}:{encode_data(elem, data[key])}" for key in sorted(data)]) + "}"


def _struct(fields: Iterable[GoField], data: Any) -> str:
    parts = []
    for field in fields:
        item = field.read(data)
        if field.omit_empty and not item and (item is None or field.type.kind in _EMPTY_OMITTED):
            continue
        parts.append(f'"{field.key or field.name}":{encode_data(field.type, item)}')
    return "{" + ",".join(parts) + "}"


_EMPTY_OMITTED: Final = frozenset({Kind.STRING, Kind.INT, Kind.SLICE, Kind.MAP})
"""Kinds that `omitempty` leaves out when empty; a pointer or an `any` only when nil."""
