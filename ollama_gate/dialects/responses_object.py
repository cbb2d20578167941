"""The response object of OpenAI's Responses API, which echoes the request and wraps the output.

Ollama writes it twice over: as a struct in a whole answer (`openai/responses.go:ToResponse`, v0.33) and as a map, and
so with its keys sorted, inside stream events (`buildResponseObject`). Both are kept, down to the order of keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ollama_gate.dialects.go_fields import flag, integer, number, text
from ollama_gate.dialects.go_json import go_number, sorted_keys
from ollama_gate.dialects.responses_request import REQUEST, declared_tools, reasoning_wish, text_format
from ollama_gate.dialects.tool_calls import ToolCall
from ollama_gate.dialects.translation import Usage
from ollama_gate.requests import Json


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a response has come."""

    status: str
    """in_progress, completed, incomplete or failed."""
    output: Sequence[Json] = ()
    usage: Usage | None = None
    completed_at: int | None = None
    """Unix time in seconds."""
    reason: str | None = None
    """Why it is incomplete."""
    error: Json | None = None
    """`code` and `message` of a failure."""


class ResponseObject:
    """The response to one request; what echoes the request is worked out once."""

    def __init__(self, body: Json, model: str, response_id: str, created: int) -> None:
        """Echo the client's `body`."""
        self._body = body
        self._model = model
        self._id = response_id
        self._created = created
        self._truncation = "disabled" if body.get("truncation") is None else text(body, "truncation", REQUEST)
        self._instructions = text(body, "instructions", REQUEST) or None
        self._background = flag(body, "background", REQUEST)
        self._max_output_tokens = integer(body, "max_output_tokens", REQUEST)
        self._top_p = _or_one(number(body, "top_p", REQUEST))
        self._temperature = _or_one(number(body, "temperature", REQUEST))
        self._tools = declared_tools(body)
        self._format = text_format(body)
        self._effort, self._summary = reasoning_wish(body)

    def whole(self, outcome: Outcome) -> dict[str, Any]:
        """The object as a whole answer has it."""
        format_: dict[str, Any] = {"type": "text"}
        if self._format is not None:
            format_ = {"type": self._format.get("type") or ""}
            format_.update((key, self._format[key]) for key in ("name", "schema", "strict") if self._sent(key))
        reasoning = {}
        if self._effort:
            reasoning["effort"] = self._effort
        if self._summary:
            reasoning["summary"] = self._summary
        usage = outcome.usage or Usage(0, 0)
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": outcome.completed_at,
            "status": outcome.status,
            "incomplete_details": _details(outcome),
            "model": self._model,
            "previous_response_id": None,
            "instructions": self._instructions,
            "output": list(outcome.output),
            "error": outcome.error,
            "tools": [_with_members(tool) for tool in self._tools],
            "tool_choice": "auto",
            "truncation": self._truncation,
            "parallel_tool_calls": True,
            "text": {"format": format_},
            "top_p": self._top_p,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "top_logprobs": 0,
            "temperature": self._temperature,
            "reasoning": reasoning or None,
            "usage": {
                "input_tokens": usage.prompt,
                "output_tokens": usage.completion,
                "total_tokens": usage.total,
                "input_tokens_details": {"cached_tokens": usage.cached or 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
            "max_output_tokens": self._max_output_tokens,
            "max_tool_calls": None,
            "store": False,
            "background": self._background,
            "service_tier": "default",
            "metadata": {},
            "safety_identifier": None,
            "prompt_cache_key": None,
        }

    def streamed(self, outcome: Outcome) -> dict[str, Any]:
        """The object as stream events have it, keys in order."""
        format_: dict[str, Any] = {"type": "text"}
        if self._format is not None:
            format_ = {key: self._format[key] for key in ("name", "schema", "strict") if self._sent(key)}
            format_["type"] = self._format.get("type") or ""
        reasoning = None
        if self._effort or self._summary:
            reasoning = {"effort": self._effort or None, "summary": self._summary or None}
        usage = None
        if outcome.usage is not None:
            usage = {
                "input_tokens": outcome.usage.prompt,
                "input_tokens_details": {"cached_tokens": outcome.usage.cached or 0},
                "output_tokens": outcome.usage.completion,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": outcome.usage.total,
            }
        return {
            "background": self._background,
            "completed_at": outcome.completed_at,
            "created_at": self._created,
            "error": outcome.error,
            "frequency_penalty": 0,
            "id": self._id,
            "incomplete_details": _details(outcome),
            "instructions": self._instructions,
            "max_output_tokens": self._max_output_tokens,
            "max_tool_calls": None,
            "metadata": {},
            "model": self._model,
            "object": "response",
            "output": list(outcome.output),
            "parallel_tool_calls": True,
            "presence_penalty": 0,
            "previous_response_id": None,
            "prompt_cache_key": None,
            "reasoning": reasoning,
            "safety_identifier": None,
            "service_tier": "default",
            "status": outcome.status,
            "store": False,
            "temperature": self._temperature,
            "text": {"format": format_},
            "tool_choice": "auto",
            "tools": [dict(sorted(_echoed_tool(tool).items())) for tool in self._tools],
            "top_logprobs": 0,
            "top_p": self._top_p,
            "truncation": self._truncation,
            "usage": usage,
        }

    def _sent(self, key: str) -> bool:
        """Whether a field of the text format was sent; empty names count as not."""
        if self._format is None:
            return False
        value = self._format.get(key)
        return value is not None and value != ""


def _echoed_tool(tool: Json) -> dict[str, Any]:
    return {
        "type": tool.get("type") or "",
        "name": tool.get("name") or "",
        "description": tool.get("description"),
        "strict": tool.get("strict"),
        "parameters": sorted_keys(tool.get("parameters")),
    }


def _with_members(tool: Json) -> dict[str, Any]:
    """A tool and, if it is a namespace, its functions."""
    echoed = _echoed_tool(tool)
    if tool.get("tools"):
        echoed["tools"] = [_with_members(member or {}) for member in tool["tools"]]
    return echoed


def _details(outcome: Outcome) -> Json | None:
    return None if outcome.reason is None else {"reason": outcome.reason}


def _or_one(value: float | None) -> float:
    return 1 if value is None else go_number(value)


def reasoning_item(item_id: str, thinking: str) -> dict[str, Any]:
    """A finished reasoning item, keys as in a whole answer; the thinking is its own "encrypted" form."""
    return {
        "id": item_id,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": thinking}],
        "encrypted_content": thinking,
    }


def message_item(item_id: str, content: str, status: str) -> dict[str, Any]:
    """A message of the assistant's, keys as in a whole answer."""
    part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": [part]}


def call_item(item_id: str, call: ToolCall, status: str = "completed") -> dict[str, Any]:
    """A function call, keys as in a whole answer; one that is in progress has no arguments yet."""
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments_text if status == "completed" else "",
    }
