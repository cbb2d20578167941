"""What clients are told of the models: Ollama's own words, from memory while they are fresh, with the window in force.

Some clients ask for a description before every request and some for all of them at once, and what they find there
becomes their idea of the window. So `/api/show` tells the window that the gate serves where they look for it
(`<architecture>.context_length`, and `num_ctx` among the parameters) instead of the longest one the model was trained
for. Whatever asks for more than the plain description passes through.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from ollama_gate.catalog.card import ModelCard
from ollama_gate.dialects import openai
from ollama_gate.dialects.go_json import go_json
from ollama_gate.errors import Refusal, Refused, UpstreamBroken
from ollama_gate.receive import read_body
from ollama_gate.requests import Json
from ollama_gate.turn import Phase, Turn, Verdict
from ollama_gate.upstream.client import answer_of
from ollama_gate.upstream.outlet import SERVER
from ollama_gate.wire.body import decode_json
from ollama_gate.wire.encoding import codings_of
from ollama_gate.wire.folding import fold

if TYPE_CHECKING:
    from ollama_gate.access.door import Caller
    from ollama_gate.app import Gate

SHOW: Final = "/api/show"
_TAGS: Final = "/api/tags"
_MODELS: Final = "/v1/models"
_PS: Final = "/api/ps"
_ROUTES: Final = frozenset({("POST", SHOW), ("GET", _TAGS), ("GET", _MODELS)})
_FIELDS: Final = frozenset({"model", "name", "verbose", "system", "template", "options"})
_PLAIN: Final = frozenset({"model", "name"})
_LONGEST: Final = 64 * 1024
"""Bytes of a request for a description that is looked at; a longer one is none, and passes through."""
_NUM_CTX: Final = re.compile(r"^num_ctx .*$", re.MULTILINE)
_COPILOT: Final = "GitHubCopilotChat/"
"""How a client's User-Agent begins that calls a model by the base name in its description, which many models share."""
NOTE: Final = "context_length and num_ctx are those that this gate serves"


def tells(method: str, path: str, caller: "Caller | None" = None) -> bool:
    """Whether this route tells of models, and so is answered here; what is loaded is, where some may not be told."""
    if path == _PS:
        return method == "GET" and caller is not None and caller.restricted
    return (method, path) in _ROUTES


async def answer(gate: "Gate", request: web.BaseRequest, path: str, turn: Turn) -> web.StreamResponse:
    """Answer from what is known, or let Ollama answer.

    Raises:
        Refused: what a caller asks that may use some models only.
        UpstreamError: Ollama does not answer the gate, or not with what such a caller can be shown some of.
    """
    raw: bytes | None = None
    restricted = turn.caller if turn.caller is not None and turn.caller.restricted else None
    if path == SHOW:
        length = request.content_length
        if length is None or length > _LONGEST or codings_of(request.headers.get("Content-Encoding")):
            if restricted is not None:
                raise Refused(Refusal(400, "invalid_request", "ask for one model, plainly", param="model"))
            return await gate.pass_on(request, path, turn)
        raw = bytes(await read_body(request, _LONGEST))
        if restricted is not None:
            restricted.require_model(_named(raw))
        told = await _description(gate, raw, request.headers.get("User-Agent", ""))
        if told is not None:
            turn.notes.append(NOTE)
    elif path == _PS:
        told = orjson.dumps(await gate.wiring.upstream.get_json(path) or {"models": []})
    else:
        told = await gate.wiring.catalog.tags()
        if told is not None and path == _TAGS and gate.config.dialects.bare_names:
            told = with_bare_names(told)
    if told is None:
        if restricted is not None and path != SHOW:  # an error of Ollama's, who knows of which models
            raise UpstreamBroken("it does not list its models")
        return await gate.pass_on(request, path, turn, raw)
    if restricted is not None and path != SHOW:
        told = _allowed(answer_of(told), restricted)
    media_type = "application/json; charset=utf-8"
    if path == _MODELS:
        told, media_type = openai.models_list(answer_of(told)), "application/json"
    turn.verdict, turn.phase, turn.status = Verdict.PASSED, Phase.DONE, 200
    gate.metrics.passed.labels("200").inc()
    return web.Response(body=told, headers={"Content-Type": media_type, "Server": SERVER, **turn.headers()})


def _named(raw: bytes) -> str:
    """The model that a body asks about.

    Raises:
        Refused: 400, it names none, or two.
    """
    body = fold(decode_json(raw), _FIELDS)
    named = [value for key in sorted(_PLAIN) if (value := body.get(key))]
    name = named[0] if named else None
    if not isinstance(name, str) or any(other != name for other in named):
        raise Refused(Refusal(400, "invalid_request", "name one model", param="model"))
    return name


def _allowed(tree: Json, caller: "Caller") -> bytes:
    """A list of models without those that a caller may not use."""
    kept = [row for row in _rows(tree) if caller.key.allows(str(row.get("name") or row.get("model") or ""))]
    return orjson.dumps({**tree, "models": kept})


async def _description(gate: "Gate", raw: bytes, user_agent: str) -> bytes | None:
    """A model's description with the window in force; None where Ollama has to answer itself."""
    try:
        name = plainly_asked(raw)
        card = await gate.wiring.catalog.fresh_card(name) if name is not None else None
    except (Refused, UpstreamBroken):
        return None
    if card is None:
        return None
    room = gate.wiring.pipeline.policies.for_card(card).window
    if room is None:
        return None
    return described(card, room.num_ctx, name if user_agent.startswith(_COPILOT) else None)


def with_bare_names(tags: bytes) -> bytes:
    """Ollama's list with each `x:latest` in it a second time as `x`, right after."""
    told = answer_of(tags)
    rows: list[Json] = []
    for row in _rows(told):
        rows.append(row)
        bare, _, tag = str(row.get("name", "")).rpartition(":")
        if tag == "latest":
            rows.append({**row, "name": bare, "model": bare})
    return go_json({**told, "models": rows})


def _rows(told: Json) -> list[Json]:
    """The models of a list; none where it has null instead of one, as an Ollama without models may say."""
    listed = told.get("models")
    return [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []


def plainly_asked(raw: bytes) -> str | None:
    """The model whose description a body asks for; None when it asks for more than that, or for nothing.

    Raises:
        Refused: it is not JSON, or not a JSON object.
    """
    body = fold(decode_json(raw), _FIELDS)
    if any(value for key, value in body.items() if key in _FIELDS - _PLAIN):
        return None
    name = body.get("model") or body.get("name")
    return name if isinstance(name, str) else None


def described(card: ModelCard, num_ctx: int, basename: str | None = None) -> bytes:
    """Ollama's description of a model, with the window that is served in the places where clients look for one.

    Args:
        card: the model, with Ollama's whole description.
        num_ctx: the window in tokens; a model that was trained for less keeps its own length.
        basename: what to call the model by instead of its base name (`server/routes.go:ShowHandler`, v0.33).
    """
    show = dict(card.show)
    key = f"{card.architecture}.context_length"
    info: Json = show.get("model_info") or {}
    if key in info:
        info = {**info, key: num_ctx if card.trained is None else min(num_ctx, card.trained)}
    if basename is not None:
        info = {**info, "general.basename": basename}
    if info:
        show["model_info"] = info
    return go_json(_with_parameters(show, _parameters(show.get("parameters"), num_ctx)))


def _parameters(told: object, num_ctx: int) -> str:
    """The Modelfile's parameters, one on each line, as `server/routes.go:GetModelInfo` (v0.33) lays them out."""
    line = f"{'num_ctx':<30} {num_ctx}"
    if not isinstance(told, str) or not told:
        return line
    replaced, found = _NUM_CTX.subn(line, told)
    return replaced if found else f"{told}\n{line}"


def _with_parameters(show: Json, parameters: str) -> Mapping[str, object]:
    """The description with its parameters, after the Modelfile where there were none."""
    if "parameters" in show:
        return {**show, "parameters": parameters}
    written: dict[str, object] = {}
    for key, value in show.items():
        written[key] = value
        if key == "modelfile":
            written["parameters"] = parameters
    written.setdefault("parameters", parameters)
    return written
