"""The guarded routes: which paths are inference, and in which dialect.

Everything else passes through; what right a route takes stands here too. Paths are matched as Ollama's router matches
them, after percent-decoding (`net/url`, gin's default), so that no spelling of a guarded path slips by.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from ollama_gate.access.keys import Right
from ollama_gate.dialects import anthropic, native, openai, responses
from ollama_gate.dialects.lane import Lane, RenderRefusal
from ollama_gate.errors import Refusal
from ollama_gate.turn import Turn
from ollama_gate.upstream.outlet import SERVER

LANES: Final[Mapping[str, Lane]] = {
    **native.LANES,
    **openai.LANES,
    responses.PATH: responses.LANE,
    anthropic.PATH: anthropic.LANE,
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
    body, content_type = refusal_writer(turn.route)(refusal, turn.id)
    headers = {**turn.headers(), **refusal.headers, "Content-Type": content_type, "Server": SERVER}
    response = web.Response(status=refusal.status, reason=refusal.reason or None, body=body, headers=headers)
    if "Connection" in refusal.headers:
        response.force_close()
    return response
