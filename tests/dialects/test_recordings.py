"""Every recorded /v1 exchange: the native answer behind it gives the recorded bytes again, ids and times aside.

Where the gate means to do better than Ollama, the recorded answer is changed here, in one place and by name, before
it is compared.
"""

import base64
import json
import re
import struct
from typing import Any

import orjson
import pytest

from ollama_gate.dialects import openai
from ollama_gate.dialects.openai_errors import error_json
from ollama_gate.errors import Refused
from ollama_gate.requests import AnswerFacts, InferenceRequest
from ollama_gate.wire.body import decode_json
from ollama_gate.wire.encoding import decode_content
from support.dialects import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    ENDPOINTS,
    MESSAGES,
    RESPONSES,
    STAMP,
    as_ollama_reads_it,
    normal,
)
from support.recorded import WIRE, Recording, recording, recordings
from support.v1_answers import native_chunks, native_whole

NATIVE_OF = {
    line["recording"]: line["native"]
    for line in map(
        json.loads, filter(None, (WIRE.parent / "dialects/middleware.jsonl").read_text("utf-8").split("\n"))
    )
    if "recording" in line
}
INFERENCE = [
    name
    for name in recordings("v1-*", "client-openai-*", "client-anthropic-*", "dies-v1-*", "busy-v1-*", "http-zstd-v1")
    if recording(name).path.partition("?")[0] in ENDPOINTS
]
ANSWERED = [name for name in INFERENCE if recording(name).status == 200]
STREAMED = [name for name in ANSWERED if recording(name).answer_header("Content-Type") == "text/event-stream"]
DIED = recordings("dies-v1-*")
REFUSED = [name for name in INFERENCE if recording(name).status != 200]


def request_of(recorded: Recording) -> tuple[dict[str, Any], InferenceRequest]:
    headers = {name.lower(): value for name, value in recorded.headers}
    raw = decode_content(recorded.body, headers.get("content-encoding"), 1 << 20)
    body = decode_json(raw)
    return body, ENDPOINTS[recorded.path].parse(body, headers, "drop")


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


@pytest.mark.parametrize("name", [name for name in STREAMED if name not in DIED])
def test_a_recorded_stream_is_written_again(name: str) -> None:
    recorded = recording(name)
    body, request = request_of(recorded)
    assert request.stream
    chunks = native_chunks(recorded.path, "".join(recorded.chunks), request.asked_output)
    prompt = chunks[-1].get("prompt_eval_count")
    writer = ENDPOINTS[recorded.path].writer(request, body, STAMP, AnswerFacts(prompt_tokens=prompt))
    expected = improved(recorded.path, "".join(recorded.chunks), prompt or 0)
    if recorded.path == RESPONSES and chunks[-1]["done_reason"] == "length":
        expected = cut_is_incomplete(expected)
    sent = b"".join(writer.feed(chunk) for chunk in chunks)
    assert normal(sent.decode()) == normal(expected)
    assert writer.finish() == b""


@pytest.mark.parametrize("name", [name for name in STREAMED if name not in DIED])
def test_a_recorded_stream_has_the_recorded_headers(name: str) -> None:
    recorded = recording(name)
    body, request = request_of(recorded)
    writer = ENDPOINTS[recorded.path].writer(request, body, STAMP, AnswerFacts())
    for header in ("Content-Type", "Cache-Control"):
        assert writer.stream_headers.get(header) == recorded.answer_header(header)


@pytest.mark.parametrize("name", DIED)
def test_a_recorded_death_in_mid_stream_is_told_instead_of_hidden(name: str) -> None:
    """dies-v1-*: Ollama loses the error and ends cleanly; the gate sends it in the dialect's form, and no end mark."""
    recorded = recording(name)
    body, request = request_of(recorded)
    chunks = native_chunks(recorded.path, "".join(recorded.chunks), None)
    if "error" not in chunks[-1]:
        chunks.append({"error": "an error was encountered while running the model: unexpected EOF"})
    writer = ENDPOINTS[recorded.path].writer(request, body, STAMP, AnswerFacts(prompt_tokens=13))
    sent = "".join(writer.feed(chunk).decode() for chunk in chunks[:-1])
    lost = re.compile(r'data: \{[^\n]*"model":""[^\n]*\n\n')
    expected = lost.sub("", "".join(recorded.chunks))
    assert normal(sent) == normal(improved(recorded.path, expected, 13))
    error = writer.feed(chunks[-1]).decode()
    assert "unexpected EOF" in error
    assert error.startswith(
        {
            CHAT: 'data: {"error":{"message":',
            COMPLETIONS: 'data: {"error":{"message":',
            RESPONSES: 'event: response.failed\ndata: {"response":',
            MESSAGES: 'event: error\ndata: {"type":"error","error":{"type":"api_error",',
        }[recorded.path]
    )
    assert writer.feed({"message": {"content": "late"}, "done": True}) == b""


@pytest.mark.parametrize("name", [name for name in ANSWERED if name not in STREAMED])
def test_a_recorded_whole_answer_is_written_again(name: str) -> None:
    recorded = recording(name)
    body, request = request_of(recorded)
    assert not request.stream
    answer = json.loads("".join(recorded.chunks))
    native = native_whole(recorded.path, unpacked(answer), request.asked_output)
    writer = ENDPOINTS[recorded.path].writer(request, body, STAMP, AnswerFacts())
    expected = "".join(recorded.chunks)
    if recorded.path == RESPONSES and native["done_reason"] == "length":
        expected = cut_is_incomplete(expected)
    if name == "v1-chat-max-completion-tokens":
        native["eval_count"] = answer["usage"]["completion_tokens"]
    assert normal(writer.whole(native).decode()) == normal(expected)


def unpacked(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with base64 embeddings as lists of numbers, which is what Ollama has natively."""
    for item in answer.get("data", ()):
        if isinstance(item["embedding"], str):
            packed = base64.b64decode(item["embedding"])
            item["embedding"] = list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return answer


@pytest.mark.parametrize("name", [name for name in ANSWERED if name in NATIVE_OF])
def test_a_recorded_request_becomes_the_native_one_that_ollama_makes_of_it(name: str) -> None:
    _, request = request_of(recording(name))
    native = orjson.loads(orjson.dumps(dict(request.body)))
    expected = dict(NATIVE_OF[name])
    if name == "v1-chat-max-completion-tokens":
        expected["options"] = {**expected["options"], "num_predict": 2}  # better than Ollama: it is honoured
    assert as_ollama_reads_it(native) == as_ollama_reads_it(expected)


PLAIN_WORDS = {"v1-completions-prompt-array", "v1-chat-bad-json", "v1-messages-bad-json", "v1-responses-bad-json"}
"""Where the gate has words of its own for what Ollama tells in the words of its programming language."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_recorded_error_is_written_again(name: str) -> None:
    recorded = recording(name)
    expected = "".join(recorded.chunks)
    message = json.loads(expected)["error"]["message"]
    status, written = error_for(recorded, message)
    assert status == recorded.status
    if name in PLAIN_WORDS:
        assert "unmarshal" not in written
        return
    assert with_words(recorded.path, written) == with_words(recorded.path, expected)


def error_for(recorded: Recording, message: str) -> tuple[int, str]:
    """Status and body of the gate's error: its own refusal, or Ollama's error handed on."""
    endpoint = ENDPOINTS[recorded.path]
    try:
        body, request = request_of(recorded)
    except Refused as no:
        return no.refusal.status, endpoint.refusal(no.refusal)[0].decode()
    writer = endpoint.writer(request, body, STAMP, AnswerFacts())
    return recorded.status, writer.failed(recorded.status, message).decode()


def with_words(path: str, error: str) -> Any:
    decoded = json.loads(error)
    if path == MESSAGES:  # the id of the request is made up, code and param are more than Ollama tells
        return decoded["type"], decoded["error"]
    return decoded


@pytest.mark.parametrize("name", ["v1-models", "client-openai-models"])
def test_the_recorded_list_of_models_is_written_again(name: str) -> None:
    recorded = "".join(recording(name).chunks)
    tags = json.loads("".join(recording("native-tags").chunks))
    listed = json.loads(openai.models_list(tags))
    known = {model["name"] for model in tags["models"]}
    expected = [model for model in json.loads(recorded)["data"] if model["id"] in known]
    assert expected
    by_id = {model["id"]: model for model in listed["data"]}
    assert [by_id[model["id"]] for model in expected] == expected
    assert openai.models_list(tags).decode().startswith(recorded[: len('{"object":"list","data":[{"id":"')])


def test_the_recorded_model_object_is_written_again() -> None:
    tags = json.loads("".join(recording("native-tags").chunks))
    model = next(model for model in tags["models"] if model["name"] == "gemma3:270m")
    written = openai.model_object("gemma3:270m", {"modified_at": model["modified_at"]})
    assert written.decode() == "".join(recording("v1-model").chunks)


def test_the_recorded_missing_model_is_written_again() -> None:
    recorded = recording("v1-model-missing")
    message = json.loads("".join(recorded.chunks))["error"]["message"]
    assert (error_json(404, message) + b"\n").decode() == "".join(recorded.chunks)


def test_no_recorded_exchange_is_left_out() -> None:
    """What is not compared above has no translation: lists of models, and routes that Ollama does not have."""
    every = recordings("v1-*", "client-openai-*", "client-anthropic-*", "dies-v1-*", "busy-v1-*", "http-zstd-v1")
    rest = set(every) - set(INFERENCE)
    assert rest == {
        "v1-models",
        "v1-model",
        "v1-model-missing",
        "client-openai-models",
        "v1-messages-count-tokens",
        "client-anthropic-count-tokens",
    }
    assert {recording(name).path for name in INFERENCE} == {CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES}
