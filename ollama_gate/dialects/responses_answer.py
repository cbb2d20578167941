"""POST /v1/responses: the answer (`openai/responses.go:ResponsesStreamConverter` and `ToResponse`, Ollama v0.33).

Where the gate does better than Ollama: an answer that was cut is `incomplete` (Ollama calls it completed), text beside
a function call is not lost, an error in mid-stream becomes `response.failed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ollama_gate.dialects.go_json import go_json, sorted_keys
from ollama_gate.dialects.openai_errors import error_json
from ollama_gate.dialects.responses_object import (
    Outcome,
    ResponseObject,
    call_item,
    message_item,
    reasoning_item,
)
from ollama_gate.dialects.tool_calls import ToolCall, calls_of
from ollama_gate.dialects.translation import (
    JSON_HEADERS,
    Stamp,
    failure_of,
    message_of,
    text_of,
    unix_seconds,
    usage_of,
)
from ollama_gate.requests import AnswerFacts, InferenceRequest, Json
from ollama_gate.wire import sse

_CUT: Final = "max_output_tokens"
"""The API's reason for an answer that ended before the model did."""


@dataclass(frozen=True, slots=True)
class _Item:
    """The message or reasoning that is being written."""

    id: str
    index: int
    """Its place in the output."""
    is_message: bool


class ResponsesWriter:
    """Native chat answers to responses, whole or as named events."""

    stream_headers: Mapping[str, str] = sse.NAMED_HEADERS
    whole_headers: Mapping[str, str] = JSON_HEADERS

    def __init__(self, request: InferenceRequest, body: Json, stamp: Stamp, facts: AnswerFacts) -> None:
        """Write the answer to `request`, which was parsed from the client's `body`."""
        self._facts = facts
        self._stamp = stamp
        self._response = ResponseObject(body, request.model, f"resp_{stamp.id}", stamp.created)
        self._sequence = 0
        self._started = False
        self._over = False
        self._output: list[dict[str, Any]] = []
        self._calls = 0
        self._item: _Item | None = None
        self._texts: list[str] = []
        self._before_text = self._after_text = self._after_sequence = b""

    def feed(self, chunk: Mapping[str, Any]) -> bytes:
        """The events for one native chunk; the last one brings the end of the response."""
        if self._over:
            return b""
        failure = failure_of(chunk)
        if failure is not None:
            return self.error(500, failure)
        message = message_of(chunk)
        events = b"" if self._started else self._start()
        thinking = text_of(message, "thinking")
        if thinking:
            events += self._delta(thinking, message=False)
        content = text_of(message, "content")
        if content:
            events += self._delta(content, message=True)
        if "tool_calls" in message:
            for call in calls_of(message, self._stamp.id, self._calls):
                events += self._close() + self._call(call)
        return events + self._end(chunk) if chunk.get("done") is True else events

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """`response.failed`, which ends the stream without `response.completed`.

        Codex reads its code as that of a refusal, `context_length_exceeded` among them. What fails between the gate and
        Ollama is a `server_error`, as OpenAI's list of these codes has it.
        """
        if self._over:
            return b""
        events = b"" if self._started else self._start()
        self._over = True
        if code is None or code.startswith("upstream_"):
            code = "rate_limit_exceeded" if status == 429 else "server_error"
        outcome = Outcome("failed", self._output, error={"code": code, "message": message})
        return events + self._event("response.failed", {"response": self._response.streamed(outcome)})

    def finish(self) -> bytes | None:
        """Nothing more to send, or None when the stream came neither to its end nor to an error event."""
        return b"" if self._over else None

    def keep_alive(self) -> bytes:
        """An event of a type that nobody knows; Codex counts it as a sign of life, comments it does not."""
        if self._over:
            return b""
        if not self._started:
            return self._start()
        return self._event("keepalive", {})

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """One response object."""
        message = message_of(answer)
        thinking = text_of(message, "thinking")
        content = text_of(message, "content")
        calls = calls_of(message, self._stamp.id)
        cut = _is_cut(answer)
        output = []
        if thinking:
            output.append(reasoning_item(f"rs_resp_{self._stamp.id}", thinking))
        if content or not calls:
            output.append(message_item(f"msg_{self._stamp.id}", content, "incomplete" if cut else "completed"))
        output.extend(call_item(f"fc_resp_{self._stamp.id}_{index}", call) for index, call in enumerate(calls))
        return go_json(self._response.whole(self._outcome(answer, output))) + b"\n"

    def failed(self, status: int, message: str) -> bytes:
        """An error of Ollama's in OpenAI's shape."""
        return error_json(status, message) + b"\n"

    def _outcome(self, answer: Mapping[str, Any], output: list[dict[str, Any]]) -> Outcome:
        usage = usage_of(answer, self._facts)
        if _is_cut(answer):
            return Outcome("incomplete", output, usage, reason=_CUT)
        return Outcome(
            "completed", output, usage, completed_at=unix_seconds(answer.get("created_at"), self._stamp.created)
        )

    def _event(self, name: str, fields: Mapping[str, Any]) -> bytes:
        """One event; Go writes its keys in order."""
        payload = dict(sorted({**fields, "type": name, "sequence_number": self._sequence}.items()))
        self._sequence += 1
        return sse.event(name, go_json(payload))

    def _start(self) -> bytes:
        self._started = True
        response = {"response": self._response.streamed(Outcome("in_progress"))}
        return self._event("response.created", response) + self._event("response.in_progress", response)

    def _delta(self, text: str, *, message: bool) -> bytes:
        """A piece of text or of reasoning, in the item that is open or in a new one."""
        events = b""
        if self._item is None or self._item.is_message is not message:
            events = self._close() + self._open(message=message)
        self._texts.append(text)
        sequence = b"%d" % self._sequence
        self._sequence += 1
        return events + self._before_text + go_json(text) + self._after_text + sequence + self._after_sequence

    def _open(self, *, message: bool) -> bytes:
        """Begin an item, and serialise once what does not change in its deltas."""
        index = len(self._output)
        prefix = "msg" if message else "rs"
        earlier = sum(item["type"] == ("message" if message else "reasoning") for item in self._output)
        item_id = f"{prefix}_{self._stamp.id}_{index}" if earlier else f"{prefix}_{self._stamp.id}"
        self._item = _Item(item_id, index, is_message=message)
        self._texts = []
        place = b',"output_index":%d,"sequence_number":' % index
        if message:
            name = "response.output_text.delta"
            self._before_text = f'event: {name}\ndata: {{"content_index":0,"delta":'.encode()
            self._after_text = b',"item_id":' + go_json(item_id) + b',"logprobs":[]' + place
            self._after_sequence = f',"type":"{name}"}}\n\n'.encode()
            begun = {"content": [], "id": item_id, "role": "assistant", "status": "in_progress", "type": "message"}
            part = {"annotations": [], "logprobs": [], "text": "", "type": "output_text"}
            at = {"item_id": item_id, "output_index": index, "content_index": 0}
            return self._event("response.output_item.added", {"item": begun, "output_index": index}) + self._event(
                "response.content_part.added", {**at, "part": part}
            )
        name = "response.reasoning_summary_text.delta"
        self._before_text = f'event: {name}\ndata: {{"delta":'.encode()
        self._after_text = b',"item_id":' + go_json(item_id) + place
        self._after_sequence = f',"summary_index":0,"type":"{name}"}}\n\n'.encode()
        begun = {"id": item_id, "summary": [], "type": "reasoning"}
        return self._event("response.output_item.added", {"item": begun, "output_index": index})

    def _close(self, status: str = "completed") -> bytes:
        """End the item that is open, if one is."""
        if self._item is None:
            return b""
        open_item, text = self._item, "".join(self._texts)
        self._item = None
        at = {"item_id": open_item.id, "output_index": open_item.index}
        if open_item.is_message:
            at["content_index"] = 0
            item = sorted_keys(message_item(open_item.id, text, status))
            events = self._event("response.output_text.done", {**at, "text": text, "logprobs": []})
            events += self._event("response.content_part.done", {**at, "part": item["content"][0]})
        else:
            item = sorted_keys(reasoning_item(open_item.id, text))
            events = self._event("response.reasoning_summary_text.done", {**at, "summary_index": 0, "text": text})
        self._output.append(item)
        return events + self._event("response.output_item.done", {"item": item, "output_index": open_item.index})

    def _call(self, call: ToolCall) -> bytes:
        """A function call, whole: Ollama has its arguments only when they are complete."""
        index = len(self._output)
        item_id = f"fc_{self._stamp.id}_{self._calls}"
        self._calls += 1
        item = sorted_keys(call_item(item_id, call))
        begun = sorted_keys(call_item(item_id, call, "in_progress"))
        self._output.append(item)
        at = {"item_id": item_id, "output_index": index}
        return b"".join(
            (
                self._event("response.output_item.added", {"item": begun, "output_index": index}),
                self._event("response.function_call_arguments.delta", {**at, "delta": item["arguments"]}),
                self._event("response.function_call_arguments.done", {**at, "arguments": item["arguments"]}),
                self._event("response.output_item.done", {"item": item, "output_index": index}),
            )
        )

    def _end(self, chunk: Mapping[str, Any]) -> bytes:
        events = self._close("incomplete" if _is_cut(chunk) else "completed")
        self._over = True
        outcome = self._outcome(chunk, self._output)
        name = f"response.{outcome.status}"
        return events + self._event(name, {"response": self._response.streamed(outcome)})


def _is_cut(answer: Mapping[str, Any]) -> bool:
    return answer.get("done_reason") == "length"


def writer(request: InferenceRequest, body: Json, stamp: Stamp, facts: AnswerFacts) -> ResponsesWriter:
    """The writer of the answer to a responses request that was parsed from `body`."""
    return ResponsesWriter(request, body, stamp, facts)
