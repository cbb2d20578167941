"""The gate's own endpoints, under /gate/: health, metrics, status, count, tokenize, chunk, archive."""

import time
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web

from ollama_gate import __version__, dashboard
from ollama_gate.catalog.card import ModelCard
from ollama_gate.compaction.compactor import Case, NotCompacted
from ollama_gate.dialects.lane import Lane
from ollama_gate.endpoints import chunk, openapi
from ollama_gate.errors import CountingError, Refusal, Refused
from ollama_gate.observe.metrics import CONTENT_TYPE
from ollama_gate.policies import Applied
from ollama_gate.receive import body_limit, receive
from ollama_gate.requests import InferenceRequest, Kind, PromptCount
from ollama_gate.routes import LANES
from ollama_gate.turn import Verdict
from ollama_gate.window import Window, grace_limit

if TYPE_CHECKING:
    from ollama_gate.access.door import Caller
    from ollama_gate.app import Gate

_JSON: Final = {"Content-Type": "application/json; charset=utf-8", "Server": "ollama-gate", "Cache-Control": "no-store"}


class OwnEndpoints:
    """Answers what the gate is asked about itself."""

    def __init__(self, gate: "Gate") -> None:
        """Keep the gate whose state is shown."""
        self._gate = gate

    async def answer(self, request: web.BaseRequest, path: str, caller: "Caller | None" = None) -> web.StreamResponse:
        """Answer one request under /gate/.

        Raises:
            Refused: 404 for an unknown path, 405 for a wrong method, and what the endpoint itself refuses.
            UpstreamError: Ollama does not answer what has to be asked for it.
        """
        method = "GET" if request.method == "HEAD" else request.method
        match method, path:
            case "GET", "/gate/health":
                return await self._health()
            case "GET", "/gate/health/live":
                return _answer({"live": True, "version": __version__})
            case "GET", "/gate/metrics" if self._gate.config.metrics.enabled:
                body = self._gate.metrics.render()
                return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE, "Server": "ollama-gate"})
            case "GET", dashboard.PATH:
                return web.Response(body=dashboard.page(), headers=dashboard.headers())
            case "GET", "/gate/openapi.json":
                return _answer(openapi.document(__version__))
            case "GET", "/gate/status":
                return _answer(self._status())
            case "POST", "/gate/count":
                return await self._count(request, caller)
            case "POST", "/gate/tokenize":
                return await self._tokenize(request, caller)
            case "POST", "/gate/chunk":
                return _answer(await chunk.answer(self._gate.wiring, request, caller))
            case "GET", _ if path.startswith(_ARCHIVE):
                return await self._archive(request, path.removeprefix(_ARCHIVE))
            case _:
                pass
        takes = "GET" if path.startswith(_ARCHIVE) else _METHODS.get(path)
        if takes is not None:
            raise Refused(Refusal(405, "method_not_allowed", f"{path[:200]} takes {takes}", headers={"Allow": takes}))
        known = ", ".join(sorted(_METHODS))
        raise Refused(
            Refusal(404, "not_found", f"{path} is not one of the gate's endpoints: {known}", type="not_found_error")
        )

    async def _health(self) -> web.Response:
        wiring = self._gate.wiring
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
        return _answer(told, status=200 if up else 503)

    def _status(self) -> dict[str, Any]:
        gate, wiring = self._gate, self._gate.wiring
        now = gate.clock()
        return {
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

    async def _count(self, request: web.BaseRequest, caller: "Caller | None") -> web.Response:
        """Count a body as if it were sent, and say what the verdict would be; nothing is run."""
        pipeline = self._gate.wiring.pipeline
        inference, size = await self._inference(request)
        if caller is not None:
            caller.require_model(inference.model)
        count, applied, card = await pipeline.judge_only(inference)
        told: dict[str, Any] = {
            "model": card.name,
            "tokens": count.tokens,
            "at_most": count.at_most,
            "rung": count.rung.value,
            "parts": {
                "messages": count.parts.messages,
                "tools": count.parts.tools,
                "template": count.parts.template,
                "media": count.parts.media,
            },
        }
        if count.why:
            told["why"] = count.why
        room, embeds = applied.window, applied.embeds
        if inference.kind is Kind.EMBED and embeds is not None:
            over = [index for index, tokens in enumerate(count.items) if tokens > embeds.tokens]
            told |= {"inputs": list(count.items), "limit": embeds.tokens, "limit_is": embeds.by, "over": over}
            told["verdict"] = (Verdict.REFUSE if over else Verdict.ADMIT).value
        elif room is not None:
            told |= {
                "budget": room.budget,
                "window": room.num_ctx,
                "reserve": room.reserve,
                "room": room.room(count.tokens),
                "share_of_budget": round(count.tokens / room.budget, 4),
                "share_of_window": round(count.tokens / room.num_ctx, 4),
                "verdict": _verdict(inference, count, applied, room).value,
                "fits_window": count.at_most <= grace_limit(room),
            }
            if _yes(request.query.get("detail")):
                told |= await self._detail(inference, card)
            if _yes(request.query.get("compact")) and inference.kind is Kind.CHAT:
                case = Case(inference, card, room, applied.policy.image_tokens, size)
                told["compaction"] = await self._compacted(case, count, on=applied.policy.compaction)
        return _answer(told)

    async def _detail(self, inference: InferenceRequest, card: ModelCard) -> dict[str, Any]:
        """What each message and tool takes; nothing where the model's tokens are not known."""
        try:
            shares = await self._gate.wiring.counter.detail(inference, card)
        except CountingError:
            return {}
        return {
            "per_message": [{"role": share.name, "tokens": share.tokens} for share in shares.messages],
            "per_tool": [{"name": share.name, "tokens": share.tokens} for share in shares.tools],
        }

    async def _compacted(self, case: Case, before: PromptCount, *, on: bool) -> dict[str, Any]:
        """What compaction would make of a chat that is over its budget; nothing is sent, archived or remembered."""
        told: dict[str, Any] = {"on": on, "from": before.tokens}
        if before.at_most <= case.room.budget:
            return {**told, "outcome": "not_needed"}
        try:
            done = await self._gate.wiring.compactor.compact(case, keeps=False)
        except NotCompacted as no:
            return {**told, "outcome": str(no.outcome), "why": str(no)}
        messages, after = case.messages, done.request.body["messages"]
        return {
            **told,
            "outcome": str(done.outcome),
            "to": done.count.tokens,
            "at_most": done.count.at_most,
            "messages": len(messages),
            "messages_after": len(after),
            "whole": len(messages) - len(done.replaced),
            "shortened_or_dropped": len(done.replaced),
        }

    async def _inference(self, request: web.BaseRequest) -> tuple[InferenceRequest, int]:
        """What the body asks for, and its bytes."""
        received = await receive(request, body_limit(self._gate.config))
        route, tools = request.query.get("route"), self._gate.config.dialects.server_tools
        _, inference = await received.understood(lambda body: _lane(route, body).read(body, request.headers, tools))
        return inference, received.size

    async def _tokenize(self, request: web.BaseRequest, caller: "Caller | None") -> web.Response:
        """Ids and pieces of a text, as the model's engine cuts it."""
        body = await (await receive(request, body_limit(self._gate.config))).everything()
        model, text = body.get("model"), body.get("text", body.get("content"))
        if not isinstance(model, str) or not isinstance(text, str):
            raise Refused(
                Refusal(400, "invalid_request", 'send {"model": "name", "text": "what to tokenize"}', param="text")
            )
        if caller is not None:
            caller.require_model(model)
        return _answer(await self._gate.wiring.tokenize(model, text))

    async def _archive(self, request: web.BaseRequest, asked: str) -> web.Response:
        """A message that was kept, or a search for some."""
        keeper = self._gate.wiring.archive
        if keeper is None:
            what = "there is no archive here; the operator can switch one on: archive.enabled"
            raise Refused(Refusal(404, "archive_off", what, type="not_found_error"))
        from ollama_gate.endpoints import lookup  # noqa: PLC0415 - only where there is an archive

        return _answer(await lookup.answer(keeper, request, asked))


_ARCHIVE: Final = "/gate/archive/"
_METHODS: Final = {
    dashboard.PATH: "GET",
    "/gate/archive/search": "GET",
    "/gate/health": "GET",
    "/gate/health/live": "GET",
    "/gate/metrics": "GET",
    "/gate/openapi.json": "GET",
    "/gate/status": "GET",
    "/gate/chunk": "POST",
    "/gate/count": "POST",
    "/gate/tokenize": "POST",
}


def _lane(route: str | None, body: dict[str, Any]) -> Lane:
    """The route that a body is for: the one that was named, or the one that its fields tell."""
    if route is None:
        fields = {key.lower() for key in body}
        route = "/api/embed" if "input" in fields else "/api/chat" if "messages" in fields else "/api/generate"
    lane = LANES.get(route)
    if lane is None or lane.form:
        known = ", ".join(path for path, each in LANES.items() if not each.form)
        raise Refused(Refusal(400, "invalid_request", f"route must be one of {known}", param="route"))
    return lane


def _yes(value: str | None) -> bool:
    return value is not None and value.lower() not in {"0", "false", "no"}


def _verdict(inference: InferenceRequest, count: PromptCount, applied: Applied, room: Window) -> Verdict:
    """What would become of a chat or generate request; whether compacting would help is only known when it is done."""
    if count.at_most <= room.budget:
        return Verdict.ADMIT
    return Verdict.COMPACT if applied.policy.compaction and inference.kind is Kind.CHAT else Verdict.REFUSE


def _answer(told: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(told) + b"\n", headers=_JSON)
