"""Tools and tool calls as Ollama's structs keep them: unknown schema keys dropped, fields in struct order.

`api/types.go:Tool, ToolFunction, ToolFunctionParameters, ToolProperty` (v0.33).
"""

from typing import Any

from ollama_gate.rehearsal.gojson import in_key_order

Json = dict[str, Any]


def tool(value: Any) -> Json:
    """One tool definition as a template sees it."""
    given = _object(value)
    function = _object(given.get("function"))
    out: Json = {"type": given.get("type", "")}
    if given.get("items") is not None:
        out["items"] = in_key_order(given["items"])
    out["function"] = {
        "name": function.get("name", ""),
        "description": function.get("description") or "",
        "parameters": _parameters(_object(function.get("parameters"))),
    }
    return out


def misfit(value: Any, form: Any = None, path: str = "tools") -> str | None:
    """The path of the first field of a tool that has a type Go does not take; None where all fit."""
    form = _TOOL if form is None else form
    if value is None or form is Any:
        return None
    if isinstance(form, tuple):  # one or the other
        return None if any(misfit(value, one, path) is None for one in form) else path
    if isinstance(form, list):
        if not isinstance(value, list):
            return path
        return next((wrong for one in value if (wrong := misfit(one, form[0], path)) is not None), None)
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return path
        named = {key: form.get("*", form.get(key, Any)) for key in value}
        found = [misfit(value[key], inner, f"{path}.{key}") for key, inner in named.items()]
        return next((each for each in found if each is not None), None)
    return None if isinstance(value, form) else path


_PROPERTY: Json = {"type": (str, [str]), "description": str, "enum": [Any], "required": [str]}
_PROPERTY |= {"anyOf": [_PROPERTY], "properties": {"*": _PROPERTY}}
_PARAMETERS: Json = {"type": str, "required": [str], "properties": {"*": _PROPERTY}}
_TOOL: Json = {"type": str, "function": {"name": str, "description": str, "parameters": _PARAMETERS}}


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _parameters(given: Json) -> Json:
    out: Json = {"type": given.get("type", "")}
    for free in ("$defs", "items"):
        if given.get(free) is not None:
            out[free] = in_key_order(given[free])
    if given.get("required"):
        out["required"] = given["required"]
    properties = given.get("properties")
    out["properties"] = None if properties is None else {k: _property(_object(v)) for k, v in properties.items()}
    return out


def _property(given: Json) -> Json:
    out: Json = {}
    if given.get("anyOf"):
        out["anyOf"] = [_property(_object(one)) for one in given["anyOf"]]
    kind = given.get("type", [])
    if kind != []:
        out["type"] = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind or ""
    if given.get("items") is not None:
        out["items"] = in_key_order(given["items"])
    if given.get("description"):
        out["description"] = given["description"]
    if given.get("enum"):
        out["enum"] = in_key_order(given["enum"])
    if given.get("properties") is not None:
        out["properties"] = {key: _property(_object(one)) for key, one in given["properties"].items()}
    if given.get("required"):
        out["required"] = given["required"]
    return out
