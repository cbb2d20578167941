"""Framing of server-sent events (WHATWG HTML, section 9.2): one event is a few `field: value` lines and a blank one.

Payloads are JSON on one line, so no value is ever split over several `data` lines.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CONTENT_TYPE: Final = "text/event-stream"
HEADERS: Final[Mapping[str, str]] = MappingProxyType({"Content-Type": CONTENT_TYPE})
NAMED_HEADERS: Final[Mapping[str, str]] = MappingProxyType({"Cache-Control": "no-cache", "Content-Type": CONTENT_TYPE})
"""Ollama says no-cache on its streams of named events only (`middleware/openai.go:ResponsesMiddleware`, v0.33)."""

DONE: Final = b"data: [DONE]\n\n"
"""The end mark of OpenAI's nameless streams."""


def data(payload: bytes) -> bytes:
    """A nameless event."""
    return b"data: " + payload + b"\n\n"


def event(name: str, payload: bytes) -> bytes:
    """A named event."""
    return b"event: " + name.encode() + b"\ndata: " + payload + b"\n\n"


def comment(words: str) -> bytes:
    """A line that every reader skips; it only shows that the connection lives."""
    return b": " + words.encode() + b"\n\n"
