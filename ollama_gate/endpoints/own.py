"""The gate's own endpoints, under /gate/: health, metrics, status, count, tokenize, chunk, archive."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web

from ollama_gate import __version__, dashboard
from ollama_gate.counting.measuring import Meter
from ollama_gate.endpoints import chunk, count, openapi, status
from ollama_gate.errors import CountingError, Refusal, Refused
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
    gate.wiring.settler.catch_up()  # what a finished request left is there for whoever looks
    takes, endpoint = found
    if takes != ("GET" if request.method == "HEAD" else request.method):
        raise Refused(Refusal(405, "method_not_allowed", f"{path[:200]} takes {takes}", headers={"Allow": takes}))
    return await endpoint(gate, request, caller)


def _not_found(what: str) -> Refused:
    return Refused(Refusal(404, "not_found", what, type="not_found_error"))


def _told(value: Any, code: int = 200) -> web.Response:
    return web.Response(status=code, body=orjson.dumps(value) + b"\n", headers=_JSON)


async def _page(*_: object) -> web.Response:
    """The status page."""
    return web.Response(body=dashboard.page(), headers=dashboard.headers())


async def _live(*_: object) -> web.Response:
    """That the gate answers at all."""
    return _told({"live": True, "version": __version__})


async def _health(gate: "Gate", *_: object) -> web.Response:
    """Whether the gate lives, and whether it can serve: 503 while Ollama does not answer, or keys are not known."""
    wiring = gate.wiring
    up = await wiring.look_at_upstream()
    shut = gate.entrance.door.shut
    told: dict[str, Any] = {
        "live": True,
        "ready": up and not shut,
        "version": __version__,
        "upstream": {"url": wiring.config.upstream.url, "up": up, "version": wiring.catalog.version},
    }
    if warning := wiring.features.warning:
        told["upstream"]["warning"] = warning
    if not up:
        told["upstream"]["problem"] = wiring.problem
    if shut:
        told["problem"] = "nobody gets in: the keys have not been read, or there are none"
    return _told(told, 200 if told["ready"] else 503)


async def _metrics(gate: "Gate", *_: object) -> web.Response:
    """Everything that is counted, for Prometheus."""
    if not gate.config.metrics.enabled:
        raise _not_found("metrics are switched off here: metrics.enabled")
    return web.Response(body=gate.metrics.render(), headers={"Content-Type": CONTENT_TYPE, "Server": "ollama-gate"})


async def _openapi(*_: object) -> web.Response:
    """These endpoints and the guarded routes, for programs."""
    return _told(openapi.document(__version__))


async def _status(gate: "Gate", *_: object) -> web.Response:
    """How the gate is doing, for the status page."""
    return _told(status.told(gate))


async def _count(gate: "Gate", request: web.BaseRequest, caller: "Caller | None") -> web.Response:
    """What a body would take if it were sent."""
    return _told(await count.answer(gate.wiring, request, caller))


async def _tokenize(gate: "Gate", request: web.BaseRequest, caller: "Caller | None") -> web.Response:
    """Ids and pieces of a text as the model's engine cuts it, without BOS and EOS."""
    body = await (await receive(request, body_limit(gate.config))).everything()
    model, text = body.get("model"), body.get("text", body.get("content"))
    if not isinstance(model, str) or not isinstance(text, str):
        raise Refused(
            Refusal(400, "invalid_request", 'send {"model": "name", "text": "what to tokenize"}', param="text")
        )
    if caller is not None:
        caller.require_model(model)
    wiring = gate.wiring
    card = await wiring.local(model)
    try:
        number, ids, pieces = await wiring.counter.work(card, partial(_tokens, text))
    except CountingError as failure:
        raise Refused(Refusal(400, "not_countable", str(failure), param="model")) from failure
    return _told({"model": card.name, "count": number, "ids": orjson.Fragment(ids), "pieces": orjson.Fragment(pieces)})


def _tokens(text: str, meter: Meter) -> tuple[int, bytes, bytes]:
    """How many tokens a text has, and their ids and pieces as JSON: there may be millions, and the loop writes none."""
    ids = meter.tokenizer.ids(text)
    return len(ids), orjson.dumps(ids), meter.tokenizer.pieces(text)


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
