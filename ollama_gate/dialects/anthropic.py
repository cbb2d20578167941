"""Anthropic's Messages API: the routes that the rest of the gate calls."""

from typing import Final

from ollama_gate.dialects.anthropic_answer import MessagesWriter, writer
from ollama_gate.dialects.anthropic_errors import render_refusal
from ollama_gate.dialects.anthropic_request import FIELDS, parse, parse_count
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.translation import Endpoint, without_thinking

__all__ = [
    "COUNT_PATH",
    "ENDPOINT",
    "FIELDS",
    "PATH",
    "MessagesWriter",
    "counted",
    "parse",
    "parse_count",
    "render_refusal",
    "without_thinking",
    "writer",
]

PATH: Final = "/v1/messages"
COUNT_PATH: Final = "/v1/messages/count_tokens"
ENDPOINT: Final = Endpoint(FIELDS, parse, writer, render_refusal)


def counted(tokens: int) -> bytes:
    """The answer to a request for a count."""
    return go_json({"input_tokens": tokens})
