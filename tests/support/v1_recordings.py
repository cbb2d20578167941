"""The recorded /v1 exchanges: what was asked, what Ollama answered, and where the gate means to do better."""

import base64
import json
import re
import struct
from typing import Any

from ollama_gate.requests import InferenceRequest
from ollama_gate.wire.body import decode_json
from ollama_gate.wire.encoding import decode_content
from support.dialects import ENDPOINTS, MESSAGES, RESPONSES
from support.recorded import WIRE, Recording, recording, recordings
from support.v1_answers import native_whole

NATIVE_OF = {
    line["recording"]: line["native"]
    for line in map(
        json.loads, filter(None, (WIRE.parent / "dialects/middleware.jsonl").read_text("utf-8").split("\n"))
    )
    if "recording" in line
}
"""The native request that Ollama makes of a recorded one."""
EVERY = recordings("v1-*", "client-openai-*", "client-anthropic-*", "dies-v1-*", "busy-v1-*", "http-zstd-v1")
INFERENCE = [name for name in EVERY if recording(name).path.partition("?")[0] in ENDPOINTS]
ANSWERED = [name for name in INFERENCE if recording(name).status == 200]
STREAMED = [name for name in ANSWERED if recording(name).answer_header("Content-Type") == "text/event-stream"]
DIED = recordings("dies-v1-*")
REFUSED = [name for name in INFERENCE if recording(name).status != 200]
PLAIN_WORDS = {
    "v1-completions-prompt-array",
    "v1-chat-bad-json",
    "v1-messages-bad-json",
    "v1-responses-bad-json",
    "v1-embeddings-token-array",
}
"""Where the gate has words of its own for what Ollama tells in the words of its programming language, or too few."""


def request_of(recorded: Recording) -> tuple[dict[str, Any], InferenceRequest]:
    """A recorded body, decoded, and the request that its dialect makes of it; raises what the dialect raises."""
    headers = {name.lower(): value for name, value in recorded.headers}
    raw = bytes(decode_content(recorded.body, headers.get("content-encoding"), 1 << 20))
    body = decode_json(raw)
    return body, ENDPOINTS[recorded.path].parse(body, headers, "drop")


def native_answer(recorded: Recording, request: InferenceRequest) -> dict[str, Any]:
    """The native answer behind a recorded one that was not streamed."""
    answer = json.loads("".join(recorded.chunks))
    for item in answer.get("data", ()):
        if isinstance(item["embedding"], str):  # base64 here, lists of numbers in Ollama
            packed = base64.b64decode(item["embedding"])
            item["embedding"] = list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return native_whole(recorded.path, answer, request.asked_output)


def improved(path: str, answer: str, prompt_tokens: int) -> str:
    """The recorded answer with what the gate does better."""
    if path == MESSAGES:
        return re.sub(r'("message_start".*?"input_tokens":)\d+', rf"\g<1>{prompt_tokens}", answer)
    return answer


def cut_is_incomplete(answer: str) -> str:
    """A response that Ollama called completed although it was cut."""
    answer = answer.replace("response.completed", "response.incomplete")
    head, _, end = answer.rpartition("event: response.incomplete")
    if head:  # the last item is the one that was cut
        before, _, item = head.rpartition("event: response.output_item.done")
        head = before + "event: response.output_item.done" + item.replace("completed", "incomplete")
    end = end.replace('"status":"completed"', '"status":"incomplete"')
    end = re.sub(r'"completed_at":\d+', '"completed_at":null', end)
    end = end.replace('"incomplete_details":null', '"incomplete_details":{"reason":"max_output_tokens"}')
    return head + ("event: response.incomplete" if head else "") + end


def expected_answer(recorded: Recording, prompt_tokens: int, done_reason: str) -> str:
    """What the gate answers where Ollama answered as recorded."""
    answer = improved(recorded.path, "".join(recorded.chunks), prompt_tokens)
    return cut_is_incomplete(answer) if recorded.path == RESPONSES and done_reason == "length" else answer


def with_words(path: str, error: str) -> Any:
    """An error as it is compared: Anthropic's has a made-up id, and code and param are more than Ollama tells."""
    decoded = json.loads(error)
    return (decoded["type"], decoded["error"]) if path == MESSAGES else decoded
