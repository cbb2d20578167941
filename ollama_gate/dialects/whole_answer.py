"""What the writers of answers that never stream have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ollama_gate.dialects.openai_errors import error_json
from ollama_gate.dialects.translation import JSON_HEADERS


class WholeAnswerWriter(ABC):
    """Writes one body; the streaming half of the protocol has nothing to say."""

    stream_headers: Mapping[str, str] = JSON_HEADERS
    whole_headers: Mapping[str, str] = JSON_HEADERS

    @abstractmethod
    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """The body."""

    def feed(self, chunk: Mapping[str, Any]) -> bytes:
        """Nothing: this answer has no chunks."""
        del chunk
        return b""

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """The body of an error, as no stream has begun."""
        del code
        return self.failed(status, message)

    def finish(self) -> bytes | None:
        """None: there is no stream that could have come to its end."""
        return None

    def keep_alive(self) -> bytes:
        """Nothing: a JSON body cannot show signs of life."""
        return b""

    def failed(self, status: int, message: str) -> bytes:
        """An error of Ollama's in OpenAI's shape."""
        return error_json(status, message) + b"\n"
