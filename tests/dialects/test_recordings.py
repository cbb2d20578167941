"""Every recorded /v1 exchange: the native answer behind it gives the recorded bytes again, ids and times aside.

Where the gate means to do better than Ollama, `support.v1_recordings` changes the recorded answer, in one place and
by name, before it is compared.
"""

import json
import re

import orjson
import pytest

from ollama_gate.dialects import openai
from ollama_gate.dialects.openai_errors import error_json
from ollama_gate.errors import Refused
from ollama_gate.requests import AnswerFacts
from support.dialects import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    ENDPOINTS,
    MESSAGES,
    RESPONSES,
    as_its_layer_makes_it,
    as_ollama_reads_it,
    normal,
    writer_of,
)
from support.recorded import Recording, recording
from support.v1_answers import native_chunks
from support.v1_recordings import (
    ANSWERED,
    DIED,
    EVERY,
    INFERENCE,
    NATIVE_OF,
    PLAIN_WORDS,
    REFUSED,
    STREAMED,
    expected_answer,
    improved,
    native_answer,
    request_of,
    with_words,
)


@pytest.mark.parametrize("name", [name for name in STREAMED if name not in DIED])
def test_a_recorded_stream_is_written_again(name: str) -> None:
    recorded = recording(name)
    body, request = request_of(recorded)
    assert request.stream
    chunks = native_chunks(recorded.path, "".join(recorded.chunks), request.asked_output)
    prompt = chunks[-1].get("prompt_eval_count")
    writer = writer_of(recorded.path, request, body, AnswerFacts(prompt_tokens=prompt))
    expected = expected_answer(recorded, prompt or 0, chunks[-1]["done_reason"])
    sent = b"".join(writer.feed(chunk) for chunk in chunks)
    assert normal(sent.decode()) == normal(expected)
    assert writer.finish() == b""


@pytest.mark.parametrize("name", [name for name in STREAMED if name not in DIED])
def test_a_recorded_stream_has_the_recorded_headers(name: str) -> None:
    recorded = recording(name)
    body, request = request_of(recorded)
    writer = writer_of(recorded.path, request, body)
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
    writer = writer_of(recorded.path, request, body, AnswerFacts(prompt_tokens=13))
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
    native = native_answer(recorded, request)
    writer = writer_of(recorded.path, request, body)
    expected = expected_answer(recorded, 0, native.get("done_reason", ""))
    assert normal(writer.whole(native).decode()) == normal(expected)


@pytest.mark.parametrize("name", [name for name in ANSWERED if name in NATIVE_OF])
def test_a_recorded_request_becomes_the_native_one_that_ollama_makes_of_it(name: str) -> None:
    _, request = request_of(recording(name))
    native = orjson.loads(orjson.dumps(dict(request.body)))
    expected = dict(NATIVE_OF[name])
    if name == "v1-chat-max-completion-tokens":
        expected["options"] = {**expected["options"], "num_predict": 2}  # better than Ollama: it is honoured
    assert as_its_layer_makes_it(recording(name).path, native) == as_ollama_reads_it(expected)


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
        return no.refusal.status, endpoint.render_refusal(no.refusal, "7f")[0].decode()
    writer = writer_of(recorded.path, request, body)
    return recorded.status, writer.failed(recorded.status, message).decode()


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
    rest = set(EVERY) - set(INFERENCE)
    assert rest == {
        "v1-models",
        "v1-model",
        "v1-model-missing",
        "client-openai-models",
        "v1-messages-count-tokens",
        "client-anthropic-count-tokens",
    }
    assert {recording(name).path for name in INFERENCE} == {CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES}
