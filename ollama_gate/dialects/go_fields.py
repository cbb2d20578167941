"""Fields of a decoded JSON object, read as Go's decoder reads them into a struct.

A missing key and `null` leave a field at its zero value; a value of another type is refused with the text that
encoding/json (Go 1.26) has for it, because that is what Ollama's clients have seen so far.
"""

from dataclasses import dataclass
from typing import Any, Final

from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import Json

_INT64: Final = 2**63
LARGEST_FLOAT32: Final = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Place:
    """Which struct a field belongs to, and the path of field names that leads to that struct."""

    struct: str
    path: str = ""

    def within(self, field: str, struct: str) -> "Place":
        """The place of the struct that `field` holds."""
        return Place(struct, f"{self.path}{field}.")


def bad_request(message: str, param: str | None = None) -> Refused:
    """A 400 of the kind that Ollama's compatibility layer gives, which blames no field."""
    return Refused(Refusal(400, "invalid_request", message, param=param))


def kind(value: Any) -> str:
    """What Go calls a JSON value in its errors."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "number"


def type_name(value: Any) -> str:
    """The Go type of a value that was decoded into `any` (`%T`)."""
    return {
        "null": "<nil>",
        "number": "float64",
        "object": "map[string]interface {}",
        "array": "[]interface {}",
    }.get(kind(value), kind(value))


def mismatch(value: Any, place: Place, key: str, go_type: str) -> Refused:
    """The refusal of a value that does not fit its field."""
    return bad_request(
        f"json: cannot unmarshal {kind(value)} into Go struct field {place.struct}.{place.path}{key} of type {go_type}"
    )


def text(holder: Json, key: str, place: Place) -> str:
    """A string; empty when it is missing."""
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise mismatch(value, place, key, "string")
    return value


def flag(holder: Json, key: str, place: Place) -> bool:
    """A boolean; false when it is missing."""
    value = holder.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise mismatch(value, place, key, "bool")
    return value


def integer(holder: Json, key: str, place: Place) -> int | None:
    """A 64-bit integer; a number with a fraction, even `.0`, is none."""
    value = holder.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise mismatch(value, place, key, "int")
    if isinstance(value, float) or not -_INT64 <= value < _INT64:
        raise _unfit_number(value, place, key, "int")
    return value


def number(holder: Json, key: str, place: Place, *, single: bool = False) -> float | None:
    """A float64, or with `single` a float32, which a larger number does not fit.

    All of them are options, which Ollama holds as float32: what became infinite there would be its 500 later.
    """
    value = holder.get(key)
    if value is None:
        return None
    go_type = "float32" if single else "float64"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise mismatch(value, place, key, go_type)
    if abs(value) > LARGEST_FLOAT32:
        if not single:
            raise bad_request(f"{key} is larger than a 32-bit number can be", key)
        raise _unfit_number(value, place, key, go_type)
    return value


def items(holder: Json, key: str, place: Place, go_type: str) -> list[Any] | None:
    """A list whose elements are still to be read; None when it is missing, which Go tells from an empty one."""
    value = holder.get(key)
    if value is not None and not isinstance(value, list):
        raise mismatch(value, place, key, f"[]{go_type}")
    return value


def texts(holder: Json, key: str, place: Place) -> list[str]:
    """A list of strings; `null` inside it is an empty one."""
    found = []
    for item in items(holder, key, place, "string") or ():
        if item is not None and not isinstance(item, str):
            raise mismatch(item, place, key, "string")
        found.append(item or "")
    return found


def record(holder: Json, key: str, place: Place, go_type: str) -> Json | None:
    """An object; None when it is missing."""
    value = holder.get(key)
    if value is not None and not isinstance(value, dict):
        raise mismatch(value, place, key, go_type)
    return value


def element(value: Any, place: Place, key: str, go_type: str) -> Json:
    """One object of a list; `null` is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise mismatch(value, place, key, go_type)
    return value


def _unfit_number(value: float, place: Place, key: str, go_type: str) -> Refused:
    return bad_request(
        f"json: cannot unmarshal number {value!r} into Go struct field {place.struct}.{place.path}{key} "
        f"of type {go_type}"
    )
