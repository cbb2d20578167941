"""POST /v1/embeddings, as `middleware/openai.go:EmbeddingsMiddleware` and `ToEmbeddingList` of Ollama v0.33 have it."""

import base64
import sys
from array import array
from collections.abc import Mapping
from typing import Any, Final

from ollama_gate.dialects.go_fields import Place, bad_request, integer, text
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.translation import ServerTools, Stamp, inference_request, usage_of
from ollama_gate.dialects.whole_answer import WholeAnswerWriter
from ollama_gate.errors import UpstreamBroken
from ollama_gate.requests import AnswerFacts, InferenceRequest, Json, Kind

FIELDS: Final = frozenset({"input", "model", "dimensions", "encoding_format"})
_REQUEST: Final = Place("EmbedRequest")
_IDS: Final = (
    "invalid input type: token ids are not taken, because only the vocabulary that made them can read them. Send text "
    "(LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False)."
)


def parse(body: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read an embedding request; one text or a list of texts, an empty text included.

    Args:
        body: the decoded body, odd-cased keys folded to `FIELDS`.
        headers: looked up by lower-case names.
        server_tools: without meaning here.

    Raises:
        Refused: 400 with Ollama's own text, and what to do where it is token ids: none of its inputs either.
    """
    del server_tools
    encoding_format(body)
    dimensions = integer(body, "dimensions", _REQUEST)
    native: dict[str, Any] = {"model": text(body, "model", _REQUEST), "input": _input(body.get("input"))}
    if dimensions:
        native["dimensions"] = dimensions
    return inference_request(Kind.EMBED, "openai", body, headers, native)


def encoding_format(body: Json) -> str:
    """`float` or `base64`, which the official client asks for by itself."""
    asked = text(body, "encoding_format", _REQUEST)
    if asked.lower() not in ("", "float", "base64"):
        raise bad_request(
            f"Invalid value for 'encoding_format' = {asked}. Supported values: ['float', 'base64'].",
        )
    return asked.lower() or "float"


def _input(value: Any) -> str | list[str]:
    if value == "":
        return [""]  # alone, an empty text would be no input at all on /api/embed
    if value is None or value == []:
        raise bad_request("invalid input")
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    if isinstance(value, list) and all(isinstance(each, int | list) for each in value):
        raise bad_request(_IDS, "input")
    raise bad_request("invalid input type")


class EmbeddingsWriter(WholeAnswerWriter):
    """A native embedding answer to OpenAI's list of embeddings."""

    def __init__(self, request: InferenceRequest, facts: AnswerFacts, *, encoding_format: str = "float") -> None:
        """Write the answer to `request`."""
        self._model = request.model
        self._facts = facts
        self._base64 = encoding_format == "base64"

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """The list, one embedding for each input.

        Raises:
            UpstreamBroken: there is none, or one that is to be packed is no list of numbers.
        """
        vectors = answer.get("embeddings")
        if not isinstance(vectors, list):
            raise UpstreamBroken("Ollama's answer has no embeddings")
        data = [
            {"object": "embedding", "embedding": _packed(vector) if self._base64 else vector, "index": index}
            for index, vector in enumerate(vectors)
        ]
        prompt = usage_of({**answer, "eval_count": 1}, self._facts).prompt
        usage = {"prompt_tokens": prompt, "total_tokens": prompt}
        return go_json({"object": "list", "data": data, "model": self._model, "usage": usage}) + b"\n"


def _packed(vector: Any) -> str:
    """Little-endian float32s as base64."""
    try:
        floats = array("f", vector)
    except TypeError as wrong:
        raise UpstreamBroken("an embedding in Ollama's answer is no list of numbers") from wrong
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


def writer(request: InferenceRequest, body: Json, stamp: Stamp, facts: AnswerFacts) -> EmbeddingsWriter:
    """The writer of the answer to an embedding request that was parsed from `body`."""
    del stamp  # the list has neither id nor time
    return EmbeddingsWriter(request, facts, encoding_format=encoding_format(body))
