"""The functions a template can call: Go's builtins (`text/template/funcs.go`, Go 1.26).

Ollama's own (`json`, `currentDate` …) are in `ollama.py`. Every function works on values that `executor.py` has already
checked against its parameters, and pays for what it walks over and makes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_plus

from ollama_gate.counting.rendering.gotemplate.frame import Frame
from ollama_gate.counting.rendering.gotemplate.gofmt import sprint, sprintf, sprintln
from ollama_gate.counting.rendering.gotemplate.values import (
    INVALID,
    NIL,
    GoValue,
    Kind,
    Typed,
    box,
    element,
    from_bytes,
    indirect,
    kind_of,
    refuse,
    to_bytes,
    truth,
    zero,
)
from ollama_gate.errors import RenderError

VALUE: Final = "reflect.Value"
"""A parameter that takes anything, the invalid value included."""
INTERFACE: Final = "interface {}"
"""A parameter that takes anything; the invalid value becomes nil."""
TEXT: Final = "string"
"""A parameter that takes strings only."""


@dataclass(frozen=True, slots=True)
class GoFunction:
    """A function and the types of its parameters."""

    apply: Callable[..., GoValue]
    """Called with the frame, then the arguments."""
    fixed: tuple[str, ...] = ()
    variadic: str = ""
    """The type of any further arguments; empty when there can be none."""
    makes_text: bool = False
    """Whether it may make new text that it does not pay for itself."""


def printable(value: GoValue) -> GoValue:
    """What of a value is printed (`text/template/exec.go:printableValue`)."""
    if isinstance(value, Typed):
        if value.type.kind is Kind.POINTER and value.data is not None:
            return indirect(value)[0]
        if value.type.kind is Kind.ITERATOR:
            raise refuse("can't print a function")
    return "<no value>" if value is INVALID else value


def _length(frame: Frame, value: GoValue) -> int:
    value, nil = indirect(value)
    if nil:
        raise refuse("len of nil pointer")
    if isinstance(value, str):
        if value.isascii():
            return len(value)
        frame.budget.work(len(value))
        return len(to_bytes(value))
    if isinstance(value, Typed) and value.type.kind in _COUNTED:
        return len(value.data or ())
    raise refuse(f"len of type {kind_of(value).value}")


_COUNTED: Final = frozenset({Kind.SLICE, Kind.MAP, Kind.OPAQUE})


def _position(index: GoValue, end: int) -> int:
    """An index as an int (`text/template/funcs.go:indexArg`); `end` itself is allowed."""
    if not isinstance(index, int) or isinstance(index, bool):
        raise refuse("cannot index a slice with this type")
    if not 0 <= index <= end:
        raise refuse(f"index out of range: {index}")
    return index


def _index(_: Frame, value: GoValue, *indexes: GoValue) -> GoValue:
    if value is INVALID or value is NIL:
        raise refuse("index of untyped nil")
    for index in indexes:
        value, nil = indirect(value)
        if nil:
            raise refuse("index of nil pointer")
        kind = kind_of(value)
        if kind in {Kind.STRING, Kind.OPAQUE}:
            raise RenderError("a byte value in the text")
        if not isinstance(value, Typed) or kind not in {Kind.SLICE, Kind.MAP}:
            raise refuse(f"can't index item of type {kind.value}")
        if kind is Kind.MAP:
            if not isinstance(index, str):
                raise refuse("a map's index must be a string")
            data = value.data or {}
            value = box(value.type.inner, data[index]) if index in data else zero(value.type.inner)
            continue
        length = len(value.data or ())
        place = _position(index, length)
        if place == length:
            raise refuse(f"index out of range: {place}")
        value = element(value, place)
    return value


def _slice(frame: Frame, value: GoValue, *indexes: GoValue) -> GoValue:
    if value is INVALID or value is NIL:
        raise refuse("slice of untyped nil")
    value, nil = indirect(value)
    if nil:
        raise refuse("slice of nil pointer")
    if len(indexes) > 3:
        raise refuse("too many slice indexes")
    if isinstance(value, str):
        if len(indexes) == 3:
            raise refuse("cannot 3-index slice a string")
        whole = to_bytes(value)
        start, end, _ = _bounds(indexes, len(whole))
        frame.budget.work(len(whole))
        return from_bytes(whole[start:end])
    if not isinstance(value, Typed) or value.type.kind not in {Kind.SLICE, Kind.OPAQUE}:
        raise refuse(f"can't slice item of type {kind_of(value).value}")
    if value.type.kind is Kind.OPAQUE:
        raise RenderError("the bytes of an image in the text")
    data = value.data or ()
    if any(isinstance(index, int) and index > len(data) for index in indexes):
        raise RenderError("a slice beyond its length, where only Go knows the capacity")
    start, end, _ = _bounds(indexes, len(data))
    frame.budget.work(end - start)
    return Typed(value.type, None if value.data is None else data[start:end])


def _bounds(indexes: tuple[GoValue, ...], length: int) -> tuple[int, int, int]:
    places = [_position(index, length) for index in indexes]
    start = places[0] if places else 0
    end = places[1] if len(places) > 1 else length
    limit = places[2] if len(places) > 2 else length
    if start > end or (len(places) > 2 and end > limit):
        raise refuse("invalid slice index")
    return start, end, limit


def _equals(frame: Frame, first: GoValue, *others: GoValue) -> bool:
    if not others:
        raise refuse("missing argument for comparison")
    return any(_equal(frame, first, other) for other in others)


def _equal(frame: Frame, first: GoValue, second: GoValue) -> bool:
    if isinstance(first, str) and isinstance(second, str):
        if len(first) > 64:
            frame.budget.work(len(first))
        return first == second
    first_kind, second_kind = kind_of(first), kind_of(second)
    if first_kind is Kind.INVALID or second_kind is Kind.INVALID:
        return _is_nil(first) and _is_nil(second)
    if first_kind is not second_kind:
        raise refuse("incompatible types for comparison")
    if not isinstance(first, Typed):
        return first == second
    if _is_nil(first) or _is_nil(second):
        return _is_nil(first) == _is_nil(second)
    if first_kind is Kind.POINTER and isinstance(second, Typed):
        return first.type is second.type and first.data is second.data
    raise refuse("non-comparable types")


_NILLABLE: Final = frozenset({Kind.SLICE, Kind.MAP, Kind.POINTER, Kind.ITERATOR, Kind.OPAQUE})


def _is_nil(value: GoValue) -> bool:
    if isinstance(value, Typed):
        return value.data is None and value.type.kind in _NILLABLE
    return value is INVALID or value is NIL


def _less(frame: Frame, first: GoValue, second: GoValue) -> bool:
    kinds = kind_of(first), kind_of(second)
    if not _ORDERED.issuperset(kinds):
        raise refuse("invalid type for comparison")
    if kinds[0] is not kinds[1]:
        raise refuse("incompatible types for comparison")
    if kinds[0] is Kind.BOOL:
        raise refuse("invalid type for comparison")
    if isinstance(first, str) and isinstance(second, str):
        frame.budget.work(len(first) + len(second))
        return to_bytes(first) < to_bytes(second)
    return first < second  # type: ignore[operator]  # two numbers of one type


_ORDERED: Final = frozenset({Kind.BOOL, Kind.INT, Kind.FLOAT, Kind.STRING})


def _less_or_equal(frame: Frame, first: GoValue, second: GoValue) -> bool:
    return _less(frame, first, second) or _equal(frame, first, second)


def _print(frame: Frame, *values: GoValue) -> str:
    return sprint(values, frame.budget)


def _println(frame: Frame, *values: GoValue) -> str:
    return sprintln(values, frame.budget)


def _printf(frame: Frame, form: str, *values: GoValue) -> str:
    frame.budget.work(512 + len(form))
    return sprintf(form, values, frame.budget)


def _evaluated(frame: Frame, values: tuple[GoValue, ...]) -> str:
    """The text that an escaper escapes (`text/template/funcs.go:evalArgs`)."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return sprint([printable(INVALID if value is NIL else value) for value in values], frame.budget)


_HTML: Final = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JS: Final[Mapping[str, str]] = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
}


def _html(frame: Frame, *values: GoValue) -> str:
    text = _evaluated(frame, values)
    frame.budget.work(len(text))
    return text.translate(_HTML)


def _js(frame: Frame, *values: GoValue) -> str:
    text = _evaluated(frame, values)
    frame.budget.work(16 * len(text))
    return "".join([_JS.get(rune) or _js_rune(rune) for rune in text])


def _js_rune(rune: str) -> str:
    code = ord(rune)
    if 0xDC80 <= code <= 0xDCFF:
        raise RenderError("js of broken text")
    if code < 0x20:
        return f"\\u{code:04X}"
    return rune if code < 0x80 or rune.isprintable() else f"\\u{code:04X}"


def _urlquery(frame: Frame, *values: GoValue) -> str:
    text = _evaluated(frame, values)
    frame.budget.work(16 * len(text))
    return quote_plus(to_bytes(text), safe="")


def _unknown(*_: object) -> GoValue:
    raise RenderError("the call function in the template")


BUILTINS: Final[Mapping[str, GoFunction]] = {
    "call": GoFunction(_unknown, (VALUE,), VALUE),
    "eq": GoFunction(_equals, (VALUE,), VALUE),
    "ge": GoFunction(lambda frame, a, b: not _less(frame, a, b), (VALUE, VALUE)),
    "gt": GoFunction(lambda frame, a, b: not _less_or_equal(frame, a, b), (VALUE, VALUE)),
    "html": GoFunction(_html, (), INTERFACE, makes_text=True),
    "index": GoFunction(_index, (VALUE,), VALUE),
    "js": GoFunction(_js, (), INTERFACE, makes_text=True),
    "le": GoFunction(_less_or_equal, (VALUE, VALUE)),
    "len": GoFunction(_length, (VALUE,)),
    "lt": GoFunction(_less, (VALUE, VALUE)),
    "ne": GoFunction(lambda frame, a, b: not _equal(frame, a, b), (VALUE, VALUE)),
    "not": GoFunction(lambda _, value: not truth(value), (VALUE,)),
    "print": GoFunction(_print, (), INTERFACE),
    "printf": GoFunction(_printf, (TEXT,), INTERFACE, makes_text=True),
    "println": GoFunction(_println, (), INTERFACE),
    "slice": GoFunction(_slice, (VALUE,), VALUE, makes_text=True),
    "urlquery": GoFunction(_urlquery, (), INTERFACE, makes_text=True),
}
"""All but `and` and `or`, which evaluate their arguments one by one."""
SHORT_CIRCUIT: Final = frozenset({"and", "or"})
