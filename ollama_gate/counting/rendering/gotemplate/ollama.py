"""The types, functions and data that Ollama hands to a template.

Sources: `template/template.go` (`templateTool`, `templateMessage`, `collate`, `funcs`) and `api/types.go`
(`ToolProperty`, `PropertyType`, `ToolPropertiesMap`), Ollama v0.33.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final

from ollama_gate.counting.rendering.gotemplate.era import Era
from ollama_gate.counting.rendering.gotemplate.frame import Frame
from ollama_gate.counting.rendering.gotemplate.functions import BUILTINS, INTERFACE, TEXT, GoFunction
from ollama_gate.counting.rendering.gotemplate.gojson import encode, encode_data, ordered_map, quote
from ollama_gate.counting.rendering.gotemplate.values import (
    ANY,
    ANY_MAP,
    ANY_SLICE,
    INT,
    STRING,
    STRINGS,
    GoField,
    GoType,
    GoValue,
    Kind,
    Typed,
)
from ollama_gate.counting.structs import Message, Tool, ToolFunction, ToolParameters, ToolProperty


def _fields(*fields: GoField) -> dict[str, GoField]:
    return {field.name: field for field in fields}


def _field(name: str, go_type: GoType, key: str = "", *, omit_empty: bool = False) -> GoField:
    """A field that is read from the attribute of the same name in Python's spelling."""
    attribute = "".join(
        "_" + letter.lower() if letter.isupper() and i else letter.lower() for i, letter in enumerate(name)
    )
    return GoField(name, go_type, attrgetter(attribute), key, omit_empty)


# --- a property of a tool's parameters, from Ollama's api package


def _type_text(types: Sequence[str] | None) -> str:
    if not types:
        return ""
    return types[0] if len(types) == 1 else f"[{' '.join(types)}]"


def _type_json(types: Sequence[str] | None) -> str:
    return quote(types[0]) if types and len(types) == 1 else encode_data(STRINGS, types)


_TYPESCRIPT: Final[Mapping[str, str]] = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "array": "any[]",
    "object": "Record<string, any>",
    "null": "null",
}


def typescript_type(value: ToolProperty) -> str:
    """A property's type in TypeScript (`api/types.go:ToolProperty.ToTypeScriptType`)."""
    if value.any_of:
        return " | ".join([typescript_type(choice) for choice in value.any_of])
    return " | ".join([_TYPESCRIPT.get(name, "any") for name in value.type]) if value.type else "any"


_PROPERTY_TYPE: Final = GoType(
    "api.PropertyType",
    Kind.SLICE,
    STRING,
    text=_type_text,
    json=_type_json,
    methods={"String": _type_text},
    unknown=frozenset({"MarshalJSON", "UnmarshalJSON"}),
)


def _property_struct(era: Era) -> GoType:
    """`api.ToolProperty` with the map of properties that it may hold."""
    struct = GoType(
        "api.ToolProperty", Kind.STRUCT, methods={"ToTypeScriptType": typescript_type}, blank=ToolProperty()
    )
    plain_map = GoType("map[string]api.ToolProperty", Kind.MAP, struct)
    pairs = GoType("iter.Seq2[string,api.ToolProperty]", Kind.ITERATOR, struct)
    ordered = GoType(
        "*api.ToolPropertiesMap",
        Kind.POINTER,
        GoType("api.ToolPropertiesMap", Kind.STRUCT),
        json=lambda data: ordered_map(struct, data),
        methods={
            "Len": lambda data: len(data or ()),
            "ToMap": lambda data: Typed(plain_map, data),
            "All": lambda data: Typed(pairs, list((data or {}).items())),
        },
        unknown=frozenset({"Get", "Set", "MarshalJSON", "UnmarshalJSON"}),
    )
    struct.fields = _fields(
        _field("AnyOf", GoType("[]api.ToolProperty", Kind.SLICE, struct), "anyOf", omit_empty=True),
        _field("Type", _PROPERTY_TYPE, "type", omit_empty=True),
        _field("Items", ANY, "items", omit_empty=True),
        _field("Description", STRING, "description", omit_empty=True),
        _field("Enum", ANY_SLICE, "enum", omit_empty=True),
        _field("Properties", ordered, "properties", omit_empty=True),
        *([] if era is Era.SHORT_PROPERTIES else [_field("Required", STRINGS, "required", omit_empty=True)]),
    )
    return struct


# --- tools and messages, from Ollama's template package


def _map_type(name: str, elem: GoType) -> GoType:
    """A map with a `String()` of its own, which writes nil as an empty object."""
    plain = GoType(name, Kind.MAP, elem)

    def text(data: Mapping[str, Any] | None) -> str:
        return "{}" if data is None else encode_data(plain, data)

    plain.text = text
    plain.methods = {"String": text}
    return plain


def _tool_type(era: Era) -> GoType:
    parameters = GoType(
        "template.templateToolFunctionParameters",
        Kind.STRUCT,
        fields=_fields(
            _field("Type", STRING, "type"),
            _field("Defs", ANY, "$defs", omit_empty=True),
            _field("Items", ANY, "items", omit_empty=True),
            _field("Required", STRINGS, "required", omit_empty=True),
            _field("Properties", _map_type("template.templateProperties", _property_struct(era)), "properties"),
        ),
        blank=ToolParameters(),
    )
    function = GoType(
        "template.templateToolFunction",
        Kind.STRUCT,
        fields=_fields(
            _field("Name", STRING, "name"),
            _field("Description", STRING, "description"),
            _field("Parameters", parameters, "parameters"),
        ),
        blank=ToolFunction(),
    )
    tool = GoType(
        "template.templateTool",
        Kind.STRUCT,
        fields=_fields(
            _field("Type", STRING, "type"),
            _field("Items", ANY, "items", omit_empty=True),
            _field("Function", function, "function"),
        ),
        blank=Tool(),
    )
    if era is Era.JSON_TOOLS:
        _print_as_json(tool)
    return tool


def _print_as_json(go_type: GoType) -> None:
    """Give a type the `String()` that marshals it."""

    def text(data: Any) -> str:
        return encode_data(go_type, data)

    go_type.text = text
    go_type.methods = {**go_type.methods, "String": text}


def _tools_type(era: Era) -> GoType:
    tools = GoType("template.templateTools", Kind.SLICE, _tool_type(era))
    _print_as_json(tools)
    return tools


_TOOLS: Final[Mapping[Era, GoType]] = {era: _tools_type(era) for era in Era}

_CALL_FUNCTION: Final = GoType(
    "template.templateToolCallFunction",
    Kind.STRUCT,
    fields=_fields(
        _field("Index", INT),
        _field("Name", STRING),
        _field("Arguments", _map_type("template.templateArgs", ANY)),
    ),
)
_CALL: Final = GoType(
    "template.templateToolCall",
    Kind.STRUCT,
    fields={
        "ID": GoField("ID", STRING, attrgetter("id")),
        "Function": GoField("Function", _CALL_FUNCTION, lambda call: call),
    },
)
_IMAGE: Final = GoType("api.ImageData", Kind.OPAQUE)
_MESSAGE: Final = GoType(
    "template.templateMessage",
    Kind.STRUCT,
    fields=_fields(
        _field("Role", STRING),
        _field("Content", STRING),
        _field("Thinking", STRING),
        GoField(
            "Images",
            GoType("[]api.ImageData", Kind.SLICE, _IMAGE),
            lambda message: (b"",) * message.images if message.images or message.empty_images else None,
        ),
        GoField(
            "ToolCalls",
            GoType("[]template.templateToolCall", Kind.SLICE, _CALL),
            lambda message: message.tool_calls or None,
        ),
        _field("ToolName", STRING),
        GoField("ToolCallID", STRING, attrgetter("tool_call_id")),
    ),
)
_MESSAGES: Final = GoType(
    "[]*template.templateMessage", Kind.SLICE, GoType("*template.templateMessage", Kind.POINTER, _MESSAGE)
)

# --- what goes in


def collate(messages: Iterable[Message]) -> tuple[str, tuple[Message, ...]]:
    """Join neighbours of one role, and all system contents (`template/template.go:collate`).

    Of the later neighbour only the content is kept; its thinking, calls and images are lost. Tool messages stay apart.
    """
    system: list[str] = []
    out: list[Message] = []
    run: list[str] = []
    for message in messages:
        if message.role == "system":
            system.append(message.content)
        if out and out[-1].role == message.role and message.role != "tool":
            run.append(message.content)
            continue
        _close(out, run)
        out.append(message)
        run = [message.content]
    _close(out, run)
    return "\n\n".join(system), tuple(out)


def _close(out: list[Message], run: Sequence[str]) -> None:
    if len(run) > 1:
        out[-1] = replace(out[-1], content="\n\n".join(run))


def messages_value(messages: tuple[Message, ...]) -> Typed:
    """`.Messages`."""
    return Typed(_MESSAGES, messages or None)


def tools_value(tools: tuple[Tool, ...] | None, era: Era) -> Typed:
    """`.Tools`."""
    return Typed(_TOOLS[era], tools)


def root_value(data: dict[str, Any]) -> Typed:
    """The data that a template starts with."""
    return Typed(ANY_MAP, data)


# --- Ollama's functions


def _to_typescript(_frame: Frame, value: GoValue) -> str:
    if isinstance(value, Typed) and value.type.kind is Kind.STRUCT and isinstance(value.data, ToolProperty):
        return typescript_type(value.data)
    return "any"


FUNCTIONS: Final[Mapping[str, GoFunction]] = {
    **BUILTINS,
    "json": GoFunction(lambda _frame, value: encode(value), (INTERFACE,), makes_text=True),
    "currentDate": GoFunction(lambda frame, *_arguments: frame.today.isoformat(), (), TEXT),
    "yesterdayDate": GoFunction(lambda frame, *_arguments: (frame.today - timedelta(days=1)).isoformat(), (), TEXT),
    "toTypeScriptType": GoFunction(_to_typescript, (INTERFACE,), makes_text=True),
}
"""Go's builtins and Ollama's own (`template/template.go:funcs`); the date is the server's local one."""
