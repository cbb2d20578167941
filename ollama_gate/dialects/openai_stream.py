"""What chat completions and text completions have in common: usage, and how a stream of theirs fails and ends."""

from collections.abc import Mapping
from typing import Any, Final

from ollama_gate.dialects.go_fields import Place, flag, record
from ollama_gate.dialects.openai_errors import error_json
from ollama_gate.dialects.translation import JSON_HEADERS, Usage
from ollama_gate.requests import Json
from ollama_gate.wire import sse

FINGERPRINT: Final = "fp_ollama"


def wants_usage(body: Json, request: Place) -> bool:
    """Whether the client wants a usage chunk at the end of its stream.

    Args:
        body: the client's.
        request: what kind of request it is, for the error.

    Raises:
        Refused: 400, `stream_options` is of a wrong type.
    """
    stream_options = record(body, "stream_options", request, "openai.StreamOptions")
    place = request.within("stream_options", "StreamOptions")
    return stream_options is not None and flag(stream_options, "include_usage", place)


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as `openai/openai.go:Usage` (v0.33) has it, and the cached tokens where they are known."""
    found: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
    }
    if usage.cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    return found


class StreamWriter:
    """A stream of nameless events that the end mark or an error ends; what stands in its chunks, each writer knows."""

    stream_headers: Mapping[str, str] = sse.HEADERS
    whole_headers: Mapping[str, str] = JSON_HEADERS

    def __init__(self) -> None:
        """Begin a stream."""
        self._over = False

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """An error event; no end mark follows it."""
        if self._over:
            return b""
        self._over = True
        return sse.data(error_json(status, message, code))

    def finish(self) -> bytes | None:
        """Nothing more to send, or None when the stream came neither to its end nor to an error event."""
        return b"" if self._over else None

    def keep_alive(self) -> bytes:
        """A comment."""
        return sse.comment("keep-alive")

    def failed(self, status: int, message: str) -> bytes:
        """An error of Ollama's in OpenAI's shape."""
        return error_json(status, message) + b"\n"
