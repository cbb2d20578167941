"""Errors in OpenAI's shape, for every route below /v1 except Anthropic's.

`{"error":{"message","type","param","code"}}`, the type by the status: `openai/openai.go:NewError`, Ollama v0.33.
"""

from typing import Any, Final

from ollama_gate.dialects.go_json import go_json
from ollama_gate.errors import Refusal

CONTENT_TYPE: Final = "application/json; charset=utf-8"
_UNCODED: Final = frozenset({"", "invalid_request", "not_found"})
"""Codes that say no more than the status does; Ollama sends null, and so does the gate."""
_KEYS: Final = frozenset({"message", "type", "param", "code"})


def error_type(status: int) -> str:
    """OpenAI's error type for a status."""
    return {400: "invalid_request_error", 404: "not_found_error"}.get(status, "api_error")


def error_json(status: int, message: str, code: str | None = None) -> bytes:
    """An error that came from Ollama, whose text is kept, or one inside a stream with the gate's code."""
    return go_json({"error": {"message": message, "type": error_type(status), "param": None, "code": code}})


def render_refusal(refusal: Refusal, request_id: str) -> tuple[bytes, str]:
    """A refusal of the gate's own and its content type; the facts for programs stand inside `error`."""
    del request_id  # a header has it
    error: dict[str, Any] = {
        "message": refusal.message,
        "type": refusal.type,
        "param": refusal.param,
        "code": None if refusal.code in _UNCODED else refusal.code,
    }
    error.update((key, value) for key, value in refusal.details.items() if key not in _KEYS)
    return go_json({"error": error}), CONTENT_TYPE
