"""Ollama's own API: its four inference routes parsed, and the gate's refusals in its error shape.

Fields, types and error texts follow `api/types.go` and `server/routes.go`, Ollama v0.33. What the gate need not
understand (format, think, keep_alive …) is left to Ollama, whose own answer comes back unchanged.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from ollama_gate.dialects.lane import Headers, Lane
from ollama_gate.dialects.options import FLOATS, INTEGERS, bad_format, check_options
from ollama_gate.dialects.translation import (
    ServerTools,
    asked_num_ctx,
    nameless_call,
    nameless_tool,
    note_beside_functions,
    note_elsewhere,
    note_in_messages,
    note_without_prompt,
    session_of,
)
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import Control, InferenceRequest, Json, Kind

CONTENT_TYPE: Final = "application/json; charset=utf-8"
"""As Ollama sends with a whole answer or an error."""

_COMMON: Final = frozenset({"model", "options", "keep_alive"})
_GENERATION: Final = _COMMON | {
    "stream",
    "format",
    "think",
    "truncate",
    "shift",
    "logprobs",
    "top_logprobs",
    "_debug_render_only",
}
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "/api/chat": _GENERATION | {"messages", "tools"},
    "/api/generate": _GENERATION | {"prompt", "suffix", "system", "template", "context", "raw", "images"},
    "/api/embed": _COMMON | {"input", "truncate", "dimensions"},
    "/api/embeddings": _COMMON | {"prompt"},
}
"""The fields of each inference route. Go matches their names without regard to case, so the decoder folds to these."""

# An enum's members are slow to get (Python 3.11).
_CHAT, _GENERATE, _EMBED, _NONE = Kind.CHAT, Kind.GENERATE, Kind.EMBED, Control.NONE

_ELSEWHERE: Final = {
    **dict.fromkeys((INTEGERS | FLOATS | {"stop"}) - {"num_ctx"}, "options"),
    "max_tokens": "options.num_predict",
    "max_completion_tokens": "options.num_predict",
    "response_format": "format",
    "reasoning_effort": "think",
}
_CHAT_ELSEWHERE: Final = {**_ELSEWHERE, "system": "messages of the role system"}
"""Fields that Ollama drops without a word, and where it reads what they say."""

KINDS: Final[Mapping[str, Kind]] = {
    "/api/chat": Kind.CHAT,
    "/api/generate": Kind.GENERATE,
    "/api/embed": Kind.EMBED,
    "/api/embeddings": Kind.EMBED,
}


def parse(path: str, body: Json, *, session: str | None = None) -> InferenceRequest:
    """Read one decoded, key-folded body of an inference route.

    Raises:
        Refused: 400 where a field that the gate must understand to count has the wrong type.
    """
    kind = KINDS[path]
    model = body.get("model")
    if not isinstance(model, str):
        if model is not None:
            raise _bad("model must be a string, the name of a model", "model")
        raise _bad("model is required", "model")
    options = body.get("options")
    if options is not None and not isinstance(options, dict):
        raise _bad("options must be an object", "options")
    if options:
        check_options(options)
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _bad("stream must be true or false", "stream")
    if (wanted := body.get("format")) is not None and wanted not in ("", "json") and not isinstance(wanted, dict):
        raise bad_format()
    notes: list[str] = []
    if kind is _CHAT:
        empty = not _checked_messages(body.get("messages"), notes)
        if (tools := body.get("tools")) is not None:
            _checked_tools(tools, notes)
    elif kind is _GENERATE:
        empty = _checked_prompt(body)
    elif path == "/api/embed":
        empty = not _checked_input(body.get("input"))
    else:
        empty = not _text(body, "prompt")
    if empty:
        _check_misplaced(path, body)
        if kind is _GENERATE:
            note_without_prompt(body, notes)
    asked = options.get("num_predict") if options else None
    if kind is not _EMBED:
        note_elsewhere(body, _CHAT_ELSEWHERE if kind is _CHAT else _ELSEWHERE, notes)
    return InferenceRequest(
        kind=kind,
        path=path,
        model=model,
        body=body,
        stream=kind is not _EMBED and stream is not False,
        control=_control(body.get("keep_alive")) if empty else _NONE,
        asked_output=int(asked) if asked is not None else None,
        asked_num_ctx=asked_num_ctx(body, notes),
        session=session,
        notes=tuple(notes),
    )


def _bad(message: str, param: str) -> Refused:
    return Refused(Refusal(400, "invalid_request", message, param=param))


def _text(holder: Json, key: str, where: str = "") -> str:
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _bad(f"{where}{key} must be a string", f"{where}{key}")
    return value


_FORMS: Final = {
    "role": str,
    "thinking": str,
    "tool_name": str,
    "tool_call_id": str,
    "images": list,
    "tool_calls": list,
}
"""What the fields of a message must be besides its content."""

_MESSAGE_ELSEWHERE: Final = {
    "name": "tool_name",
    "toolCalls": "tool_calls",
    "function_call": "tool_calls",
    "toolCallId": "tool_call_id",
    "reasoning": "thinking",
    "reasoning_content": "thinking",
}
"""Fields of a message that Ollama drops without a word, and where it reads what they say."""


def _checked_messages(messages: Any, notes: list[str]) -> list[Json]:
    if messages is None:
        return []
    if not isinstance(messages, list):
        raise _bad("messages must be a list of objects", "messages")
    astray: list[Json] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise _bad(f"messages[{index}] must be an object with role and content", f"messages[{index}]")
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            raise _bad(
                f"messages[{index}].content must be a string: /api/chat takes no list of parts; "
                "put the text into content and pictures, as base64, into images",
                f"messages[{index}].content",
            )
        if len(message) == 2 and content is not None and isinstance(message.get("role"), str):
            continue  # nearly every message: a role and a text
        for key, value in message.items():
            form = _FORMS.get(key)
            if form is not None and value is not None and not isinstance(value, form):
                what = "a string" if form is str else "a list"
                raise _bad(f"messages[{index}].{key} must be {what}", f"messages[{index}].{key}")
        if calls := message.get("tool_calls"):
            _checked_calls(calls, index)
        if not message.keys().isdisjoint(_MESSAGE_ELSEWHERE):
            astray.append(message)
    if astray:
        note_in_messages(astray, _MESSAGE_ELSEWHERE, notes)
    return messages


def _checked_calls(calls: list[Any], index: int) -> None:
    for place, call in enumerate(calls):
        where = f"messages[{index}].tool_calls[{place}]"
        if call is None:
            continue
        if not isinstance(call, dict):
            raise _bad(f"{where} must be an object", where)
        function = call.get("function")
        if function is not None and not isinstance(function, dict):
            raise _bad(f"{where}.function must be an object", f"{where}.function")
        if not function and call.get("name"):
            raise nameless_call(f"{where}.function.name")
        arguments = function.get("arguments") if function else None
        if arguments is not None and not isinstance(arguments, dict):
            raise _bad(f"{where}.function.arguments must be an object", f"{where}.function.arguments")


def _checked_tools(tools: Any, notes: list[str]) -> None:
    if not isinstance(tools, list):
        raise _bad("tools must be a list of objects", "tools")
    for index, tool in enumerate(tools):
        if tool is not None and not isinstance(tool, dict):
            raise _bad(f"tools[{index}] must be an object", f"tools[{index}]")
        function = tool.get("function") if tool else None
        if tool and not function and tool.get("name"):
            raise nameless_tool(f"tools[{index}].function.name")
    note_beside_functions(tools, notes)


def _checked_prompt(body: Json) -> bool:
    """Whether this generate request has no prompt, which makes it a control message whatever else it holds."""
    for key in ("suffix", "system", "template"):
        _text(body, key)
    for key in ("context", "images"):
        value = body.get(key)
        if value is not None and not isinstance(value, list):
            raise _bad(f"{key} must be a list", key)
    context = body.get("context")
    if context and not all(
        isinstance(token, int) and not isinstance(token, bool) and 0 <= token < _INT32 for token in context
    ):
        raise _bad("context must be a list of token ids", "context")
    raw = body.get("raw")
    if raw is not None and not isinstance(raw, bool):
        raise _bad("raw must be true or false", "raw")
    return not _text(body, "prompt")


def _checked_input(value: Any) -> list[str]:
    """The inputs of an embed request; an empty string alone is no input, one inside a list is (Ollama v0.33)."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _bad("input must be a string or a list of strings", "input")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise _bad(f"input[{index}] must be a string; lists of token ids are not taken", f"input[{index}]")
    return value


def inputs(request: InferenceRequest) -> list[str]:
    """The texts of an embedding request, one for each vector."""
    return _checked_input(request.body.get("input" if request.path == "/api/embed" else "prompt"))


_SAID_IN: Final[Mapping[str, str]] = {
    "/api/chat": "messages",
    "/api/generate": "prompt",
    "/api/embed": "input",
    "/api/embeddings": "prompt",
}


def _check_misplaced(path: str, body: Json) -> None:
    """Refuse what stands in another route's field, or in none: Ollama overlooks it, and only loads the model."""
    own = _SAID_IN[path]
    for field in ("messages", "prompt", "input", "message", "prompts", "inputs", "content", "text"):
        if field != own and body.get(field):
            raise _bad(f"{field} is no field of {path}, which takes {own}: nothing of it would reach the model", own)


_INT32: Final = 2**31
"""Beyond what a token's id can be in llama.cpp."""
_UNLOAD_TEXTS: Final = frozenset({"0", "-0", "+0"})


def _control(keep_alive: Any) -> Control:
    """What an empty request means: keep_alive 0 unloads, anything else loads (`server/routes.go:ChatHandler`)."""
    if isinstance(keep_alive, str):
        return Control.UNLOAD if _is_zero_duration(keep_alive) else Control.LOAD
    if isinstance(keep_alive, int | float) and not isinstance(keep_alive, bool):
        return Control.UNLOAD if int(keep_alive) == 0 and keep_alive == 0 else Control.LOAD
    return Control.LOAD


def _is_zero_duration(text: str) -> bool:
    """Whether a Go duration (`time.ParseDuration`) is zero, as in 0, 0s and 0h0m."""
    if text in _UNLOAD_TEXTS:
        return True
    numbers = text.lstrip("+-")
    for unit in ("ns", "us", "µs", "μs", "ms", "s", "m", "h"):
        numbers = numbers.replace(unit, " ")
    fields = numbers.split()
    return bool(fields) and numbers.endswith(" ") and all(field.strip("0") in ("", ".") for field in fields)


def render_refusal(refusal: Refusal, request_id: str) -> tuple[bytes, str]:
    """A refusal in Ollama's error shape, and its content type.

    `error` stays a string, because Ollama's clients (api/client.go:checkError) show nothing else; the facts for
    programs stand beside it.
    """
    del request_id  # a header has it
    answer: dict[str, Any] = {
        "error": refusal.message,
        "code": refusal.code,
        "type": refusal.type,
        "param": refusal.param,
    }
    if refusal.details:
        answer["details"] = dict(refusal.details)
    return orjson.dumps(answer), CONTENT_TYPE


def _lane(path: str) -> Lane:
    def read(body: Json, headers: Headers, _: ServerTools) -> InferenceRequest:
        return parse(path, body, session=session_of(headers))

    return Lane("native", FIELDS[path], read, render_refusal)


LANES: Final[Mapping[str, Lane]] = {path: _lane(path) for path in KINDS}
"""The guarded routes; their answers go through unchanged."""
