"""POST /v1/responses: the request, made one for /api/chat (`openai/responses.go:FromResponsesRequest`, Ollama v0.33).

Where the gate does more than Ollama: `tool_choice: "none"` is honoured, and tools that would run inside Ollama, where
no gate could guard what they add to the prompt, are left out, refused or handed on as the operator says.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ollama_gate.dialects.go_fields import (
    Place,
    bad_request,
    element,
    flag,
    integer,
    items,
    number,
    record,
    text,
    texts,
)
from ollama_gate.dialects.go_json import sorted_keys
from ollama_gate.dialects.options import checked_schema
from ollama_gate.dialects.responses_input import input_messages
from ollama_gate.dialects.server_tools import NOTE_PASSED, goes_on, search_function, without_namesakes
from ollama_gate.dialects.translation import (
    KEEP_ALIVE_HEADER,
    NOTE_NO_FORMAT,
    NOTE_NO_STATE,
    NOTE_TOOL_CHOICE_IGNORED,
    NOTE_TOOL_CHOICE_NONE,
    ServerTools,
    inference_request,
    nameless_tool,
    note_elsewhere,
    note_left_out,
    nothing_said,
    think_of_effort,
)
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import InferenceRequest, Json, Kind

FIELDS: Final = frozenset(
    {
        "model",
        "background",
        "conversation",
        "previous_response_id",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "reasoning",
        "temperature",
        "prompt",
        "text",
        "top_p",
        "truncation",
        "tools",
        "tool_choice",
        "stream",
    }
)
_LEFT_OUT: Final = frozenset({"options", "top_logprobs", "max_tool_calls", "prompt", "messages"})
_ELSEWHERE: Final = {
    "think": "reasoning.effort",
    "enable_thinking": "reasoning.effort",
    "reasoning_effort": "reasoning.effort",
    "format": "text.format",
    "response_format": "text.format",
    "keep_alive": f"the header {KEEP_ALIVE_HEADER}",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "num_predict": "max_output_tokens",
    "system": "instructions",
}
_SAYS: Final = ("input", "prompt", "messages", "previous_response_id", "conversation")
"""Where there is one of these, somebody wants an answer; without any, the model is loaded."""
REQUEST: Final = Place("ResponsesRequest")
TOOL: Final = REQUEST.within("tools", "ResponsesTool")
NOTE_CUSTOM_TOOLS: Final = "custom tools are offered as functions: Ollama takes no free text for a call"
_CLIENT_TOOLS: Final = frozenset({"", "function", "namespace", "custom"})
"""Tools that the caller runs; any other type is one that OpenAI, or for web_search Ollama, would run."""
_WEB_SEARCH: Final = search_function("Search the web for current information.", "The search query.")
"""As `WebSearchFunctionTool` has it."""


def parse(body: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read a responses request.

    Args:
        body: the decoded body, odd-cased keys folded to `FIELDS`.
        headers: looked up by lower-case names.
        server_tools: what to do with `web_search` and the like.

    Raises:
        Refused: 400 with Ollama's own text, or in plain words for server-side tools where they are refused.
    """
    notes: list[str] = []
    flag(body, "background", REQUEST)
    texts(body, "include", REQUEST)
    text(body, "truncation", REQUEST)
    if isinstance(body.get("prompt"), dict):
        raise _stored_prompt()
    note_left_out(body, _LEFT_OUT, notes)
    note_elsewhere(body, _ELSEWHERE, notes)
    if body.get("previous_response_id") or body.get("conversation"):
        notes.append(NOTE_NO_STATE)
    messages = input_messages(body.get("input"), text(body, "instructions", REQUEST))
    _has_what_it_follows(body.get("previous_response_id"), messages)
    if not messages and not body.keys().isdisjoint(_SAYS) and any(map(body.get, _SAYS)):
        raise nothing_said("input")
    asked = integer(body, "max_output_tokens", REQUEST)
    native: dict[str, Any] = {
        "model": text(body, "model", REQUEST),
        "messages": messages,
        "stream": flag(body, "stream", REQUEST),
    }
    tools = _tools(body, server_tools, notes)
    if tools:
        native["tools"] = tools
    temperature = number(body, "temperature", REQUEST)
    top_p = number(body, "top_p", REQUEST)
    # Unlike on chat completions, Ollama sets no top_p of its own: the model's stays in force.
    options: dict[str, Any] = {"temperature": 1.0 if temperature is None else temperature}
    if top_p is not None:
        options["top_p"] = top_p
    if asked is not None:
        options["num_predict"] = asked
    native["options"] = options
    wanted = _format(text_format(body) or {}, notes)
    if wanted is not None:
        native["format"] = wanted
    think = think_of_effort(reasoning_wish(body)[0])
    if think is not None:
        native["think"] = think
    return inference_request(
        Kind.CHAT,
        "responses",
        body,
        headers,
        native,
        asked_output=asked,
        notes=notes,
        empty=not messages,
        as_it_came=NOTE_PASSED in notes,
    )


def _has_what_it_follows(previous: Any, messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what is only understood with a response that nobody has.

    Ollama ignores `previous_response_id`, and its model would answer without the conversation. Who sends that whole
    conversation too has an answer of the model in it, and loses nothing; without one it is OpenAI's own error for a
    response that is not there.

    Raises:
        Refused: 400 `previous_response_not_found`.
    """
    if not previous or not messages or any(message.get("role") == "assistant" for message in messages):
        return
    raise Refused(
        Refusal(
            400,
            "previous_response_not_found",
            f"Previous response with id {str(previous)[:100]!r} not found: nobody here keeps responses. "
            "Send the whole conversation as input, without previous_response_id.",
            param="previous_response_id",
        )
    )


def _format(wish: Json, notes: list[str]) -> Any:
    """The form of the answer. Ollama's layer takes schemas only; `json_object` is the form that any model can keep."""
    match wish.get("type"):
        case "json_object":
            return "json"
        case "json_schema" if (schema := checked_schema(wish.get("schema"), "text.format.schema")) is not None:
            return schema
        case None | "" | "text":
            return None
        case _:
            notes.append(NOTE_NO_FORMAT)
            return None


def _stored_prompt() -> Refused:
    return bad_request(
        "prompt names one that is stored at OpenAI, and there are none here: send its text as instructions or input",
        "prompt",
    )


def reasoning_wish(body: Json) -> tuple[str, str]:
    """Effort and summary that the client asked for; each may be empty."""
    reasoning = record(body, "reasoning", REQUEST, "openai.ResponsesReasoning") or {}
    place = REQUEST.within("reasoning", "ResponsesReasoning")
    return text(reasoning, "effort", place), text(reasoning, "summary", place)


def text_format(body: Json) -> Json | None:
    """The `text.format` object, its fields checked; None when there is none."""
    holder = record(body, "text", REQUEST, "openai.ResponsesText") or {}
    place = REQUEST.within("text", "ResponsesText")
    format_ = record(holder, "format", place, "openai.ResponsesTextFormat")
    if format_ is not None:
        inner = place.within("format", "ResponsesTextFormat")
        text(format_, "type", inner)
        text(format_, "name", inner)
        flag(format_, "strict", inner)
    return format_


def declared_tools(body: Json) -> list[Json]:
    """The tools as the client declared them, their fields checked."""
    return _checked(items(body, "tools", REQUEST, "openai.ResponsesTool") or [], TOOL)


def _checked(tools: list[Any], place: Place) -> list[Json]:
    checked = [element(tool, REQUEST, "tools", "openai.ResponsesTool") for tool in tools]
    for tool in checked:
        for name in ("type", "name", "description"):
            text(tool, name, place)
        flag(tool, "strict", place)
        record(tool, "parameters", place, "map[string]interface {}")
        _checked(items(tool, "tools", place, "openai.ResponsesTool") or [], place.within("tools", "ResponsesTool"))
    return checked


def _tools(body: Json, server_tools: ServerTools, notes: list[str]) -> list[Json]:
    declared = declared_tools(body)
    choice = body.get("tool_choice")
    if choice == "none" and declared:
        notes.append(NOTE_TOOL_CHOICE_NONE)
        return []
    if choice not in (None, "auto", "none") and declared:
        notes.append(NOTE_TOOL_CHOICE_IGNORED)
    native: list[Json] = []
    for index, tool in enumerate(declared):
        kind = text(tool, "type", TOOL)
        if kind in _CLIENT_TOOLS:
            if tool and kind != "namespace" and not tool.get("name"):
                raise nameless_tool(f"tools[{index}].name")
            native.extend(_expanded(tool))
            if kind == "custom" and NOTE_CUSTOM_TOOLS not in notes:
                notes.append(NOTE_CUSTOM_TOOLS)
        elif goes_on(server_tools, notes):
            native.extend([_WEB_SEARCH] if kind == "web_search" else _expanded(tool))
    return without_namesakes(native, _WEB_SEARCH)


def _expanded(tool: Json) -> list[Json]:
    """One function, or the functions of a namespace with its name before theirs."""
    name = tool.get("name") or ""
    if tool.get("type") != "namespace":
        return [_function(tool, name)]
    members = [inner for member in tool.get("tools") or () for inner in _expanded(member or {})]
    prefix = f"{name}."
    for member in members:
        function = member["function"]
        if name and not function["name"].startswith(prefix):
            function["name"] = prefix + function["name"]
    return members


def _function(tool: Json, name: str) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name}
    if tool.get("description"):
        function["description"] = tool["description"]
    if tool.get("parameters") is not None:
        # Ollama decodes them into a Go map, and so loses the client's order before the model sees them.
        function["parameters"] = sorted_keys(tool["parameters"])
    return {"type": tool.get("type") or "", "function": function}
