"""OpenAI's Responses API: the routes that the rest of the gate calls."""

from typing import Final

from ollama_gate.dialects import responses_answer, responses_request
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.openai_errors import render_refusal
from ollama_gate.dialects.responses_answer import ResponsesWriter, writer
from ollama_gate.dialects.responses_request import FIELDS, parse
from ollama_gate.dialects.translation import Endpoint

__all__ = [
    "COUNT_PATH",
    "ENDPOINT",
    "FIELDS",
    "PATH",
    "ResponsesWriter",
    "counted",
    "parse",
    "render_refusal",
    "writer",
]

PATH: Final = "/v1/responses"
COUNT_PATH: Final = "/v1/responses/input_tokens"
"""OpenAI's route for counting; its requests are read with `parse`."""
ENDPOINT: Final = Endpoint(FIELDS, responses_request.parse, responses_answer.writer, render_refusal)


def counted(tokens: int) -> bytes:
    """The answer to a request for a count."""
    return go_json({"object": "response.input_tokens", "input_tokens": tokens})
