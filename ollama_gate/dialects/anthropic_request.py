"""POST /v1/messages: the request, made one for /api/chat (`anthropic/anthropic.go:FromMessagesRequest`, Ollama v0.33).

Where the gate does more than Ollama: `tool_choice` `none` and a schema for the answer are honoured, server-side tools
follow the operator's policy, and requests for a count are read too.
"""

from collections.abc import Mapping
from typing import Any, Final

from ollama_gate.dialects.anthropic_content import REQUEST, native_messages, system_messages
from ollama_gate.dialects.go_fields import (
    bad_request,
    element,
    flag,
    integer,
    items,
    kind,
    number,
    record,
    text,
    texts,
)
from ollama_gate.dialects.options import checked_schema
from ollama_gate.dialects.server_tools import NOTE_PASSED, goes_on, search_function, without_namesakes
from ollama_gate.dialects.tool_calls import name_results
from ollama_gate.dialects.translation import (
    KEEP_ALIVE_HEADER,
    NOTE_CONTENT_LEFT_OUT,
    NOTE_TOOL_CHOICE_IGNORED,
    NOTE_TOOL_CHOICE_NONE,
    ServerTools,
    inference_request,
    nameless_tool,
    note_elsewhere,
    note_left_out,
    nothing_said,
    quoted,
)
from ollama_gate.requests import InferenceRequest, Json, Kind

FIELDS: Final = frozenset(
    {
        "model",
        "max_tokens",
        "messages",
        "system",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "metadata",
        "output_config",
        "output_format",
    }
)
_LEFT_OUT: Final = frozenset({"options", "mcp_servers", "container"})
_ELSEWHERE: Final = {
    "think": "thinking",
    "enable_thinking": "thinking",
    "reasoning_effort": "thinking",
    "format": "output_config.format",
    "response_format": "output_config.format",
    "keep_alive": f"the header {KEEP_ALIVE_HEADER}",
    "max_completion_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "stop": "stop_sequences",
}
_TOOL: Final = REQUEST.within("tools", "Tool")
_MESSAGE_TYPE: Final = 'struct { Role string "json:\\"role\\""; Content json.RawMessage "json:\\"content\\"" }'
_SERVER_TOOLS: Final = ("web_search", "web_fetch", "code_execution", "tool_search_tool", "mcp_toolset")
"""Beginnings of the types of tools that a server runs; a date follows. Of these Ollama runs web_search."""
_WEB_SEARCH: Final = search_function(
    "Search the web for current information. Use this to find up-to-date information about any topic.",
    "The search query to look up on the web",
)
"""As `convertTool` has it."""


def parse(body: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read a messages request.

    Args:
        body: the decoded body, odd-cased keys folded to `FIELDS`.
        headers: looked up by lower-case names.
        server_tools: what to do with `web_search` and the like.

    Raises:
        Refused: 400 with Ollama's own text, or in plain words for server-side tools where they are refused.
    """
    model = text(body, "model", REQUEST)
    asked = integer(body, "max_tokens", REQUEST)
    if model and (asked is None or asked <= 0):
        raise bad_request("max_tokens is required and must be positive")
    return _translated(body, headers, server_tools, asked)


def parse_count(body: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read a request for a count: the same body, and `max_tokens` is not asked for.

    Raises:
        Refused: as `parse`.
    """
    return _translated(body, headers, server_tools, None)


def _translated(
    body: Json, headers: Mapping[str, str], server_tools: ServerTools, asked: int | None
) -> InferenceRequest:
    if not text(body, "model", REQUEST):
        raise bad_request("model is required")
    raw = items(body, "messages", REQUEST, "anthropic.MessageParam")
    if not raw:
        raise bad_request("messages is required")
    notes: list[str] = []
    messages = system_messages(body.get("system"))
    if body.get("system") and not messages:
        notes.append(NOTE_CONTENT_LEFT_OUT)
    for index, each in enumerate(raw):
        messages.extend(native_messages(element(each, REQUEST, "messages", _MESSAGE_TYPE), index, notes))
    if not messages:
        raise nothing_said("messages")
    name_results(messages)
    native: dict[str, Any] = {
        "model": text(body, "model", REQUEST),
        "messages": messages,
        "stream": flag(body, "stream", REQUEST),
    }
    tools = _tools(body, server_tools, notes)
    if tools:
        native["tools"] = tools
    native["options"] = _options(body, asked)
    schema = _schema(body)
    if schema is not None:
        native["format"] = schema
    think = _think(body)
    if think is not None:
        native["think"] = think
    record(body, "metadata", REQUEST, "anthropic.Metadata")
    note_left_out(body, _LEFT_OUT, notes)
    note_elsewhere(body, _ELSEWHERE, notes)
    return inference_request(
        Kind.CHAT,
        "anthropic",
        body,
        headers,
        native,
        asked_output=asked,
        notes=notes,
        as_it_came=NOTE_PASSED in notes,
    )


def _options(body: Json, asked: int | None) -> dict[str, Any]:
    """Only what the client set: unlike OpenAI's routes, this one has no temperature of its own in Ollama."""
    options: dict[str, Any] = {}
    if asked is not None:
        options["num_predict"] = asked
    for name in ("temperature", "top_p"):
        value = number(body, name, REQUEST)
        if value is not None:
            options[name] = value
    top_k = integer(body, "top_k", REQUEST)
    if top_k is not None:
        options["top_k"] = top_k
    stop = texts(body, "stop_sequences", REQUEST)
    if stop:
        options["stop"] = stop
    return options


def _think(body: Json) -> bool | str | None:
    """`enabled` and `disabled` decide; any other type, such as `adaptive`, leaves it to the effort, if there is one."""
    thinking = record(body, "thinking", REQUEST, "anthropic.ThinkingConfig") or {}
    wish = text(thinking, "type", REQUEST.within("thinking", "ThinkingConfig"))
    config = record(body, "output_config", REQUEST, "anthropic.OutputConfig") or {}
    effort = text(config, "effort", REQUEST.within("output_config", "OutputConfig")).strip().lower()
    if wish in ("enabled", "disabled"):
        return wish == "enabled"
    if effort == "xhigh":
        return "high"
    return effort if effort in ("high", "medium", "low", "max") else None


def _schema(body: Json) -> Json | None:
    """The JSON schema that the answer must follow, which Ollama's own layer overlooks; None when there is none."""
    config = record(body, "output_config", REQUEST, "anthropic.OutputConfig") or {}
    for holder, key, name in ((config, "format", "output_config.format"), (body, "output_format", "output_format")):
        wish = holder.get(key)
        if isinstance(wish, dict) and wish.get("type") == "json_schema":
            schema = checked_schema(wish.get("schema"), f"{name}.schema")
            return schema if isinstance(schema, dict) else None
    return None


def _tools(body: Json, server_tools: ServerTools, notes: list[str]) -> list[Json]:
    declared = [
        element(tool, REQUEST, "tools", "anthropic.Tool")
        for tool in items(body, "tools", REQUEST, "anthropic.Tool") or ()
    ]
    choice = record(body, "tool_choice", REQUEST, "anthropic.ToolChoice") or {}
    wish = text(choice, "type", REQUEST.within("tool_choice", "ToolChoice"))
    native: list[Json] = []
    for index, tool in enumerate(declared):
        type_ = text(tool, "type", _TOOL)
        if not type_.startswith(_SERVER_TOOLS):
            if tool and not tool.get("name"):
                raise nameless_tool(f"tools[{index}].name")
            native.append(_function(tool))
        elif goes_on(server_tools, notes):
            native.append(_WEB_SEARCH if type_.startswith("web_search") else _function(tool))
    native = without_namesakes(native, _WEB_SEARCH)
    if native and wish == "none":
        notes.append(NOTE_TOOL_CHOICE_NONE)
        return []
    if native and wish not in ("", "auto"):
        notes.append(NOTE_TOOL_CHOICE_IGNORED)
    return native


def _function(tool: Json) -> dict[str, Any]:
    name = text(tool, "name", _TOOL)
    function: dict[str, Any] = {"name": name}
    description = text(tool, "description", _TOOL)
    if description:
        function["description"] = description
    schema = tool.get("input_schema")
    if schema is not None:
        if not isinstance(schema, dict):
            raise bad_request(
                f"invalid input_schema for tool {quoted(name)}: "
                f"json: cannot unmarshal {kind(schema)} into Go value of type api.ToolFunctionParameters"
            )
        function["parameters"] = schema
    return {"type": "function", "function": function}
