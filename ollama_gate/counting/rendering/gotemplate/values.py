"""Go's types and values, as far as a chat template can meet them.

A template sees a value together with its static Go type, which decides how it prints, marshals, compares and ranges.
Scalars are Python's own (str, bool, int, float for string, bool, int, float64). Everything else is a `Typed` value:
raw data with a `GoType` that says how to read it; elements and fields are boxed when they are touched, so a whole
request is never converted in advance. Fields are looked up in the type's table and nowhere else: nothing of Python can
be reached from a template.

Text holds Go's bytes: a byte that is not UTF-8 (a `slice` through a character) is a lone surrogate, as the codec error
handler "surrogateescape" makes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from ollama_gate.errors import RenderError, TemplateRefused


class Kind(Enum):
    """The kinds of Go types that are told apart here (`reflect.Kind`)."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float64"
    ANY = "interface {}"
    STRUCT = "struct"
    SLICE = "slice"
    MAP = "map"
    POINTER = "pointer"
    ITERATOR = "func"
    """An `iter.Seq2`: data is a sequence of pairs."""
    OPAQUE = "bytes"
    """A byte slice whose bytes are not kept: it can be counted, not looked into."""
    INVALID = "invalid"


class Nothing(Enum):
    """The two ways to have no value."""

    INVALID = "no value"
    """Go's invalid `reflect.Value`: what a pipeline makes of nil and of a missing key."""
    NIL = "nil"
    """A nil interface, as long as it has not gone through a pipeline."""


INVALID: Final = Nothing.INVALID
NIL: Final = Nothing.NIL


@dataclass(slots=True, eq=False)
class GoType:
    """A Go type. Built once, when the module of its owner is loaded, and never changed afterwards."""

    name: str
    kind: Kind
    elem: "GoType | None" = None
    """Of a slice, map or pointer; None means `any`. The keys of every map here are strings."""
    fields: Mapping[str, "GoField"] = field(default_factory=dict)
    """Of a struct, in its order."""
    text: Callable[[Any], str] | None = None
    """The `String()` method, given the raw data; it decides how the value prints."""
    json: Callable[[Any], str] | None = None
    """The `MarshalJSON()` method, given the raw data."""
    methods: Mapping[str, Callable[[Any], "GoValue"]] = field(default_factory=dict)
    """The methods without arguments that a template can call, given the raw data."""
    unknown: frozenset[str] = frozenset()
    """Methods that Go would call and that are not known here."""
    blank: Any = None
    """Raw data of the zero value, where it is not nil."""
    members: "dict[str, Callable[[Any], GoValue]] | None" = None
    """What `.Name` finds in a value that is not a map, given the raw data; made on first use."""

    @property
    def inner(self) -> "GoType":
        """The type of the elements."""
        return self.elem or ANY

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class GoField:
    """A field of a struct type."""

    name: str
    type: GoType
    read: Callable[[Any], Any]
    """Takes the struct's raw data, gives the field's."""
    key: str = ""
    """Its name in JSON when it has a tag."""
    omit_empty: bool = False


@dataclass(slots=True, eq=False)
class Typed:
    """A value that is not a scalar. Raw data by kind; None is nil where the kind can be nil.

    slice: a sequence of raw elements; map: a mapping of them; struct: whatever its fields read; pointer: what it points
    to. It is never changed once made.
    """

    type: GoType
    data: Any


GoValue = str | bool | int | float | Typed | Nothing

STRING: Final = GoType("string", Kind.STRING)
BOOL: Final = GoType("bool", Kind.BOOL)
INT: Final = GoType("int", Kind.INT)
FLOAT: Final = GoType("float64", Kind.FLOAT)
ANY: Final = GoType("interface {}", Kind.ANY)
STRINGS: Final = GoType("[]string", Kind.SLICE, STRING)
ANY_SLICE: Final = GoType("[]interface {}", Kind.SLICE, ANY)
ANY_MAP: Final = GoType("map[string]interface {}", Kind.MAP, ANY)

_SCALARS: Final[Mapping[type, GoType]] = {str: STRING, bool: BOOL, int: INT, float: FLOAT}
_ZERO: Final[Mapping[Kind, GoValue]] = {
    Kind.STRING: "",
    Kind.BOOL: False,
    Kind.INT: 0,
    Kind.FLOAT: 0.0,
    Kind.ANY: NIL,
}


def box(go_type: GoType, data: Any) -> GoValue:
    """Make a value of raw data that has this static type."""
    kind = go_type.kind
    if kind is Kind.ANY:
        return box_any(data)
    if kind is Kind.STRING or kind is Kind.INT or kind is Kind.BOOL or kind is Kind.FLOAT:
        return data  # type: ignore[no-any-return]  # raw scalars are the values
    return Typed(go_type, data)


def box_any(data: Any) -> GoValue:
    """Make a value of free-form data: what Go finds inside an `any`."""
    if data is None:
        return NIL
    kind = type(data)
    if kind is list:
        return Typed(ANY_SLICE, data)
    if kind is dict:
        return Typed(ANY_MAP, data)
    return data  # type: ignore[no-any-return]  # a scalar, or already a value


def type_of(value: GoValue) -> GoType:
    """The dynamic type of a value that is one.

    Raises:
        RenderError: for INVALID and NIL, which have none.
    """
    if isinstance(value, Typed):
        return value.type
    go_type = _SCALARS.get(type(value))
    if go_type is None:
        raise RenderError("no value has no type")
    return go_type


def kind_of(value: GoValue) -> Kind:
    """The kind of a value; INVALID and NIL are Kind.INVALID."""
    if isinstance(value, Typed):
        return value.type.kind
    go_type = _SCALARS.get(type(value))
    return Kind.INVALID if go_type is None else go_type.kind


def zero(go_type: GoType) -> GoValue:
    """The zero value of a type (`reflect.Zero`)."""
    value = _ZERO.get(go_type.kind)
    return Typed(go_type, go_type.blank) if value is None else value


def indirect(value: GoValue) -> tuple[GoValue, bool]:
    """Follow pointers; the flag says that it ended at nil (`text/template/exec.go:indirect`)."""
    while isinstance(value, Typed) and value.type.kind is Kind.POINTER:
        if value.data is None:
            return value, True
        value = Typed(value.type.inner, value.data)
    return value, value is NIL


def member(value: GoValue, name: str, *, missing_is_zero: bool) -> GoValue:
    """A field, method or key of a value (`text/template/exec.go:evalField`).

    Args:
        value: what stands before the dot.
        name: what stands after it.
        missing_is_zero: the option `missingkey=zero`; without it a missing key is the invalid value.
    """
    if not isinstance(value, Typed):
        if value is INVALID:
            return INVALID
        raise refuse(f"can't evaluate field {name}")
    go_type, data = value.type, value.data
    read = (_link(go_type) if go_type.members is None else go_type.members).get(name)
    if read is not None:
        if data is None and go_type.kind is Kind.POINTER and name not in go_type.methods:
            raise refuse(f"nil pointer evaluating {go_type}.{name}")
        return read(data)
    if go_type.kind is Kind.MAP:
        if data is not None and name in data:
            return box(go_type.inner, data[name])
        return zero(go_type.inner) if missing_is_zero else INVALID
    if name in go_type.unknown:
        raise RenderError(f"the method {name} in the template")
    raise refuse(f"can't evaluate field {name} in type {go_type}")


def _link(go_type: GoType) -> dict[str, "Callable[[Any], GoValue]"]:
    """Collect what `.Name` finds: methods before fields, a pointer's own before its element's."""
    members: dict[str, Callable[[Any], GoValue]] = {}
    if go_type.kind is Kind.POINTER:
        members.update(_link(go_type.inner))
    for known in go_type.fields.values():
        members[known.name] = _reader(known)
    members.update(go_type.methods)
    go_type.members = members
    return members


def _reader(known: GoField) -> Callable[[Any], "GoValue"]:
    go_type, read = known.type, known.read
    if go_type.kind in _ZERO and go_type.kind is not Kind.ANY:
        return read  # a scalar is its own value
    return lambda data: box(go_type, read(data))


def truth(value: GoValue) -> bool:
    """Whether a value counts as true (`text/template/exec.go:isTrue`)."""
    if isinstance(value, Typed):
        kind = value.type.kind
        if kind is Kind.STRUCT:
            return True
        if kind is Kind.POINTER or kind is Kind.ITERATOR:
            return value.data is not None
        return bool(value.data)
    if isinstance(value, Nothing):
        return False
    return bool(value)


def element(value: Typed, index: int) -> GoValue:
    """One element of a slice."""
    return box(value.type.inner, value.data[index])


def sorted_items(value: Typed) -> Sequence[tuple[str, GoValue]]:
    """Keys and values of a map in the order in which Go prints and ranges over them: by the keys' bytes."""
    data, elem = value.data or {}, value.type.inner
    return [(key, box(elem, data[key])) for key in sorted(data)]


def to_bytes(text: str) -> bytes:
    """The bytes of a Go string."""
    return text.encode("utf-8", "surrogateescape")


def from_bytes(data: bytes) -> str:
    """A Go string of bytes."""
    return data.decode("utf-8", "surrogateescape")


def visible(text: str) -> str:
    """Text as Ollama sends it on: each byte that is not UTF-8 becomes U+FFFD, unless later text completed it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        whole = from_bytes(to_bytes(text))
        return "".join("\ufffd" if "\ud800" <= rune <= "\udfff" else rune for rune in whole)
    return text


def refuse(message: str) -> TemplateRefused:
    """Where Go's template fails, so does Ollama."""
    return TemplateRefused(f"template: {message}")
