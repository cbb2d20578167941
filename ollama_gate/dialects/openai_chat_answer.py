"""POST /v1/chat/completions: the answer, as `middleware/openai.go:ChatWriter` of Ollama v0.33 writes it.

Where the gate does better than Ollama: an error in mid-stream becomes an error event instead of an empty chunk, and
cached tokens are reported where they are known.
"""

from collections.abc import Mapping
from typing import Any

from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.openai_chat_request import include_usage as wants_usage
from ollama_gate.dialects.openai_stream import FINGERPRINT, StreamWriter, usage_object
from ollama_gate.dialects.tool_calls import calls_of, openai_calls
from ollama_gate.dialects.translation import (
    Stamp,
    failure_of,
    message_of,
    text_of,
    usage_of,
)
from ollama_gate.requests import AnswerFacts, InferenceRequest, Json
from ollama_gate.wire import sse


class ChatWriter(StreamWriter):
    """Native chat answers to OpenAI's chat completions, whole or in chunks."""

    def __init__(
        self, request: InferenceRequest, stamp: Stamp, facts: AnswerFacts, *, include_usage: bool = False
    ) -> None:
        """Write the answer to `request`."""
        super().__init__()
        self._request = request
        self._stamp = stamp
        self._facts = facts
        self._include_usage = include_usage
        # What does not change from token to token is serialised once.
        self._before_choices = b"data: " + go_json(self._head("chat.completion.chunk"))[:-1] + b',"choices":['
        self._before_delta = self._before_choices + b'{"index":0,"delta":'
        self._before_text = self._before_delta + b'{"content":'
        self._after_text = b'},"finish_reason":null}]}\n\n'
        self._started = False
        self._calls = 0

    def feed(self, chunk: Mapping[str, Any]) -> bytes:
        """The chunks for one native chunk; with the last one comes the end mark."""
        if self._over:
            return b""
        message = message_of(chunk)
        done = chunk.get("done") is True
        if not done and self._started and "thinking" not in message and "tool_calls" not in message:
            content = message.get("content")
            if isinstance(content, str) and "logprobs" not in chunk and "error" not in chunk:
                return self._before_text + go_json(content) + self._after_text
        failure = failure_of(chunk)
        if failure is not None:
            return self.error(500, failure)
        content_chunks = self._chunks(chunk, message, done=done)
        return content_chunks + self._ending(chunk) if done else content_chunks

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """One chat completion."""
        message = message_of(answer)
        calls = calls_of(message, self._stamp.id)
        written: dict[str, Any] = {"role": text_of(message, "role"), "content": text_of(message, "content")}
        thinking = text_of(message, "thinking")
        if thinking:
            written["reasoning"] = thinking
        if calls:
            written["tool_calls"] = openai_calls(calls)
        choice: dict[str, Any] = {
            "index": 0,
            "message": written,
            "finish_reason": _finish_reason(text_of(answer, "done_reason"), called=bool(calls)),
        }
        if answer.get("logprobs"):
            choice["logprobs"] = {"content": answer["logprobs"]}
        completion = {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage_object(usage_of(answer, self._facts)),
        }
        if answer.get("_debug_info") is not None:
            completion["_debug_info"] = answer["_debug_info"]
        return go_json(completion) + b"\n"

    def _head(self, object_: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._stamp.id}",
            "object": object_,
            "created": self._stamp.created,
            "model": self._request.model,
            "system_fingerprint": FINGERPRINT,
        }

    def _chunks(self, chunk: Mapping[str, Any], message: Mapping[str, Any], *, done: bool) -> bytes:
        content = text_of(message, "content")
        thinking = text_of(message, "thinking")
        calls = calls_of(message, self._stamp.id, self._calls)
        logprobs = chunk.get("logprobs") or None
        if done and self._started and not (content or thinking or calls or logprobs):
            return b""  # only metrics: OpenAI goes straight to the finish chunk
        delta: dict[str, Any] = {} if self._started else {"role": "assistant"}
        self._started = True
        self._calls += len(calls)
        if thinking and (content or calls):
            # Reasoning and answer never share a chunk.
            reasoning = self._chunk({**delta, "reasoning": thinking}, logprobs)
            return reasoning + self._chunk(_answer_delta({}, content, "", calls), None)
        return self._chunk(_answer_delta(delta, content, thinking, calls), logprobs)

    def _chunk(self, delta: dict[str, Any], logprobs: Any) -> bytes:
        tail = b"}]}\n\n" if logprobs is None else b',"logprobs":' + go_json({"content": logprobs}) + b"}]}\n\n"
        return self._before_delta + go_json(delta) + b',"finish_reason":null' + tail

    def _ending(self, chunk: Mapping[str, Any]) -> bytes:
        self._over = True
        reason = _finish_reason(text_of(chunk, "done_reason") or "stop", called=self._calls > 0)
        ending = self._before_delta + b'{},"finish_reason":' + go_json(reason) + b"}]}\n\n"
        if self._include_usage:
            usage = go_json(usage_object(usage_of(chunk, self._facts)))
            ending += self._before_choices + b'],"usage":' + usage + b"}\n\n"
        return ending + sse.DONE


def _finish_reason(done_reason: str, *, called: bool) -> str | None:
    """`stop` becomes `tool_calls` when the model called; any other reason stays as it is, none is null."""
    if done_reason == "stop" and called:
        return "tool_calls"
    return done_reason or None


def _answer_delta(delta: dict[str, Any], content: str, thinking: str, calls: list[Any]) -> dict[str, Any]:
    delta["content"] = content
    if thinking:
        delta["reasoning"] = thinking
    if calls:
        delta["tool_calls"] = openai_calls(calls)
    return delta


def writer(request: InferenceRequest, body: Json, stamp: Stamp, facts: AnswerFacts) -> ChatWriter:
    """The writer of the answer to a chat request that was parsed from `body`."""
    return ChatWriter(request, stamp, facts, include_usage=wants_usage(body))
