"""The guarded routes: which paths are inference, and in which dialect.

Everything else passes through. Paths are matched as Ollama's router matches them, after percent-decoding
(`net/url`, gin's default), so that no spelling of a guarded path slips by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import unquote

from ollama_gate.dialects import anthropic, native, openai, responses
from ollama_gate.dialects.translation import Endpoint, Stamp, session_of
from ollama_gate.errors import Refusal
from ollama_gate.requests import AnswerFacts, AnswerWriter, InferenceRequest, Json

Headers = Mapping[str, str]
RenderRefusal = Callable[[Refusal], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Lane:
    """How one guarded route is read and how its errors are written."""

    dialect: str
    fields: frozenset[str]
    """Known top-level field names: others are left as they are, these are folded."""
    parse: Callable[[Json, Headers], InferenceRequest]
    render_refusal: RenderRefusal
    writer: Callable[[InferenceRequest, Json, Stamp, AnswerFacts], AnswerWriter] | None = None
    """Makes the writer of answers; None where Ollama's bytes go through unchanged."""
    needs_count: bool = False
    """Whether a stream of this dialect begins with the prompt count, so that it is made even if bytes decide."""


def _native(path: str, body: Json, headers: Headers) -> InferenceRequest:
    return native.parse(path, body, session=session_of(headers))


def _translated(dialect: str, endpoint: Endpoint, *, needs_count: bool = False) -> Lane:
    def parse(body: Json, headers: Headers) -> InferenceRequest:
        return endpoint.parse(body, {name.lower(): value for name, value in headers.items()}, "drop")

    return Lane(dialect, endpoint.fields, parse, endpoint.refusal, endpoint.writer, needs_count)


LANES: Final[Mapping[str, Lane]] = {
    **{
        path: Lane("native", fields, partial(_native, path), native.render_refusal)
        for path, fields in native.FIELDS.items()
    },
    **{path: _translated("openai", endpoint) for path, endpoint in openai.ENDPOINTS.items()},
    responses.PATH: _translated("responses", responses.ENDPOINT),
    anthropic.PATH: _translated("anthropic", anthropic.ENDPOINT, needs_count=True),
}
"""Guarded routes by decoded path; all of them are POST."""


def decoded(raw_path: str) -> str:
    """A path as Ollama's router sees it: percent-decoded once."""
    return unquote(raw_path) if "%" in raw_path else raw_path


UNTRANSLATED: Final = frozenset(
    {
        "/v1/audio/transcriptions",
    }
)
"""Inference routes that the gate does not speak: passed through they would cut prompts, so they are answered 501."""

CHANGES_MODELS: Final = frozenset({"/api/pull", "/api/create", "/api/copy", "/api/delete"})
"""Routes after which a name may stand for another model."""


def refusal_writer(path: str) -> RenderRefusal:
    """Who writes the gate's errors for a path, guarded or not: by the dialect that its callers speak."""
    lane = LANES.get(path)
    if lane is not None:
        return lane.render_refusal
    if path.startswith("/v1/messages"):
        return anthropic.render_refusal
    return openai.render_refusal if path.startswith("/v1/") else native.render_refusal
