"""The gate's own endpoints, under /gate/: health, metrics, status, count, tokenize, chunk, archive."""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web

from ollama_gate import __version__, dashboard
from ollama_gate.endpoints import chunk, count, openapi
from ollama_gate.errors import Refusal, Refused
from ollama_gate.observe.metrics import CONTENT_TYPE
from ollama_gate.receive import body_limit, receive

if TYPE_CHECKING:
    from ollama_gate.access.door import Caller
    from ollama_gate.app import Gate

_JSON: Final = {"Content-Type": "application/json; charset=utf-8", "Server": "ollama-gate", "Cache-Control": "no-store"}


async def answer(
    gate: "Gate", request: web.BaseRequest, path: str, caller: "Caller | None" = None
) -> web.StreamResponse:
    """Answer one request under /gate/.

    Raises:
        Refused: 404 for an unknown path, 405 for a wrong method, and what the endpoint itself refuses.
        UpstreamError: Ollama does not answer what has to be asked for it.
    """
    found = ENDPOINTS.get(path)
    if found is None and path.startswith(_ARCHIVE):
        found = "GET", partial(_archive, path.removeprefix(_ARCHIVE))
    if found is None:
        known = ", ".join(sorted(ENDPOINTS))
        raise _not_found(f"{path} is not one of the gate's endpoints: {known}")
    takes, endpoint = found
    if takes != ("GET" if request.method == "HEAD" else request.method):
        raise Refused(Refusal(405, "method_not_allowed", f"{path[:200]} takes {takes}", headers={"Allow": takes}))
    return await endpoint(gate, request, caller)


def _not_found(what: str) -> Refused:
    return Refused(Refusal(404, "not_found", what, type="not_found_error"))


def _told(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value) + b"\n", headers=_JSON)


async def _page(*_: object) -> web.Response:
    """The status page."""
    return web.Response(body=dashboard.page(), headers=dashboard.headers())


async def _live(*_: object) -> web.Response:
    """That the gate answers at all."""
    return _told({"live": True, "version": __version__})


async def _health(gate: "Gate", *_: object) -> web.Response:
    """Whether the gate lives, and whether it can serve: 503 while Ollama does not answer."""
    wiring = gate.wiring
    up = await wiring.look_at_upstream()
    told: dict[str, Any] = {
        "live": True,
        "ready": up,
        "version": __version__,
        "upstream": {"url": wiring.config.upstream.url, "up": up, "version": wiring.catalog.version},
    }
    if warning := wiring.features.warning:
        told["upstream"]["warning"] = warning
    if not up:
        told["upstream"]["problem"] = wiring.problem
    return _told(told, status=200 if up else 503)


async def _metrics(gate: "Gate", *_: object) -> web.Response:
    """Everything that is counted, for Prometheus."""
    if not gate.config.metrics.enabled:
        raise _not_found("metrics are switched off here: metrics.enabled")
    return web.Response(body=gate.metrics.render(), headers={"Content-Type": CONTENT_TYPE, "Server": "ollama-gate"})


async def _openapi(*_: object) -> web.Response:
    """These endpoints and the guarded routes, for programs."""
    return _told(openapi.document(__version__))


async def _status(gate: "Gate", *_: object) -> web.Response:
    """How the gate is doing, for the status page; numbers and names, no text."""
    wiring = gate.wiring
    now = gate.clock()
    told: dict[str, Any] = {
        "version": __version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - (now - gate.started_at))),
        "uptime_seconds": round(now - gate.started_at, 1),
        "upstream": {
            "url": wiring.config.upstream.url,
            "up": wiring.up,
            "version": wiring.catalog.version,
            "warning": wiring.features.warning or None,
        },
        "requests": [
            {
                "id": turn.id,
                "route": turn.route,
                "model": turn.model,
                "phase": turn.phase.value,
                "verdict": turn.verdict.value,
                "seconds": round(now - turn.started, 3),
                "prompt_tokens": turn.prompt_tokens,
                "signals": dict(turn.signals),
            }
            for turn in list(gate.turns.values())
            if not turn.route.startswith("/gate/")
        ],
        "memory": wiring.admission.overview(),
        "log": wiring.logwatch.status() if wiring.logwatch is not None else None,
        "archive": {"enabled": wiring.archive is not None, "problem": wiring.archive_problem},
        "models": [wiring.model_status(card) for card in wiring.catalog.known()],
    }
    return _told(told)


async def _count(gate: "Gate", request: web.BaseRequest, caller: "Caller | None") -> web.Response:
    """What a body would take if it were sent."""
    return _told(await count.answer(gate.wiring, request, caller))


async def _tokenize(gate: "Gate", request: web.BaseRequest, caller: "Caller | None") -> web.Response:
    """Ids and pieces of a text, as the model's engine cuts it."""
    body = await (await receive(request, body_limit(gate.config))).everything()
    model, text = body.get("model"), body.get("text", body.get("content"))
    if not isinstance(model, str) or not isinstance(text, str):
        raise Refused(
            Refusal(400, "invalid_request", 'send {"model": "name", "text": "what to tokenize"}', param="text")
        )
    if caller is not None:
        caller.require_model(model)
    return _told(await gate.wiring.tokenize(model, text))


async def _chunk(gate: "Gate", request: web.BaseRequest, caller: "Caller | None") -> web.Response:
    """A text in pieces that fit."""
    return _told(await chunk.answer(gate.wiring, request, caller))


async def _archive(asked: str, gate: "Gate", request: web.BaseRequest, _: "Caller | None") -> web.Response:
    """A message that was kept, or a search for some."""
    keeper = gate.wiring.archive
    if keeper is None:
        what = "there is no archive here; the operator can switch one on: archive.enabled"
        raise Refused(Refusal(404, "archive_off", what, type="not_found_error"))
    from ollama_gate.endpoints import lookup  # noqa: PLC0415 - only where there is an archive

    return _told(await lookup.answer(keeper, request, asked))


Endpoint = Callable[["Gate", web.BaseRequest, "Caller | None"], Awaitable[web.Response]]
_ARCHIVE: Final = "/gate/archive/"
ENDPOINTS: Final[Mapping[str, tuple[str, Endpoint]]] = {
    dashboard.PATH: ("GET", _page),
    "/gate/archive/search": ("GET", partial(_archive, "search")),
    "/gate/health": ("GET", _health),
    "/gate/health/live": ("GET", _live),
    "/gate/metrics": ("GET", _metrics),
    "/gate/openapi.json": ("GET", _openapi),
    "/gate/status": ("GET", _status),
    "/gate/chunk": ("POST", _chunk),
    "/gate/count": ("POST", _count),
    "/gate/tokenize": ("POST", _tokenize),
}
"""Method and endpoint by path; a single message of the archive is asked for below /gate/archive/ by its hash."""
