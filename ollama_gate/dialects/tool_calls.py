"""Calls of tools: arguments are an object natively and a JSON text in the OpenAI dialects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ollama_gate.dialects.go_json import go_json
from ollama_gate.errors import Refused
from ollama_gate.wire.body import Census
from ollama_gate.wire.repair import repair

_WRITABLE: Final = 254
"""Levels that orjson writes; it reads more."""
_DEEPEST: Final = 240
"""Levels of a call's arguments that are taken: a text in the body, and a part of what is sent on."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made."""

    id: str
    index: int
    name: str
    arguments: Mapping[str, Any]

    @property
    def arguments_text(self) -> str:
        """The arguments as a JSON text, as Go writes it."""
        return go_json(self.arguments).decode()


def calls_of(message: Mapping[str, Any], stamp_id: str, before: int = 0) -> list[ToolCall]:
    """The calls in a native answer's message.

    Args:
        message: the native `message` object.
        stamp_id: makes an id for a call without one, which Ollama before v0.12.10 sends.
        before: how many calls of this answer came earlier.
    """
    found: list[ToolCall] = []
    raw = message.get("tool_calls")
    for call in raw if isinstance(raw, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        place, index = before + len(found), function.get("index")
        found.append(
            ToolCall(
                id=_string(call.get("id")) or f"call_{stamp_id}_{place}",
                # Older versions of Ollama number no calls, and OpenAI's clients take calls of one number for one call.
                index=max(index, place) if isinstance(index, int) else place,
                name=_string(function.get("name")),
                arguments=_arguments_of(function.get("arguments")),
            )
        )
    return found


def _arguments_of(value: Any) -> Mapping[str, Any]:
    """A call's arguments: an object in Ollama's own answers, a text that holds one in those of some relays."""
    if isinstance(value, str):
        try:
            return parsed_arguments(value, Census()) or {}
        except (ValueError, Refused):
            return {}
    return value if isinstance(value, Mapping) else {}


def native_call(call_id: str, name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """A call in a native request; `index` is always 0 there (`openai/openai.go:FromCompletionToolCall`, v0.33)."""
    call: dict[str, Any] = {"id": call_id} if call_id else {}
    call["function"] = {"index": 0, "name": name, "arguments": arguments}
    return call


def parsed_arguments(text: str, census: Census) -> dict[str, Any] | None:
    """The object that an arguments text holds; None for the text `null`.

    Args:
        text: JSON, which was a string to whoever parsed the body.
        census: of all such texts in one request.

    Raises:
        ValueError: it is no JSON object, or one that could not be written again.
        Refused: 400, all of them together hold more than one body may.
    """
    raw = text.encode()
    census.take(raw)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = orjson.loads(repair(raw))
    if value is not None and not isinstance(value, dict):
        raise ValueError("not an object")
    if raw.count(b"{") + raw.count(b"[") > _DEEPEST and _is_deeper(value):
        raise ValueError(f"nested more than {_DEEPEST} levels deep")
    return value


def _is_deeper(value: Any) -> bool:
    for _ in range(_WRITABLE - _DEEPEST):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def name_results(messages: Sequence[dict[str, Any]]) -> None:
    """Give each result the name of the call that it answers, which templates show.

    On chat completions Ollama does so itself (`openai/openai.go:FromChatRequest`, v0.33); its other layers hand on the
    call's id alone, and a template such as gpt-oss's then writes a result of nobody's.
    """
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls", ()):
            names[call.get("id", "")] = call["function"]["name"]
        if message["role"] == "tool" and (name := names.get(message.get("tool_call_id") or " ")):
            message["tool_name"] = name


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def openai_calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Calls in OpenAI's form, keys in the order of `openai/openai.go:ToolCall`."""
    return [
        {
            "id": call.id,
            "index": call.index,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_text},
        }
        for call in calls
    ]
