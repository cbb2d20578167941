import base64
import struct
from typing import Any

import orjson
import pytest

from ollama_gate.errors import UpstreamBroken
from ollama_gate.requests import AnswerFacts, Kind
from support.dialects import EMBEDDINGS, parse, refusal_of, whole, writer_for

ANSWER = {"model": "m", "embeddings": [[0.5, -0.25], [1, 0]], "prompt_eval_count": 6}


def test_texts_become_a_native_embed_request() -> None:
    request = parse(EMBEDDINGS, {"model": "m", "input": ["a", ""], "dimensions": 4, "user": "u"})
    assert request.kind is Kind.EMBED
    assert request.path == "/api/embed"
    assert not request.stream
    assert request.body == {"model": "m", "input": ["a", ""], "dimensions": 4}


def test_an_empty_text_is_embedded_and_not_taken_for_no_input() -> None:
    assert parse(EMBEDDINGS, {"model": "m", "input": ""}).body["input"] == [""]


@pytest.mark.parametrize("value", [[1, 2, 3], [[1], [2]]])
def test_token_ids_are_refused_with_what_to_do(value: Any) -> None:
    refusal = refusal_of(EMBEDDINGS, {"model": "m", "input": value})
    assert refusal.message.startswith("invalid input type: token ids are not taken")
    assert "check_embedding_ctx_length=False" in refusal.message
    assert (refusal.status, refusal.param) == (400, "input")


@pytest.mark.parametrize("value", [5, {"a": 1}, ["a", 1], True])
def test_what_is_no_text_is_refused_in_ollamas_words(value: Any) -> None:
    assert refusal_of(EMBEDDINGS, {"model": "m", "input": value}).message == "invalid input type"


@pytest.mark.parametrize("body", [{"model": "m"}, {"model": "m", "input": None}, {"model": "m", "input": []}])
def test_no_input_is_refused_in_ollamas_words(body: dict[str, Any]) -> None:
    assert refusal_of(EMBEDDINGS, body).message == "invalid input"


def test_base64_is_little_endian_float32() -> None:
    written = whole(EMBEDDINGS, {"model": "m", "input": ["a", "b"], "encoding_format": "BASE64"}, ANSWER)
    packed = [base64.b64decode(item["embedding"]) for item in written["data"]]
    assert [struct.unpack("<2f", each) for each in packed] == [(0.5, -0.25), (1.0, 0.0)]
    assert [item["index"] for item in written["data"]] == [0, 1]


def test_floats_are_passed_on_digit_by_digit() -> None:
    vectors = [[0.00001234, -0.019916808, 0, 1e-7]]
    body = writer_for(EMBEDDINGS, {"model": "m", "input": "a"}).whole({"embeddings": vectors})
    assert b'"embedding":[0.00001234,-0.019916808,0,1e-7]' in body


@pytest.mark.parametrize("vectors", [[[1.0, None]], [["a"]], [5], None, "x"])
def test_what_is_no_embedding_is_a_broken_answer(vectors: Any) -> None:
    asked = {"model": "m", "input": "a", "encoding_format": "base64"}
    with pytest.raises(UpstreamBroken, match="embedding"):
        whole(EMBEDDINGS, asked, {"embeddings": vectors})


def test_usage_is_the_prompt_and_the_gates_count_where_ollama_has_none() -> None:
    body = {"model": "m", "input": "a"}
    assert whole(EMBEDDINGS, body, ANSWER)["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    counted = whole(EMBEDDINGS, body, {"embeddings": [[1.0]]}, AnswerFacts(prompt_tokens=3))
    assert counted["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


def test_embeddings_never_stream() -> None:
    writer = writer_for(EMBEDDINGS, {"model": "m", "input": "a", "stream": True})
    assert writer.feed(ANSWER) == writer.keep_alive() == b""
    assert writer.finish() is None
    assert orjson.loads(writer.error(500, "x")) == orjson.loads(writer.failed(500, "x"))
