"""Ollama's request structs, and how Go fills them from JSON (`api/types.go`, v0.33).

Top-level and nested field names match whatever their case; of two keys that name one field the last wins, except that
maps (`options`) are merged. A wrong type is a 400 with Go's text.
"""

import base64
import binascii
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


def _string(value: Any, old: Any, where: Where) -> Any:
    if value is None:
        return old
    if not isinstance(value, str):
        raise where.wrong(value, "string")
    return gojson.text(value)


def _bool(value: Any, old: Any, where: Where) -> Any:
    if value is None:
        return old
    if not isinstance(value, bool):
        raise where.wrong(value, "bool")
    return value


def _bool_or_none(value: Any, old: Any, where: Where) -> Any:
    return None if value is None else _bool(value, old, where)


def _int(value: Any, old: Any, where: Where) -> Any:
    if value is None:
        return old
    if isinstance(value, float):
        number = f"number {value:g}"
        field = ".".join(where.path)
        raise JsonError(f"json: cannot unmarshal {number} into Go struct field {where.struct}.{field} of type int")
    if isinstance(value, bool) or not isinstance(value, int):
        raise where.wrong(value, "int")
    return value


def _any(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
    return gojson.plain(value)


def _map(value: Any, old: Any, where: Where) -> Any:
    if value is None:
        return {}
    if not isinstance(value, Pairs):
        raise where.wrong(value, "map[string]interface {}")
    return {**(old or {}), **gojson.plain(value)}


def _strings(value: Any, old: Any, where: Where) -> Any:
    return _list(_string, "[]string")(value, old, where)


def _list(item: Read, go_name: str) -> Read:
    def read(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
        if value is None:
            return None
        if not isinstance(value, list):
            raise where.wrong(value, go_name)
        return [item(one, None, where) for one in value]

    return read


def _image(value: Any, old: Any, where: Where) -> Any:
    encoded = _string(value, old, where)
    try:
        return base64.b64decode((encoded or "").encode("ascii", "replace"), validate=True)
    except binascii.Error:
        good = len(encoded) - len(encoded.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
        raise JsonError(f"illegal base64 data at input byte {good}") from None


def _think(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value in {"high", "medium", "low", "max"}:
        return value
    if isinstance(value, str):
        raise JsonError(f'invalid think value: "{value}" (must be "high", "medium", "low", "max", true, or false)')
    raise JsonError("think must be a boolean or string")


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: Any) -> float:
    """A Go duration (`"5m"`, a number of seconds); negative means for ever (`api.Duration`, v0.33).

    Raises:
        JsonError: for text that `time.ParseDuration` refuses.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float("inf") if value < 0 else float(value)
    if not isinstance(value, str):
        raise JsonError(f"Unsupported type: '{type(value).__name__}'")
    total = _duration(value)
    return float("inf") if total < 0 else total


def _duration(text: str) -> float:
    rest = text.lstrip("+-")
    total = 0.0
    if rest == "0":
        return 0.0
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        unit = next((u for u in ("ns", "us", "µs", "ms", "s", "m", "h") if rest[digits:].startswith(u)), "")
        if not digits or not unit or rest[:digits] == ".":
            raise JsonError(f'time: invalid duration "{text}"')
        total += float(rest[:digits]) * _UNITS[unit]
        rest = rest[digits + len(unit) :]
    if not text.lstrip("+-"):
        raise JsonError(f'time: invalid duration "{text}"')
    return -total if text.startswith("-") else total


def _keep_alive(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
    return None if value is None else seconds(gojson.plain(value))


def _struct(name: str, fields: Mapping[str, Read]) -> Read:
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


def _alone(name: str, fields: Mapping[str, Read]) -> Read:
    """A struct with its own UnmarshalJSON: errors begin anew inside it."""
    inner = _struct(name, fields)
    return lambda value, old, where: inner(value, None, Where(name)) if value is not None else old  # noqa: ARG005


def fold(key: str) -> str:
    """A field name as Go compares it (`encoding/json/fold.go`): long s is s, the Kelvin sign is k."""
    return key.replace("ſ", "s").replace("\u212a", "k").lower()


_CALL = _struct(
    "ToolCall",
    {
        "id": _string,
        "function": _struct("ToolCallFunction", {"index": _int, "name": _string, "arguments": _any}),
    },
)
_MESSAGE = _alone(
    "Alias",
    {
        "role": _string,
        "content": _string,
        "thinking": _string,
        "images": _list(_image, "[]api.ImageData"),
        "tool_calls": _list(_CALL, "[]api.ToolCall"),
        "tool_name": _string,
        "tool_call_id": _string,
    },
)
_COMMON: dict[str, Read] = {
    "model": _string,
    "stream": _bool_or_none,
    "format": _any,
    "keep_alive": _keep_alive,
    "options": _map,
    "think": _think,
    "truncate": _bool_or_none,
    "shift": _bool_or_none,
    "_debug_render_only": _bool,
    "logprobs": _bool,
    "top_logprobs": _int,
}
CHAT = _struct(
    "ChatRequest",
    _COMMON
    | {
        "messages": _list(_MESSAGE, "[]api.Message"),
        "tools": _list(_any, "api.Tools"),
    },
)
GENERATE = _struct(
    "GenerateRequest",
    _COMMON
    | {
        "prompt": _string,
        "suffix": _string,
        "system": _string,
        "template": _string,
        "context": _list(_int, "[]int"),
        "raw": _bool,
        "images": _list(_image, "[]api.ImageData"),
    },
)
_EMBED_COMMON: dict[str, Read] = {"model": _string, "keep_alive": _keep_alive, "options": _map}
EMBED = _struct("EmbedRequest", _EMBED_COMMON | {"input": _any, "truncate": _bool_or_none, "dimensions": _int})
EMBEDDINGS = _struct("EmbeddingRequest", _EMBED_COMMON | {"prompt": _string})
SHOW = _struct(
    "ShowRequest",
    {"model": _string, "name": _string, "verbose": _bool, "system": _string, "template": _string, "options": _map},
)
NAMED = _struct("PullRequest", {"model": _string, "name": _string, "insecure": _bool, "stream": _bool_or_none})
COPY = _struct("CopyRequest", {"source": _string, "destination": _string})
CREATE = _struct(
    "CreateRequest",
    {
        "model": _string,
        "name": _string,
        "from": _string,
        "files": _map,
        "template": _string,
        "system": _string,
        "parameters": _map,
        "messages": _list(_MESSAGE, "[]api.Message"),
        "renderer": _string,
        "parser": _string,
        "license": _any,
        "stream": _bool_or_none,
    },
)


def read(body: bytes, form: Read, name: str) -> dict[str, Any]:
    """Fill one of the structs above from a request body.

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
