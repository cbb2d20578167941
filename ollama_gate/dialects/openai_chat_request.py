"""POST /v1/chat/completions: the request, made one for /api/chat (`openai/openai.go:FromChatRequest`, Ollama v0.33).

Where the gate does more than Ollama: `max_completion_tokens` is honoured, and so is `tool_choice: "none"`; a tool's
result keeps the call that it answers, and a call without arguments is one.
"""

from collections.abc import Mapping
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
    type_name,
)
from ollama_gate.dialects.media import base64_fault, image_of_url
from ollama_gate.dialects.openai_stream import wants_usage
from ollama_gate.dialects.options import checked_schema
from ollama_gate.dialects.tool_calls import native_call, parsed_arguments
from ollama_gate.dialects.translation import (
    KEEP_ALIVE_HEADER,
    NOTE_NO_FORMAT,
    NOTE_ONE_CHOICE,
    NOTE_TOOL_CHOICE_IGNORED,
    NOTE_TOOL_CHOICE_NONE,
    NOTE_TOOLS_LEFT_OUT,
    ServerTools,
    inference_request,
    nameless_call,
    nameless_tool,
    note_beside_functions,
    note_elsewhere,
    note_in_messages,
    note_left_out,
    nothing_said,
    think_of_effort,
)
from ollama_gate.requests import InferenceRequest, Json, Kind
from ollama_gate.wire.body import Census

FIELDS: Final = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "stop",
        "temperature",
        "frequency_penalty",
        "presence_penalty",
        "top_p",
        "response_format",
        "tools",
        "tool_choice",
        "reasoning",
        "reasoning_effort",
        "logprobs",
        "top_logprobs",
        "n",
        "_debug_render_only",
    }
)
_LEFT_OUT: Final = frozenset(
    {
        "functions",
        "function_call",
        "logit_bias",
        "audio",
        "web_search_options",
        "options",
        "top_k",
        "min_p",
        "repeat_penalty",
        "chat_template_kwargs",
    }
)
_ELSEWHERE: Final = {
    "think": "reasoning_effort",
    "enable_thinking": "reasoning_effort",
    "format": "response_format",
    "keep_alive": f"the header {KEEP_ALIVE_HEADER}",
    "num_predict": "max_completion_tokens",
    "system": "messages of the role system",
}
_MESSAGE_ELSEWHERE: Final = {
    "toolCalls": "tool_calls",
    "toolCallId": "tool_call_id",
    "tool_name": "name",
    "thinking": "reasoning",
}
_CLIENT_TOOLS: Final = (None, "", "function", "custom")
_REQUEST: Final = Place("ChatCompletionRequest")
_MESSAGE: Final = _REQUEST.within("messages", "Message")
_CALL: Final = _MESSAGE.within("tool_calls", "ToolCall")
_FUNCTION: Final = _CALL.within("function", "")
_FUNCTION_TYPE: Final = 'struct { Name string "json:\\"name\\""; Arguments string "json:\\"arguments\\"" }'


def parse(body: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read a chat request.

    Args:
        body: the decoded body, odd-cased keys folded to `FIELDS`.
        headers: looked up by lower-case names.
        server_tools: without meaning here: this route has no tools that Ollama would run.

    Raises:
        Refused: 400 with Ollama's own text.
    """
    del server_tools
    notes: list[str] = []
    messages = items(body, "messages", _REQUEST, "openai.Message")
    if not messages:
        raise bad_request("[] is too short - 'messages'")
    messages = [element(each, _REQUEST, "messages", "openai.Message") for each in messages]
    native: dict[str, Any] = {
        "model": text(body, "model", _REQUEST),
        "messages": _native_messages(messages),
        "stream": flag(body, "stream", _REQUEST),
    }
    if not native["messages"]:
        raise nothing_said("messages")
    asked = integer(body, "max_completion_tokens", _REQUEST)
    if asked is None:
        asked = integer(body, "max_tokens", _REQUEST)
    include_usage(body)
    tools = _tools(body, notes)
    if tools:
        native["tools"] = tools
    native["options"] = _options(body, asked)
    format_ = _format(body, notes)
    if format_ is not None:
        native["format"] = format_
    reasoning = record(body, "reasoning", _REQUEST, "openai.Reasoning")
    if reasoning is not None:
        effort = text(reasoning, "effort", _REQUEST.within("reasoning", "Reasoning"))
    else:
        effort = text(body, "reasoning_effort", _REQUEST)
    think = think_of_effort(effort)
    if think is not None:
        native["think"] = think
    if flag(body, "logprobs", _REQUEST):
        native["logprobs"] = True
    top_logprobs = integer(body, "top_logprobs", _REQUEST)
    if top_logprobs:
        native["top_logprobs"] = top_logprobs
    if flag(body, "_debug_render_only", _REQUEST):
        native["_debug_render_only"] = True
    note_left_out(body, _LEFT_OUT, notes)
    note_elsewhere(body, _ELSEWHERE, notes)
    if astray := [message for message in messages if not message.keys().isdisjoint(_MESSAGE_ELSEWHERE)]:
        note_in_messages(astray, _MESSAGE_ELSEWHERE, notes)
    if body.get("n") not in (None, 1):
        notes.append(NOTE_ONE_CHOICE)
    return inference_request(
        Kind.CHAT,
        "openai",
        body,
        headers,
        native,
        asked_output=asked,
        notes=notes,
    )


def include_usage(body: Json) -> bool:
    """Whether the client wants a usage chunk at the end of its stream."""
    return wants_usage(body, _REQUEST)


def _tools(body: Json, notes: list[str]) -> list[Any]:
    """The tools as they came: Ollama keeps of them what `api.Tool` has, here and on /api/chat alike."""
    declared = items(body, "tools", _REQUEST, "api.Tool") or []
    tools = [tool for index, tool in enumerate(declared) if _named(tool, index)]
    if len(tools) < len(declared):
        notes.append(NOTE_TOOLS_LEFT_OUT)
    choice = body.get("tool_choice")
    if not tools:
        return []
    if choice == "none":
        notes.append(NOTE_TOOL_CHOICE_NONE)
        return []
    if choice not in (None, "auto"):
        notes.append(NOTE_TOOL_CHOICE_IGNORED)
    note_beside_functions(tools, notes)
    return tools


def _named(tool: Any, index: int) -> bool:
    """Whether a tool is one that a model can call; none is what only a server can run (`{"type":"web_search"}`)."""
    function = element(tool, _REQUEST, "tools", "api.Tool").get("function")
    if not tool or (isinstance(function, dict) and function.get("name")):
        return True
    if tool.get("type") not in _CLIENT_TOOLS:
        return False
    raise nameless_tool(f"tools[{index}].function.name")


def _options(body: Json, asked: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    stop = body.get("stop")
    if isinstance(stop, str):
        options["stop"] = [stop]
    elif isinstance(stop, list):
        options["stop"] = [each for each in stop if isinstance(each, str)]
    if asked is not None:
        options["num_predict"] = asked
    temperature = number(body, "temperature", _REQUEST)
    options["temperature"] = 1.0 if temperature is None else temperature
    seed = integer(body, "seed", _REQUEST)
    if seed is not None:
        options["seed"] = seed
    for name in ("frequency_penalty", "presence_penalty"):
        penalty = number(body, name, _REQUEST)
        if penalty is not None:
            options[name] = penalty
    top_p = number(body, "top_p", _REQUEST)
    options["top_p"] = 1.0 if top_p is None else top_p
    return options


def _format(body: Json, notes: list[str]) -> Any:
    response_format = record(body, "response_format", _REQUEST, "openai.ResponseFormat")
    if response_format is None:
        return None
    place = _REQUEST.within("response_format", "ResponseFormat")
    schema = record(response_format, "json_schema", place, "openai.JsonSchema") or {}
    match text(response_format, "type", place).strip().lower():
        case "json_object":
            return "json"
        case "json_schema" if wanted := checked_schema(schema.get("schema"), "response_format.json_schema.schema"):
            return wanted
        case "" | "text":
            return None
        case _:
            notes.append(NOTE_NO_FORMAT)
            return None


def _native_messages(messages: list[Json]) -> list[dict[str, Any]]:
    names = _names_of_calls(messages)
    census = Census()
    native: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        role = text(message, "role", _MESSAGE)
        reasoning = text(message, "reasoning", _MESSAGE)
        if not reasoning and isinstance(other := message.get("reasoning_content"), str):
            reasoning = other  # many clients send back by this name what Ollama calls reasoning
        call_id = text(message, "tool_call_id", _MESSAGE)
        tool_name = text(message, "name", _MESSAGE)
        if role.lower() == "function":
            role = "tool"  # its name from before there were tools
        if role.lower() != "tool":
            tool_name = ""
        elif not tool_name:
            tool_name = names.get(call_id, "")
        content = message.get("content")
        if isinstance(content, list):
            # Each part is a message of its own, and what belongs to the whole goes to the last one: that is how Ollama
            # renders it, so that is how it is counted.
            parts = [_message_of_part(role, part) for part in content]
            if role.lower() == "tool":
                if not parts and call_id in names:
                    parts = [{"role": role, "content": ""}]
                for part in parts:  # Ollama forgets whose result it is, and all of an empty one
                    _complete(part, "", None, tool_name, call_id)
            native.extend(parts)
            if calls := _calls(message, index, census):
                if not content:  # Ollama hands the calls to whoever spoke before
                    native.append({"role": role, "content": ""})
                _complete(native[-1], reasoning, calls, tool_name, call_id)
            continue
        calls = _calls(message, index, census)
        if not isinstance(content, str):
            # Tool calls excuse any content; with them a wrong one counts as none.
            if calls is None:
                raise bad_request(f"invalid message content type: {type_name(content)}")
            content = tool_name = ""
        whole: dict[str, Any] = {"role": role, "content": content}
        _complete(whole, reasoning, calls, tool_name, call_id)
        native.append(whole)
    return native


def _complete(
    message: dict[str, Any], reasoning: str, calls: list[dict[str, Any]] | None, tool_name: str, call_id: str
) -> None:
    for key, value in (
        ("thinking", reasoning),
        ("tool_calls", calls),
        ("tool_name", tool_name),
        ("tool_call_id", call_id),
    ):
        if value:
            message[key] = value
        else:
            message.pop(key, None)


def _message_of_part(role: str, part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise bad_request("invalid message format")
    match part.get("type"):
        case "text":
            content = part.get("text")
            if not isinstance(content, str):
                raise bad_request("invalid message format")
            return {"role": role, "content": content}
        case "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            if not isinstance(url, str):
                raise bad_request("invalid message format")
            return {"role": role, "content": "", "images": [image_of_url(url)]}
        case "input_audio":
            audio = part.get("input_audio")
            if not isinstance(audio, dict):
                raise bad_request("invalid input_audio format")
            payload = audio.get("data")
            if not isinstance(payload, str):
                raise bad_request("invalid input_audio format: missing data")
            fault = base64_fault(payload)
            if fault is not None:
                raise bad_request(f"invalid input_audio base64 data: {fault}")
            return {"role": role, "content": "", "images": [payload]}
        case _:
            raise bad_request("invalid message format")


def _raw_calls(message: Json) -> list[Json] | None:
    calls = items(message, "tool_calls", _MESSAGE, "openai.ToolCall")
    if calls is None:
        # How calls were told before there were tools.
        legacy = record(message, "function_call", _MESSAGE, _FUNCTION_TYPE)
        return None if legacy is None else [{"function": legacy}]
    return [element(call, _MESSAGE, "tool_calls", "openai.ToolCall") for call in calls]


def _calls(message: Json, index: int, census: Census) -> list[dict[str, Any]] | None:
    """An earlier answer's calls, their arguments as objects; None when the message has no list of calls."""
    calls = _raw_calls(message)
    if calls is None:
        return None
    native = []
    for place, call in enumerate(calls):
        function = record(call, "function", _CALL, _FUNCTION_TYPE) or {}
        if not function and call.get("name"):
            raise nameless_call(f"messages[{index}].tool_calls[{place}].function.name")
        arguments = text(function, "arguments", _FUNCTION)
        try:
            parsed = parsed_arguments(arguments, census) if arguments.strip() else {}
        except ValueError:
            raise bad_request("invalid tool call arguments") from None
        native.append(native_call(text(call, "id", _CALL), text(function, "name", _FUNCTION), parsed))
    return native


def _names_of_calls(messages: list[Json]) -> dict[str, str]:
    """Function name by call id; the last message that has an id wins, inside it the first call."""
    names: dict[str, str] = {}
    for message in messages:
        for call in reversed(_raw_calls(message) or ()):
            call_id = text(call, "id", _CALL)
            function = record(call, "function", _CALL, _FUNCTION_TYPE) or {}
            if call_id:
                names[call_id] = text(function, "name", _FUNCTION)
    return names
