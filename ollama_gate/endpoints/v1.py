"""The routes below /v1 that are not inference: models, and the counts that agents ask for before they send."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ollama_gate.dialects import anthropic, openai, responses
from ollama_gate.dialects.lane import Parse
from ollama_gate.errors import Refusal, Refused
from ollama_gate.receive import body_limit, receive
from ollama_gate.upstream.client import answer_of
from ollama_gate.wire.folding import fold

if TYPE_CHECKING:
    from ollama_gate.access.door import Caller
    from ollama_gate.app import Gate

_MODEL: Final = "/v1/models/"
_COMPACT: Final = "/v1/responses/compact"
"""A route of Ollama's main branch (`server/routes.go`, November 2026), not of v0.33: an inference like any other."""
_COUNTERS: Final[Mapping[str, tuple[frozenset[str], Parse, Callable[[int], bytes]]]] = {
    anthropic.COUNT_PATH: (anthropic.FIELDS, anthropic.parse_count, anthropic.counted),
    responses.COUNT_PATH: (responses.FIELDS, responses.parse, responses.counted),
}
"""Fields, parser and answer of each route that only counts."""
_UNGUARDED: Final = Refusal(
    501,
    "route_not_guarded",
    f"{_COMPACT} is not passed on: an Ollama that has it would run it with a window of its own, and cut the prompt. "
    "Compact with a request to /v1/responses, or by the client.",
    type="api_error",
)
_JSON: Final = {"Content-Type": "application/json", "Server": "ollama-gate"}


async def answer(
    gate: "Gate", request: web.BaseRequest, path: str, caller: "Caller | None" = None
) -> web.Response | None:
    """Answer one of these routes; None when the path is none of them.

    Raises:
        Refused: what the route itself refuses.
        UpstreamError: Ollama does not answer what has to be asked for it.
    """
    if request.method == "GET" and path.startswith(_MODEL) and len(path) > len(_MODEL):
        name = path.removeprefix(_MODEL)
        if caller is not None:
            caller.require_model(name)
        return await _model(gate, name)
    if request.method == "POST" and path in _COUNTERS:
        fields, parse, counted = _COUNTERS[path]
        return _answer(counted(await _count(gate, request, fields, parse, caller)))
    if request.method == "POST" and path == _COMPACT:
        raise Refused(_UNGUARDED)
    return None


async def _model(gate: "Gate", name: str) -> web.Response:
    """One model, by a name that may hold slashes; Ollama's own route cannot match those."""
    status, raw = await gate.wiring.upstream.exchange("POST", "/api/show", {"model": name}, within=30.0)
    if status != 200:
        told = answer_of(raw) if raw.startswith(b"{") else {}
        return _answer(openai.error_json(status, str(told.get("error", ""))), status)
    return _answer(openai.model_object(name, answer_of(raw)))


async def _count(
    gate: "Gate", request: web.BaseRequest, fields: frozenset[str], parse: Parse, caller: "Caller | None"
) -> int:
    """Tokens of the prompt that this body would make."""
    received = await receive(request, body_limit(gate.config))
    headers, tools = request.headers, gate.config.dialects.server_tools
    _, inference = await received.understood(lambda body: (body, parse(fold(body, fields), headers, tools)))
    if caller is not None:
        caller.require_model(inference.model)
    count, _, _ = await gate.wiring.pipeline.judge_only(inference)
    return count.tokens


def _answer(body: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, headers=_JSON)
