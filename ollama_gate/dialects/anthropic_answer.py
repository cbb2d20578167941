"""POST /v1/messages: the answer (`anthropic/anthropic.go:StreamConverter` and `ToMessagesResponse`, Ollama v0.33).

Where the gate does better than Ollama: `message_start` tells the real prompt count where it is known, an empty answer
has an empty list of blocks, a full window has its own stop reason, an error in mid-stream becomes an error event.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from ollama_gate.dialects.anthropic_errors import error_object
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.tool_calls import ToolCall, calls_of
from ollama_gate.dialects.translation import (
    JSON_HEADERS,
    Stamp,
    Usage,
    failure_of,
    message_of,
    text_of,
    usage_of,
    window_is_full,
)
from ollama_gate.requests import AnswerFacts, InferenceRequest, Json
from ollama_gate.wire import sse

_Block = Literal["text", "thinking"]
_BYTES_A_TOKEN: Final = 4
"""Ollama's own rule of thumb for a prompt that was not counted (`EstimateInputTokens`)."""


class MessagesWriter:
    """Native chat answers to messages, whole or as named events."""

    stream_headers: Mapping[str, str] = sse.NAMED_HEADERS
    whole_headers: Mapping[str, str] = JSON_HEADERS

    def __init__(self, request: InferenceRequest, stamp: Stamp, facts: AnswerFacts) -> None:
        """Write the answer to `request`."""
        self._request = request
        self._stamp = stamp
        self._facts = facts
        self._started = False
        self._over = False
        self._index = 0
        self._block: _Block | None = None
        self._calls: set[str] = set()
        self._before_text = b""

    def feed(self, chunk: Mapping[str, Any]) -> bytes:
        """The events for one native chunk; the last one brings the end of the message."""
        if self._over:
            return b""
        failure = failure_of(chunk)
        if failure is not None:
            return self.error(500, failure)
        message = message_of(chunk)
        events = b"" if self._started else self._start(_counted(chunk, self._facts))
        thinking = text_of(message, "thinking")
        if thinking:
            events += self._delta("thinking", thinking)
        content = text_of(message, "content")
        if content:
            events += self._delta("text", content)
        if "tool_calls" in message:
            for call in calls_of(message, self._stamp.id, len(self._calls)):
                events += self._call(call)
        return events + self._end(chunk) if chunk.get("done") is True else events

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """An error event; no end mark follows it."""
        del code  # this API has a type only
        if self._over:
            return b""
        self._over = True
        return sse.event("error", go_json(error_object(status, message)))

    def finish(self) -> bytes | None:
        """Nothing more to send, or None when the stream came neither to its end nor to an error event."""
        return b"" if self._over else None

    def keep_alive(self) -> bytes:
        """The start of the message, then deltas without text: Claude Code gives up after 300 s of anything less."""
        if self._over:
            return b""
        if not self._started:
            return self._start(None)
        return self._delta(self._block or "text", "")

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """One message."""
        message = message_of(answer)
        content: list[dict[str, Any]] = []
        for kind in ("thinking", "content"):
            text = text_of(message, kind)
            if text:
                content.append({"type": "thinking", "thinking": text} if kind == "thinking" else _text_block(text))
        calls = calls_of(message, self._stamp.id)
        content.extend(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls
        )
        return (
            go_json(
                {
                    **self._head(),
                    "content": content,
                    "stop_reason": self._stop_reason(answer, called=bool(calls)),
                    "usage": _usage_object(usage_of(answer, self._facts)),
                }
            )
            + b"\n"
        )

    def failed(self, status: int, message: str) -> bytes:
        """An error of Ollama's in Anthropic's shape."""
        return go_json(error_object(status, message, self._stamp.id)) + b"\n"

    def _head(self) -> dict[str, Any]:
        return {
            "id": f"msg_{self._stamp.id}",
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
        }

    def _stop_reason(self, answer: Mapping[str, Any], *, called: bool) -> str | None:
        if called:
            return "tool_use"
        match text_of(answer, "done_reason"):
            case "stop":
                return "end_turn"
            case "length":
                full = window_is_full(answer, self._request)
                return "model_context_window_exceeded" if full else "max_tokens"
            case "":
                return "end_turn" if answer.get("done") is True else None
            case _:
                return "stop_sequence"

    def _start(self, counted: int | None) -> bytes:
        self._started = True
        tokens = counted if counted is not None else self._facts.prompt_tokens
        if tokens is None:
            tokens = _estimate(self._request.body)
        usage = _usage_object(Usage(tokens, 0, self._facts.cached_tokens))
        message = {**self._head(), "content": [], "usage": usage}
        return sse.event("message_start", go_json({"type": "message_start", "message": message}))

    def _delta(self, kind: _Block, text: str) -> bytes:
        """A piece of text or thinking, in the block that is open or in a new one."""
        events = b""
        if self._block != kind:
            events = self._close() + self._open(kind)
        return events + self._before_text + go_json(text) + b"}}\n\n"

    def _open(self, kind: _Block) -> bytes:
        self._block = kind
        # What does not change from token to token is serialised once.
        head = f'{{"type":"content_block_delta","index":{self._index},"delta":{{"type":"{kind}_delta","{kind}":'
        self._before_text = b"event: content_block_delta\ndata: " + head.encode()
        return self._block_start({"type": kind, kind: ""})

    def _block_start(self, block: Json) -> bytes:
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return sse.event("content_block_start", go_json(start))

    def _close(self) -> bytes:
        """End the block that is open, if one is."""
        if self._block is None:
            return b""
        self._block = None
        return self._block_stop()

    def _block_stop(self) -> bytes:
        stop = {"type": "content_block_stop", "index": self._index}
        self._index += 1
        return sse.event("content_block_stop", go_json(stop))

    def _call(self, call: ToolCall) -> bytes:
        """A tool use, whole: Ollama has its arguments only when they are complete. One id is sent once."""
        if call.id in self._calls:
            return b""
        self._calls.add(call.id)
        delta = {"type": "input_json_delta", "partial_json": call.arguments_text}
        events = self._close()
        events += self._block_start({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
        events += sse.event(
            "content_block_delta",
            go_json({"type": "content_block_delta", "index": self._index, "delta": delta}),
        )
        return events + self._block_stop()

    def _end(self, chunk: Mapping[str, Any]) -> bytes:
        events = self._close()
        self._over = True
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": self._stop_reason(chunk, called=bool(self._calls))},
            "usage": _usage_object(usage_of(chunk, self._facts)),
        }
        return (
            events + sse.event("message_delta", go_json(delta)) + sse.event("message_stop", b'{"type":"message_stop"}')
        )


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _counted(chunk: Mapping[str, Any], facts: AnswerFacts) -> int | None:
    """The prompt count, where the first chunk is the last one too."""
    return usage_of(chunk, facts).prompt if chunk.get("done") is True else None


def _usage_object(usage: Usage) -> dict[str, int]:
    """Usage in Anthropic's form, in which cached tokens are no input tokens."""
    if usage.cached is None:
        return {"input_tokens": usage.prompt, "output_tokens": usage.completion}
    return {
        "input_tokens": max(usage.prompt - usage.cached, 0),
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def _estimate(native: Json) -> int:
    """A prompt's tokens by its bytes, for a prompt that was admitted without being counted."""
    size = len(go_json(native.get("tools", [])))
    for message in native["messages"]:
        size += sum(len(text_of(message, key).encode()) for key in ("role", "content", "thinking"))
        size += len(go_json(message.get("tool_calls", [])))
    return max(size // _BYTES_A_TOKEN, 1)


def writer(request: InferenceRequest, body: Json, stamp: Stamp, facts: AnswerFacts) -> MessagesWriter:
    """The writer of the answer to a messages request."""
    del body  # all it says is in the request
    return MessagesWriter(request, stamp, facts)
