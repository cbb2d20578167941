"""Anthropic's Messages API: the routes that the rest of the gate calls."""

from typing import Final

from ollama_gate.dialects.anthropic_answer import writer
from ollama_gate.dialects.anthropic_errors import render_refusal
from ollama_gate.dialects.anthropic_request import FIELDS, parse, parse_count
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.lane import Lane

__all__ = ["COUNT_PATH", "FIELDS", "LANE", "PATH", "counted", "parse_count", "render_refusal"]

PATH: Final = "/v1/messages"
COUNT_PATH: Final = "/v1/messages/count_tokens"
LANE: Final = Lane("anthropic", FIELDS, parse, render_refusal, writer, needs_count=True)


def counted(tokens: int) -> bytes:
    """The answer to a request for a count."""
    return go_json({"input_tokens": tokens})
