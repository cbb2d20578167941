"""POST /v1/messages as Ollama has it (`anthropic/anthropic.go`, v0.33)."""

import hashlib
from collections.abc import Mapping
from typing import Any

from ollama_gate.rehearsal import gojson, inference
from ollama_gate.rehearsal.compat import SSE, Dialect, Writer, options_of, route
from ollama_gate.rehearsal.connection import Headers
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.inference import Answer
from ollama_gate.rehearsal.routes import Form, Route
from ollama_gate.rehearsal.service import Call
from ollama_gate.rehearsal.structs import anything, boolean, integer, list_of, string, struct

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
}
_FORM = struct(
    "MessagesRequest",
    {
        "model": string,
        "max_tokens": integer,
        "messages": list_of(struct("MessageParam", {"role": string, "content": anything}), "[]anthropic.MessageParam"),
        "system": anything,
        "stream": boolean,
        "temperature": anything,
        "top_p": anything,
        "top_k": anything,
        "stop_sequences": anything,
        "tools": list_of(anything, "[]anthropic.Tool"),
        "thinking": anything,
    },
)


class _Messages:
    def native(self, asked: Form) -> Form:
        if not asked.get("model"):
            raise StatusError(400, "model is required")
        if asked.get("max_tokens", 0) <= 0:
            raise StatusError(400, "max_tokens is required and must be positive")
        if not asked.get("messages"):
            raise StatusError(400, "messages is required")
        system = "".join(block.get("text", "") for block in _blocks(asked.get("system")))
        messages = [{"role": "system", "content": system}] if system else []
        for message in asked["messages"]:
            messages += _native(message)
        native: Form = {
            "model": asked["model"],
            "messages": messages,
            "options": options_of(asked, _OPTIONS, {}),
            "tools": [_tool(tool) for tool in asked.get("tools") or ()],
            "relax_thinking": True,
        }
        switch = (asked.get("thinking") or {}).get("type")
        if switch in {"enabled", "disabled"}:
            native["think"] = switch == "enabled"
        return native

    def writer(self, asked: Form, call: Call) -> Writer:
        return _Writer(asked, self.native(asked), call)

    def error(self, status: int, message: str) -> Any:
        told = {"type": _TYPES.get(status, "api_error"), "message": message}
        return {"type": "error", "error": told, "request_id": f"req_{_hex(message, status)}"}


def _hex(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _blocks(content: Any) -> list[Form]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or () if isinstance(block, dict)]


def _native(message: Form) -> list[Form]:
    """One message and its tool results, each of which is a message of its own."""
    said: Form = {"role": message.get("role", ""), "content": ""}
    results: list[Form] = []
    for block in _blocks(message.get("content")):
        match block.get("type"):
            case "text":
                said["content"] += block.get("text", "")
            case "image":
                said.setdefault("images", []).append((block.get("source") or {}).get("data", ""))
            case "thinking":
                said["thinking"] = said.get("thinking", "") + block.get("thinking", "")
            case "tool_use":
                function = {"name": block.get("name", ""), "arguments": block.get("input") or {}}
                said.setdefault("tool_calls", []).append({"id": block.get("id", ""), "function": function})
            case "tool_result":
                text = "".join(one.get("text", "") for one in _blocks(block.get("content")))
                results.append({"role": "tool", "content": text, "tool_call_id": block.get("tool_use_id", "")})
            case _:  # Ollama drops what it does not know
                pass
    empty = len(said) == 2 and not said["content"]
    return ([] if empty else [said]) + results


def _tool(tool: Form) -> Form:
    function = {"name": tool.get("name", ""), "description": tool.get("description", "")}
    return {"type": "function", "function": function | {"parameters": tool.get("input_schema") or {}}}


class _Writer:
    headers: Headers = (("Cache-Control", "no-cache"), ("Connection", "keep-alive"), SSE)

    def __init__(self, asked: Form, native: Form, call: Call) -> None:
        self.model = asked["model"]
        self.id = f"msg_{_hex(call.entry.number)}"
        self.estimate = _estimate(native)
        self.block = -1
        self.kind = ""
        self.called = False

    def feed(self, answer: Answer) -> list[bytes]:
        out: list[bytes] = []
        if self.block < 0 and not self.kind:
            usage = {"input_tokens": self.estimate, "output_tokens": 0}
            head = {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": []}
            out.append(_event("message_start", message=head | {"usage": usage}))
            self.kind = "none"
        message = answer["message"]
        if message.get("thinking"):
            out += self.piece("thinking", message["thinking"])
        if message["content"]:
            out += self.piece("text", message["content"])
        for call in message.get("tool_calls", ()):
            out += self.tool(call)
        if answer["done"]:
            out += self.close()
            usage = {"input_tokens": answer.get("prompt_eval_count", 0), "output_tokens": answer.get("eval_count", 0)}
            out.append(_event("message_delta", delta={"stop_reason": self.reason(answer)}, usage=usage))
            out.append(_event("message_stop"))
        return out

    def lost(self) -> list[bytes]:
        return []

    def whole(self, answer: Answer) -> Any:
        message = answer["message"]
        content: list[Answer] = []
        if message.get("thinking"):
            content.append({"type": "thinking", "thinking": message["thinking"]})
        if message["content"]:
            content.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls", ()):
            self.called = True
            function = call["function"]
            use = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": function["arguments"]}
            content.append(use)
        usage = {"input_tokens": answer.get("prompt_eval_count", 0), "output_tokens": answer.get("eval_count", 0)}
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content}
        return head | {"stop_reason": self.reason(answer), "usage": usage}

    def reason(self, answer: Answer) -> str:
        if self.called:
            return "tool_use"
        return "max_tokens" if answer.get("done_reason") == "length" else "end_turn"

    def piece(self, kind: str, text: str) -> list[bytes]:
        out = [] if self.kind == kind else [*self.close(), self.open(kind, {"type": kind, kind: ""})]
        delta = {"type": f"{kind}_delta", kind: text}
        return [*out, _event("content_block_delta", index=self.block, delta=delta)]

    def tool(self, call: Answer) -> list[bytes]:
        self.called = True
        function = call["function"]
        block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": gojson.write(function["arguments"]).decode()}
        opened = [*self.close(), self.open("tool_use", block)]
        return [*opened, _event("content_block_delta", index=self.block, delta=delta), *self.close()]

    def open(self, kind: str, block: Answer) -> bytes:
        self.block += 1
        self.kind = kind
        return _event("content_block_start", index=self.block, content_block=block)

    def close(self) -> list[bytes]:
        if self.kind == "none":
            return []
        self.kind = "none"
        return [_event("content_block_stop", index=self.block)]


def _event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + gojson.write({"type": kind, **more}) + b"\n\n"


def _estimate(native: Form) -> int:
    """What a stream's first event claims as input: a quarter of the characters."""
    told = sum(len(m.get("content", "")) + len(m.get("thinking", "")) for m in native["messages"])
    tools = sum(len(gojson.write(tool)) for tool in native["tools"])
    return (told + tools) // 4


_messages: Dialect = _Messages()
ROUTES: Mapping[str, Mapping[str, Route]] = {
    "/v1/messages": {"POST": route(_messages, _FORM, "MessagesRequest", inference.chat)},
}
