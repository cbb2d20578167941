"""How Go fills a struct from JSON (`encoding/json/decode.go`), as readers that are put together.

Field names match whatever their case; of two keys that name one field the last wins, except that maps are merged. A
value of the wrong type is an error with Go's text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ollama_gate.rehearsal import gojson
from ollama_gate.rehearsal.gojson import JsonError, Pairs

Read = Callable[[Any, Any, "Where"], Any]
"""Decode `value` over `old` (the field's value so far) at a place."""


@dataclass(frozen=True, slots=True)
class Where:
    """The innermost struct and the path of fields to it, for error texts."""

    struct: str
    path: tuple[str, ...] = ()

    def wrong(self, value: Any, wanted: str) -> JsonError:
        """Go's UnmarshalTypeError."""
        word = _word(value)
        if not self.path:
            return JsonError(f"json: cannot unmarshal {word} into Go value of type api.{self.struct}")
        field = ".".join(self.path)
        return JsonError(f"json: cannot unmarshal {word} into Go struct field {self.struct}.{field} of type {wanted}")


def _word(value: Any) -> str:
    if isinstance(value, Pairs):
        return "object"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "null"


def string(value: Any, old: Any, where: Where) -> Any:
    """Text."""
    if value is None:
        return old
    if not isinstance(value, str):
        raise where.wrong(value, "string")
    return gojson.text(value)


def boolean(value: Any, old: Any, where: Where) -> Any:
    """True or false; null changes nothing."""
    if value is None:
        return old
    if not isinstance(value, bool):
        raise where.wrong(value, "bool")
    return value


def flag(value: Any, old: Any, where: Where) -> Any:
    """A `*bool`: null is None."""
    return None if value is None else boolean(value, old, where)


def integer(value: Any, old: Any, where: Where) -> Any:
    """A whole number."""
    if value is None:
        return old
    if isinstance(value, float):
        number = f"number {value:g}"
        field = ".".join(where.path)
        raise JsonError(f"json: cannot unmarshal {number} into Go struct field {where.struct}.{field} of type int")
    if isinstance(value, bool) or not isinstance(value, int):
        raise where.wrong(value, "int")
    return value


def anything(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
    """Whatever it is, as `interface{}` holds it."""
    return gojson.plain(value)


def mapping(value: Any, old: Any, where: Where) -> Any:
    """An object; a second one is merged into the first."""
    if value is None:
        return {}
    if not isinstance(value, Pairs):
        raise where.wrong(value, "map[string]interface {}")
    return {**(old or {}), **gojson.plain(value)}


def strings(value: Any, old: Any, where: Where) -> Any:
    """A list of texts."""
    return list_of(string, "[]string")(value, old, where)


def list_of(item: Read, go_name: str) -> Read:
    """A list of one kind of item; `go_name` is its Go type. A second one replaces the first."""

    def read(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
        if value is None:
            return None
        if not isinstance(value, list):
            raise where.wrong(value, go_name)
        return [item(one, None, where) for one in value]

    return read


def struct(name: str, fields: Mapping[str, Read]) -> Read:
    """A Go struct: field names match in any case."""
    folded = {fold(field): field for field in fields}

    def read(value: Any, old: Any, where: Where) -> Any:
        if value is None:
            return old
        if not isinstance(value, Pairs):
            raise where.wrong(value, f"api.{name}")
        out = dict(old or {})
        for key, item in value:
            field = folded.get(fold(gojson.text(key)))
            if field is not None:
                out[field] = fields[field](item, out.get(field), Where(name, (*where.path, field)))
        return out

    return read


def alone(name: str, fields: Mapping[str, Read]) -> Read:
    """A struct with its own UnmarshalJSON: errors begin anew inside it."""
    inner = struct(name, fields)
    return lambda value, old, where: inner(value, None, Where(name)) if value is not None else old  # noqa: ARG005


def fold(key: str) -> str:
    """A field name as Go compares it (`encoding/json/fold.go`): long s is s, the Kelvin sign is k."""
    return key.replace("ſ", "s").replace("\u212a", "k").lower()


def read(body: bytes, form: Read, name: str) -> dict[str, Any]:
    """Fill a struct from a request body.

    Raises:
        JsonError: with the text of Ollama's 400 (`missing request body` for an empty one).
    """
    try:
        value = gojson.read(body)
    except JsonError as wrong:
        if str(wrong) == "EOF":
            raise JsonError("missing request body") from None
        raise
    out: dict[str, Any] = form(value, {}, Where(name))
    return out
