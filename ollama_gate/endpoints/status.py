"""GET /gate/status: everything that the status page and `ollama-gate top` show, as JSON."""

import time
from typing import TYPE_CHECKING, Any

from ollama_gate import __version__
from ollama_gate.catalog.card import ModelCard
from ollama_gate.endpoints.alerts import alerts
from ollama_gate.wiring import Wiring

if TYPE_CHECKING:
    from ollama_gate.app import Gate


def told(gate: "Gate") -> dict[str, Any]:
    """How the gate is doing now: numbers and names, no text of anybody's."""
    wiring = gate.wiring
    now = gate.clock()
    archive = wiring.archive
    memory, asks = wiring.admission.overview(), wiring.counter.asks
    status: dict[str, Any] = {
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
        "memory": memory,
        "log": wiring.logwatch.status() if wiring.logwatch is not None else None,
        "archive": {
            "enabled": archive is not None,
            "problem": archive.problem or None if archive is not None else None,
        },
        "keys": {"known": len(gate.entrance.door.ring.keys), "problem": gate.entrance.keys_problem},
        "shared": gate.exchange.status() if gate.exchange is not None else {"enabled": False, "problem": None},
        "models": [_model(wiring, card, memory.free, asks=asks) for card in wiring.catalog.known()],
    }
    return {**status, "alerts": alerts(status)}


def _model(wiring: Wiring, card: ModelCard, free: int | None, *, asks: bool) -> dict[str, Any]:
    """One model: its window, slots and memory, and how its prompts are counted."""
    applied = wiring.pipeline.policies.for_card(card)
    known = wiring.counter.met(card)
    unmet = "being built" if known.preparing is not None else "not needed yet"
    room = applied.window
    return {
        "name": card.name,
        "digest": card.digest[:12],
        "mode": card.mode.value,
        "window": room.num_ctx if room is not None else None,
        "budget": room.budget if room is not None else None,
        "embed_limit": applied.embeds.tokens if applied.embeds is not None else None,
        **(wiring.admission.status(card, applied, free) if card.digest else {}),
        "tokenizer": "ready" if known.meter is not None else known.why or unmet,
        "counts": {
            "rung": known.called(asks=asks),
            "rendering_believed": known.trust.rendering,
            "vocabulary_believed": known.trust.vocabulary,
            "bound_believed": known.trust.bound,
            "checked": known.checked,
            "agreed": known.trust.agreed,
            "why": known.trust.why,
        },
    }
