"""OpenAI's Responses API: the routes that the rest of the gate calls."""

from typing import Final

from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.lane import Lane
from ollama_gate.dialects.openai_errors import render_refusal
from ollama_gate.dialects.responses_answer import writer
from ollama_gate.dialects.responses_request import FIELDS, parse

__all__ = ["COUNT_PATH", "FIELDS", "LANE", "PATH", "counted", "parse"]

PATH: Final = "/v1/responses"
COUNT_PATH: Final = "/v1/responses/input_tokens"
"""OpenAI's route for counting; its requests are read with `parse`."""
LANE: Final = Lane("responses", FIELDS, parse, render_refusal, writer)


def counted(tokens: int) -> bytes:
    """The answer to a request for a count."""
    return go_json({"object": "response.input_tokens", "input_tokens": tokens})
