"""What each message and each tool of a chat takes, for people who wonder where their window goes.

A message's share is its own texts, each tokenized by itself: the words and the calls, without what the template writes
around them and without pictures. A tool's share is what the prompt is shorter by without it, its wrapping included;
where the prompt cannot be rendered here it is the tool's JSON, tokenized by itself. So the shares need not add up to
the parts: templates leave old thinking out and write frames around everything.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ollama_gate.counting.measuring import Meter, contents, printed_tools
from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest, Kind

_RENDERED: Final = 64
"""The most tools for each of which the prompt is rendered anew."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one message or tool takes."""

    name: str
    """The message's role, or the tool's name."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Detail:
    """A chat's messages and tools in the order of its native body."""

    messages: tuple[Share, ...] = ()
    tools: tuple[Share, ...] = ()


def detail(meter: Meter, request: InferenceRequest, now: datetime) -> Detail:
    """The shares of a chat; nothing for other requests."""
    if request.kind is not Kind.CHAT:
        return Detail()
    messages = request.body.get("messages") or ()
    tools = request.body.get("tools") or ()
    return Detail(
        tuple(Share(_text(message.get("role")), _own(meter, request, message)) for message in messages),
        tuple(map(Share, map(_name, tools), _tools(meter, request, list(tools), now))),
    )


def _own(meter: Meter, request: InferenceRequest, message: Any) -> int:
    return sum(meter.tokenizer.count(contents(_with(request, messages=[message]))))


def _tools(meter: Meter, request: InferenceRequest, tools: list[Any], now: datetime) -> list[int]:
    if len(tools) <= _RENDERED:
        try:
            whole = meter.here(request, now)[0]
            without = [
                meter.here(_with(request, tools=tools[:number] + tools[number + 1 :]), now)[0]
                for number in range(len(tools))
            ]
            return [max(whole - fewer, 0) for fewer in without]
        except RenderError:
            pass  # their JSON is the next best
    return meter.tokenizer.count([printed_tools([tool])[1:-1] for tool in tools])


def _with(request: InferenceRequest, **fields: Any) -> InferenceRequest:
    body = {**request.body, **fields}
    return InferenceRequest(request.kind, request.path, request.model, body, request.stream, request.dialect)


def _name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return _text(function.get("name") if isinstance(function, dict) else None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
