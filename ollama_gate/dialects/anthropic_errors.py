"""Errors in Anthropic's shape, `{"type":"error","error":{"type","message"},"request_id"}`.

The type follows from the status, as in `anthropic/anthropic.go:NewError` (Ollama v0.33).
"""

from typing import Any, Final

from ollama_gate.dialects.go_json import go_json
from ollama_gate.errors import Refusal

CONTENT_TYPE: Final = "application/json; charset=utf-8"
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """Anthropic's error type for a status."""
    return _TYPES.get(status, "api_error")


def error_object(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """An error; inside a stream it has no id of its request."""
    found: dict[str, Any] = {"type": "error", "error": {"type": error_type(status), "message": message}}
    if request_id is not None:
        found["request_id"] = "req_" + request_id.replace("-", "")
    return found


def render_refusal(refusal: Refusal, request_id: str) -> tuple[bytes, str]:
    """A refusal of the gate's own and its content type; the facts for programs stand beside `error`."""
    found = error_object(refusal.status, refusal.message, request_id)
    found["code"] = refusal.code
    found["param"] = refusal.param
    if refusal.details:
        found["details"] = dict(refusal.details)
    return go_json(found), CONTENT_TYPE
