"""Ollama's request structs as frozen values, decoded from JSON as Go decodes them.

A prompt is rendered from these structs, not from the client's JSON: unknown fields are gone, keys match whatever their
case, every number is a float64, a broken surrogate is U+FFFD, and a wrong type is a 400. Source: `api/types.go`
(`Message`, `ToolCall`, `Tool`, `ToolProperty`) and Go's encoding/json, Ollama v0.14 and later.

In these values None is Go's nil where Go tells nil from empty; a free-form value (`Any`) holds None, bool, float, str,
list and dict only.
"""

import marshal
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from ollama_gate.errors import RenderError, TemplateRefused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant message made."""

    id: str = ""
    index: int = 0
    name: str = ""
    arguments: Mapping[str, Any] | None = None
    """In the client's key order; None when absent or null."""
    null_arguments: bool = False
    """The client wrote `null`, which Ollama passes on to a native template as `null` and an absent one as `{}`."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, its role in lower case."""

    role: str = ""
    content: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""
    images: int = 0
    """How many images (or other media) it carries; their bytes are never text."""
    empty_images: bool = False
    """The client sent an empty list of images, which marshals as `[]` where none at all is `null`."""


@dataclass(frozen=True, slots=True)
class ToolProperty:
    """One property of a tool's parameters: the part of a JSON schema that Ollama keeps."""

    any_of: tuple["ToolProperty", ...] | None = None
    type: tuple[str, ...] | None = None
    items: Any = None
    description: str = ""
    enum: list[Any] | None = None
    properties: Mapping[str, "ToolProperty"] | None = None
    """In the client's order."""
    required: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolParameters:
    """The parameters of a tool's function."""

    type: str = ""
    defs: Any = None
    items: Any = None
    required: tuple[str, ...] | None = None
    properties: Mapping[str, ToolProperty] | None = None


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """The function a tool offers."""

    name: str = ""
    description: str = ""
    parameters: ToolParameters = ToolParameters()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the request offers to the model."""

    type: str = ""
    items: Any = None
    function: ToolFunction = ToolFunction()


def decode_messages(value: Any) -> tuple[Message, ...]:
    """Decode the `messages` of a request or of `/api/show`.

    Raises:
        TemplateRefused: where Ollama answers 400 because a value has the wrong type.
        RenderError: where the outcome depends on what a decoded body no longer tells.
    """
    return _list(value, "messages", _message) or ()


def decode_tools(value: Any) -> tuple[Tool, ...] | None:
    """Decode the `tools` of a request; None when absent or null, which templates can tell from an empty list.

    Raises:
        TemplateRefused: where Ollama answers 400 because a value has the wrong type.
        RenderError: where the outcome depends on what a decoded body no longer tells.
    """
    if not value:
        return _list(value, "tools", _tool)
    try:
        told = marshal.dumps(value, 2)
    except ValueError:  # too deep, or a mapping that is no dict
        told = b""
    return _told_before(told) if 0 < len(told) <= _MOST_KEPT else _list(value, "tools", _tool)


@lru_cache(maxsize=32)
def _told_before(told: bytes) -> tuple[Tool, ...] | None:
    """Decode tools once: an agent sends the same ones with each request, and they are most of what is to be decoded.

    Args:
        told: the decoded JSON in Python's own binary form, which tells all values apart that are decoded differently.
    """
    return _list(marshal.loads(told), "tools", _tool)  # noqa: S302 - written by the caller


def decode_text(value: Any, name: str) -> str:
    """Decode a string field: null leaves it empty, a lone surrogate becomes U+FFFD, any other type is a 400."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong_type(name, "string")
    return clean_text(value)


def clean_text(text: str) -> str:
    """Replace each lone surrogate with U+FFFD, as Go's decoder does with such an escape."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def lower_text(text: str) -> str:
    """Lower-case rune by rune as Go's `strings.ToLower`: no final sigma, no rune becomes two."""
    if text.isascii():
        return text.lower()
    return "".join("i" if rune == "\u0130" else rune.lower() for rune in text)


def decode_free(value: Any) -> Any:
    """Decode a free-form value as Go decodes into `any`."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, _ARRAY):
        return [decode_free(item) for item in value]
    if isinstance(value, _OBJECT):
        return {clean_text(key): decode_free(item) for key, item in value.items()}
    raise _wrong_type("value", "JSON")


def _number(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong_type("number", "float64")
    return number


# --- one field table a struct: every spelling that is matched without folding, and the field it means

_MESSAGE: Final = ("role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id")
_CALL: Final = ("id", "function")
_CALL_FUNCTION: Final = ("index", "name", "arguments")
_TOOL: Final = ("type", "items", "function")
_FUNCTION: Final = ("name", "description", "parameters")
_PARAMETERS: Final = ("type", "$defs", "items", "required", "properties")
_PROPERTY: Final = ("anyOf", "type", "items", "description", "enum", "properties", "required")

_OBJECT: Final = (dict, Mapping)
"""What a decoded object is; asked in this order, because an abstract class takes ten times as long to ask."""
_ARRAY: Final = (list, tuple)

_MOST_KEPT: Final = 1 << 17
"""Bytes of one request's tools up to which what they decode to is kept."""

_FOLD: Final = {0x17F: "s", 0x212A: "k"}
"""The two runes beyond ASCII that Go's case folding takes for ASCII letters: long s and the Kelvin sign."""


def _fields(value: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    """The fields of an object that a struct has, matched as Go matches keys: case folded, the last one wins."""
    if value is None:
        return {}
    if not isinstance(value, _OBJECT):
        raise _wrong_type(where, "object")
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = key if key in names else _folded(key, names)
        if name is None:
            continue
        if name in found and not (isinstance(item, str) and isinstance(found[name], str)):
            raise RenderError(f"two keys of {where} both mean {name!r}")  # what Go makes of them depends on their order
        found[name] = item
    return found


def _folded(key: str, names: tuple[str, ...]) -> str | None:
    folded = key.translate(_FOLD).lower()
    return next((name for name in names if name.lower() == folded), None)


def _wrong_type(name: str, wanted: str) -> TemplateRefused:
    return TemplateRefused(f"json: cannot unmarshal {name} into a Go value of type {wanted}")


def _list(value: Any, name: str, decode: Callable[[Any], T]) -> tuple[T, ...] | None:
    if value is None:
        return None
    if not isinstance(value, _ARRAY):
        raise _wrong_type(name, "array")
    return tuple([decode(item) for item in value])


def _strings(value: Any, name: str) -> tuple[str, ...] | None:
    return _list(value, name, lambda item: decode_text(item, name))


def _ordered(value: Any, name: str, decode: Callable[[Any], T]) -> dict[str, T] | None:
    """An object whose key order Ollama keeps (`internal/orderedmap`), which refuses a broken surrogate in a key."""
    if value is None:
        return None
    if not isinstance(value, _OBJECT):
        raise _wrong_type(name, "object")
    for key in value:
        if clean_text(key) is not key:
            raise TemplateRefused(f"invalid escape sequence in a key of {name}")
    return {key: decode(item) for key, item in value.items()}


def _message(value: Any) -> Message:
    got = _fields(value, _MESSAGE, "a message")
    images = _list(got.get("images"), "images", _image)
    return Message(
        role=lower_text(decode_text(got.get("role"), "role")),
        content=decode_text(got.get("content"), "content"),
        thinking=decode_text(got.get("thinking"), "thinking"),
        tool_calls=_list(got.get("tool_calls"), "tool_calls", _call) or (),
        tool_name=decode_text(got.get("tool_name"), "tool_name"),
        tool_call_id=decode_text(got.get("tool_call_id"), "tool_call_id"),
        images=len(images or ()),
        empty_images=images == (),
    )


def _image(value: Any) -> None:
    """An image is counted, never decoded: whether its base64 is sound is Ollama's to say."""
    if not (value is None or isinstance(value, str | list)):
        raise _wrong_type("images", "[]uint8")


def _call(value: Any) -> ToolCall:
    got = _fields(value, _CALL, "a tool call")
    function = _fields(got.get("function"), _CALL_FUNCTION, "a tool call's function")
    index = function.get("index")
    if index is None:
        index = 0
    elif isinstance(index, bool) or not isinstance(index, int) or not -(2**63) <= index < 2**63:
        raise _wrong_type("index", "int")
    arguments = _ordered(function.get("arguments"), "arguments", decode_free)
    return ToolCall(
        id=decode_text(got.get("id"), "id"),
        index=index,
        name=decode_text(function.get("name"), "name"),
        arguments=arguments,
        null_arguments=arguments is None and "arguments" in function,
    )


def _tool(value: Any) -> Tool:
    got = _fields(value, _TOOL, "a tool")
    function = _fields(got.get("function"), _FUNCTION, "a tool's function")
    parameters = _fields(function.get("parameters"), _PARAMETERS, "a tool's parameters")
    return Tool(
        type=decode_text(got.get("type"), "type"),
        items=decode_free(got.get("items")),
        function=ToolFunction(
            name=decode_text(function.get("name"), "name"),
            description=decode_text(function.get("description"), "description"),
            parameters=ToolParameters(
                type=decode_text(parameters.get("type"), "type"),
                defs=decode_free(parameters.get("$defs")),
                items=decode_free(parameters.get("items")),
                required=_strings(parameters.get("required"), "required"),
                properties=_ordered(parameters.get("properties"), "properties", _property),
            ),
        ),
    )


def _property(value: Any) -> ToolProperty:
    got = _fields(value, _PROPERTY, "a property")
    enum = got.get("enum")
    if not (enum is None or isinstance(enum, _ARRAY)):
        raise _wrong_type("enum", "array")
    return ToolProperty(
        any_of=_list(got.get("anyOf"), "anyOf", _property),
        type=_property_type(got["type"]) if "type" in got else None,
        items=decode_free(got.get("items")),
        description=decode_text(got.get("description"), "description"),
        enum=None if enum is None else decode_free(enum),
        properties=_ordered(got.get("properties"), "properties", _property),
        required=_strings(got.get("required"), "required"),
    )


def _property_type(value: Any) -> tuple[str, ...]:
    """`api/types.go:PropertyType.UnmarshalJSON`: a string (null is the empty one), else a list of strings."""
    if value is None or isinstance(value, str):
        return (decode_text(value, "type"),)
    return _strings(value, "type") or ()
