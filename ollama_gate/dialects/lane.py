"""What is known of one guarded route: how its requests are read, and its answers and refusals written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ollama_gate.dialects.translation import ServerTools, Stamp
from ollama_gate.errors import Refusal
from ollama_gate.requests import AnswerFacts, AnswerWriter, InferenceRequest, Json
from ollama_gate.wire.folding import fold

Headers = Mapping[str, str]
"""Headers of a request; they are looked up by lower-case names, and may be a mapping that takes any case."""
Parse = Callable[[Json, Headers, ServerTools], InferenceRequest]
"""(decoded and folded body, headers, what to do with server-side tools) to the native request; raises Refused."""
RenderRefusal = Callable[[Refusal, str], tuple[bytes, str]]
"""(refusal, id of the request) to a refusal's body and content type."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One guarded route."""

    dialect: str
    fields: frozenset[str]
    """Known top-level field names: odd-cased ones are folded to these, others are left as they are."""
    parse: Parse
    render_refusal: RenderRefusal
    writer: Callable[[InferenceRequest, Json, Stamp, AnswerFacts], AnswerWriter] | None = None
    """(native request, the client's body, stamp, facts) to the writer of its answer; None where Ollama's bytes go
    through unchanged."""
    form: bool = False
    """Whether requests are forms with a file (multipart), not JSON."""
    needs_count: bool = False
    """Whether a stream of this dialect begins with the prompt count, so that it is made even if bytes decide."""

    def read(self, body: dict[str, Any], headers: Headers, server_tools: ServerTools) -> tuple[Json, InferenceRequest]:
        """A decoded body, folded, and the native request that it means.

        Raises:
            Refused: it means none.
        """
        folded = fold(body, self.fields)
        return folded, self.parse(folded, headers, server_tools)
