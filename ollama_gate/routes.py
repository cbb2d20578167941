"""The guarded routes: which paths are inference, and in which dialect.

Everything else passes through; what right a route takes stands here too. Paths are matched as Ollama's router matches
them, after percent-decoding (`net/url`, gin's default), so that no spelling of a guarded path slips by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from ollama_gate.access.keys import Right
from ollama_gate.dialects import anthropic, native, openai, responses
from ollama_gate.dialects.translation import Endpoint, ServerTools, Stamp, session_of
from ollama_gate.errors import Refusal
from ollama_gate.requests import AnswerFacts, AnswerWriter, InferenceRequest, Json
from ollama_gate.turn import Turn
from ollama_gate.upstream.outlet import SERVER
from ollama_gate.wire.folding import fold

Headers = Mapping[str, str]
RenderRefusal = Callable[[Refusal], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Lane:
    """How one guarded route is read and how its errors are written."""

    dialect: str
    fields: frozenset[str]
    """Known top-level field names: others are left as they are, these are folded."""
    parse: Callable[[Json, Headers, ServerTools], InferenceRequest]
    """(decoded and folded body, headers, what to do with server-side tools) to the native request."""
    render_refusal: RenderRefusal
    writer: Callable[[InferenceRequest, Json, Stamp, AnswerFacts], AnswerWriter] | None = None
    """Makes the writer of answers; None where Ollama's bytes go through unchanged."""
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


def _native(path: str, body: Json, headers: Headers, _: ServerTools) -> InferenceRequest:
    return native.parse(path, body, session=session_of(headers))


def _translated(dialect: str, endpoint: Endpoint, *, needs_count: bool = False) -> Lane:
    def parse(body: Json, headers: Headers, server_tools: ServerTools) -> InferenceRequest:
        return endpoint.parse(body, {name.lower(): value for name, value in headers.items()}, server_tools)

    return Lane(dialect, endpoint.fields, parse, endpoint.refusal, endpoint.writer, needs_count=needs_count)


def _transcription(form: Json, headers: Headers, _: ServerTools) -> InferenceRequest:
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    audio = form.get("file")
    lowered = {name.lower(): value for name, value in headers.items()}
    return openai.parse_transcription(fields, audio if isinstance(audio, bytes) else None, lowered)


def _transcription_writer(_: InferenceRequest, form: Json, __: Stamp, ___: AnswerFacts) -> AnswerWriter:
    return openai.TranscriptionWriter(str(form.get("response_format", "")))


LANES: Final[Mapping[str, Lane]] = {
    **{
        path: Lane("native", fields, partial(_native, path), native.render_refusal)
        for path, fields in native.FIELDS.items()
    },
    **{path: _translated("openai", endpoint) for path, endpoint in openai.ENDPOINTS.items()},
    openai.TRANSCRIPTIONS_PATH: Lane(
        "openai", frozenset(), _transcription, openai.render_refusal, _transcription_writer, form=True
    ),
    responses.PATH: _translated("responses", responses.ENDPOINT),
    anthropic.PATH: _translated("anthropic", anthropic.ENDPOINT, needs_count=True),
}
"""Guarded routes by decoded path; all of them are POST."""


def decoded(raw_path: str) -> str:
    """A path as Ollama's router sees it: percent-decoded once."""
    return unquote(raw_path) if "%" in raw_path else raw_path


CHANGES_MODELS: Final = frozenset({"/api/pull", "/api/create", "/api/copy", "/api/delete"})
"""Routes after which a name may stand for another model."""


_TELLS: Final = frozenset({"/", "/api/version", "/api/tags", "/api/ps", "/v1/models"})
"""Routes that tell what every client asks before it begins (GET and HEAD)."""
_ASKS: Final = frozenset({"/api/show", anthropic.COUNT_PATH, responses.COUNT_PATH})
"""Routes that tell something of a body (POST)."""
_OPEN: Final = frozenset({"/gate/health", "/gate/health/live"})
_COUNTS: Final = frozenset({"/gate/count", "/gate/tokenize", "/gate/chunk"})
_READS: Final = frozenset({"GET", "HEAD"})


def right_for(method: str, path: str) -> Right:
    """What a route asks of its caller. A route that is not known here takes the most.

    Args:
        method: upper case.
        path: decoded.
    """
    if path in LANES and method == "POST":
        return Right.USE
    if path.startswith("/gate/"):
        return Right.NOTHING if path in _OPEN else Right.COUNT if path in _COUNTS else Right.ADMIN
    if method in _READS and (path in _TELLS or (path.startswith("/v1/models/") and "/../" not in f"{path}/")):
        return Right.USE
    return Right.USE if method == "POST" and path in _ASKS else Right.ADMIN


def refusal_writer(path: str) -> RenderRefusal:
    """Who writes the gate's errors for a path, guarded or not: by the dialect that its callers speak."""
    lane = LANES.get(path)
    if lane is not None:
        return lane.render_refusal
    if path.startswith("/v1/messages"):
        return anthropic.render_refusal
    return openai.render_refusal if path.startswith("/v1/") else native.render_refusal


def refused(refusal: Refusal, turn: Turn) -> web.Response:
    """The gate's own answer to a request, in the dialect of its route; noted in the turn, and not yet sent."""
    turn.refused(refusal)
    body, content_type = refusal_writer(turn.route)(refusal)
    headers = {**turn.headers(), **refusal.headers, "Content-Type": content_type, "Server": SERVER}
    response = web.Response(status=refusal.status, reason=refusal.reason or None, body=body, headers=headers)
    if "Connection" in refusal.headers:
        response.force_close()
    return response
