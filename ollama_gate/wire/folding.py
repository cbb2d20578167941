"""Keys as Go reads them: letter case folded in struct fields, and never two keys for one field.

Go's decoder matches a struct's field names without regard to case, takes U+017F for s and U+212A for k, and lets the
last of several keys win or merges them (`encoding/json`; recorded from Ollama v0.33). A gate that counted `messages`
and sent `Messages` along would be bypassed. So a single odd-cased key is renamed, and two keys for one field are
refused.

Maps keep their keys as they are: `options`, `arguments`, schemas in `format` and `items`, and the names of properties.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from ollama_gate.errors import Refusal, Refused

_BEYOND_ASCII: Final = {0x17F: "s", 0x212A: "k"}

Path = tuple[Any, ...]
"""Where an object stands: (parent's path, key or index), or () for the body itself. Cheap to make, spelled out late."""


@dataclass(frozen=True, slots=True)
class Struct:
    """What is known of a Go struct: the names of its fields, and which of them hold structs or lists of structs."""

    names: frozenset[str] = frozenset()
    inner: Mapping[str, "Struct"] = field(default_factory=dict)
    values: "Struct | None" = None
    """For a map instead of a struct: what each of its values is."""


def fold(body: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Rename odd-cased keys to the field names they mean, here and in the structs below. Changes `body` in place.

    Args:
        body: a freshly decoded request body.
        known: the top-level field names of its route.

    Returns:
        The body, every key in its place, or a new one when a top-level key was renamed.

    Raises:
        Refused: 400 `ambiguous_keys` when two keys mean one field.
    """
    return _fold(body, known, _BODY, ())


def first_duplicate(document: bytes) -> str | None:
    """The first key that an object of this valid JSON text has twice. Slow; for when there is known to be one."""

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Found(key)
            seen.add(key)

    try:
        # Numbers are not read: Python's int() takes quadratic time.
        json.loads(document.decode(), object_pairs_hook=look, parse_int=len, parse_float=len)
    except _Found as found:
        return str(found)
    return None


def ambiguous(key: str, param: str, spellings: str) -> Refused:
    """The refusal of two keys that mean one field."""
    return Refused(
        Refusal(
            status=400,
            code="ambiguous_keys",
            message=(
                f"The request body has {spellings} in one object; Ollama would use only the last, or merge them. "
                f"Send {key!r} once."
            ),
            param=param,
        )
    )


class _Found(Exception):
    """A key was there already."""


_HOLDERS: Final = frozenset({dict, list})


def _fold(value: dict[str, Any], names: frozenset[str], inner: Mapping[str, Struct], path: Path) -> dict[str, Any]:
    if not value.keys() <= names:
        value = _renamed(value, names, path)
    for name, item in value.items():
        if type(item) in _HOLDERS and item and (struct := inner.get(name)) is not None:
            value[name] = _descend(item, struct, (path, name))
    return value


def _descend(value: Any, struct: Struct, path: Path) -> Any:
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                where = path, index
                value[index] = (
                    _fold(item, struct.names, struct.inner, where)
                    if struct.values is None
                    else _map(item, struct.values, where)
                )
    elif isinstance(value, dict):
        return (
            _fold(value, struct.names, struct.inner, path)
            if struct.values is None
            else _map(value, struct.values, path)
        )
    return value


def _map(value: dict[str, Any], each: Struct, path: Path) -> dict[str, Any]:
    for key, item in value.items():
        value[key] = _descend(item, each, (path, key))
    return value


def _renamed(value: dict[str, Any], names: frozenset[str], path: Path) -> dict[str, Any]:
    """The same object with the names of fields for keys; what is no field stays as it is."""
    fields = _folded(names)
    renamed: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, item in value.items():
        name = key if key in names else fields.get(_folded_key(key), key)
        if name in renamed:
            raise ambiguous(name, _spell((path, name)), f"both {spelled[name]!r} and {key!r}")
        renamed[name] = item
        spelled[name] = key
    return renamed


@lru_cache(maxsize=64)
def _folded(names: frozenset[str]) -> Mapping[str, str]:
    return {_folded_key(name): name for name in names}


def _folded_key(key: str) -> str:
    return (key if key.isascii() else key.translate(_BEYOND_ASCII)).lower()


def _spell(path: Path) -> str:
    """`messages[3].content`, as the client would write it."""
    if not path:
        return ""
    before, step = _spell(path[0]), path[1]
    if isinstance(step, int):
        return f"{before}[{step}]"
    return f"{before}.{step}" if before else step


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _struct(names: str, **inner: Struct) -> Struct:
    return Struct(_names(names), inner)


# The structs below the body, of all routes at once: where two dialects have a field of one name, its fields agree
# (`api/types.go`, `openai/openai.go`, `openai/responses.go`, `anthropic/anthropic.go`; Ollama v0.33).

_SCHEMA_INNER: Final[dict[str, Struct]] = {}
_SCHEMA: Final = Struct(_names("anyOf type items description enum properties required"), _SCHEMA_INNER)
_SCHEMA_INNER.update(anyOf=_SCHEMA, properties=Struct(values=_SCHEMA))
_PARAMETERS: Final = _struct("type $defs items required properties", properties=Struct(values=_SCHEMA))
_FUNCTION: Final = _struct("name description parameters", parameters=_PARAMETERS)
_TOOL_INNER: Final[dict[str, Struct]] = {"function": _FUNCTION}
_TOOL: Final = Struct(
    _names("type items function name description parameters strict tools input_schema max_uses"), _TOOL_INNER
)
_TOOL_INNER["tools"] = _TOOL  # a namespace of /v1/responses

_CALL: Final = _struct("id index type function", function=_struct("index name arguments"))
_SOURCE: Final = _struct("type media_type data url")
_BLOCK: Final = _struct(
    "type text citations source id name input tool_use_id content is_error thinking signature "
    "detail file_id image_url file_data file_url filename",
    source=_SOURCE,
)
_MESSAGE: Final = _struct(
    "role content thinking reasoning images tool_calls tool_name tool_call_id name", tool_calls=_CALL, content=_BLOCK
)
_ITEM: Final = _struct(
    "type role content id call_id name arguments output summary encrypted_content", content=_BLOCK, output=_BLOCK
)
_FORMAT: Final = _struct("type name schema strict")
_BODY: Final[Mapping[str, Struct]] = {
    "messages": _MESSAGE,
    "tools": _TOOL,
    "input": _ITEM,
    "stream_options": _struct("include_usage"),
    "reasoning": _struct("effort generate_summary summary"),
    "response_format": _struct("type json_schema", json_schema=_struct("schema name strict")),
    "text": _struct("format", format=_FORMAT),
    "thinking": _struct("type budget_tokens"),
    "output_config": _struct("effort"),
    "tool_choice": _struct("type name disable_parallel_tool_use"),
}
