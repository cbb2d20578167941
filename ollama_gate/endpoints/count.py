"""POST /gate/count: what a body would take if it were sent, of what, and what would become of it."""

from dataclasses import asdict
from typing import Any

from aiohttp import web

from ollama_gate.access.door import Caller
from ollama_gate.catalog.card import ModelCard
from ollama_gate.compaction.outcome import Case, NotCompacted
from ollama_gate.dialects.lane import Lane
from ollama_gate.errors import CountingError, Refusal, Refused
from ollama_gate.policies import Applied
from ollama_gate.receive import body_limit, receive
from ollama_gate.requests import InferenceRequest, Kind, PromptCount
from ollama_gate.routes import LANES
from ollama_gate.turn import Verdict
from ollama_gate.window import Window, grace_limit
from ollama_gate.wiring import Wiring


async def answer(wiring: Wiring, request: web.BaseRequest, caller: Caller | None = None) -> dict[str, Any]:
    """What a body would take if it were sent, and what the verdict on it would be; nothing is run.

    The query may name the `route` that the body is for, and ask for `detail` (what each message and tool takes) and
    for what `compact`ing would make of it.

    Raises:
        Refused: the body cannot be read or counted; 404 for a model that Ollama does not have; 503 while something else
            is compacted.
        UpstreamError: Ollama does not answer.
    """
    inference, size = await _inference(wiring, request)
    if caller is not None:
        caller.require_model(inference.model)
    count, applied, card = await wiring.pipeline.judge_only(inference)
    told: dict[str, Any] = {
        "model": card.name,
        "tokens": count.tokens,
        "at_most": count.at_most,
        "rung": count.rung.value,
        "parts": asdict(count.parts),
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
            told |= await _detail(wiring, inference, card)
        if _yes(request.query.get("compact")) and inference.kind is Kind.CHAT:
            case = Case(inference, card, room, applied.policy.image_tokens, size)
            tried = told["compaction"] = await _compacted(wiring, case, count, on=applied.policy.compaction)
            if told["verdict"] == Verdict.COMPACT.value and "to" not in tried:
                told["verdict"] = Verdict.REFUSE.value
    return told


async def _inference(wiring: Wiring, request: web.BaseRequest) -> tuple[InferenceRequest, int]:
    """What the body asks for, and the bytes of its text: images do not count, nor does how it was compressed."""
    received = await receive(request, body_limit(wiring.config))
    route, tools = request.query.get("route"), wiring.config.dialects.server_tools
    _, inference = await received.understood(lambda body: _lane(route, body).read(body, request.headers, tools))
    return inference, len(received.text)


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


async def _detail(wiring: Wiring, inference: InferenceRequest, card: ModelCard) -> dict[str, Any]:
    """What each message and tool takes; nothing where the model's tokens are not known."""
    try:
        shares = await wiring.counter.detail(inference, card)
    except CountingError:
        return {}
    return {
        "per_message": [{"role": share.name, "tokens": share.tokens} for share in shares.messages],
        "per_tool": [{"name": share.name, "tokens": share.tokens} for share in shares.tools],
    }


async def _compacted(wiring: Wiring, case: Case, before: PromptCount, *, on: bool) -> dict[str, Any]:
    """What compaction would make of a chat that is over its budget; nothing is sent, archived or remembered."""
    told: dict[str, Any] = {"on": on, "from": before.tokens}
    if before.at_most <= case.room.budget:
        return {**told, "outcome": "not_needed"}
    try:
        done = await wiring.compactor.preview(case)
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


def _verdict(inference: InferenceRequest, count: PromptCount, applied: Applied, room: Window) -> Verdict:
    """What would become of a chat or generate request; whether compacting would help is only known when it is done."""
    if count.at_most <= room.budget:
        return Verdict.ADMIT
    return Verdict.COMPACT if applied.policy.compaction and inference.kind is Kind.CHAT else Verdict.REFUSE


def _yes(value: str | None) -> bool:
    return value is not None and value.lower() not in {"0", "false", "no"}
