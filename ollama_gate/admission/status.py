"""Admission as the status page and the metrics see it: frozen values, cheap to make."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ollama_gate.admission.alerts import Alert
from ollama_gate.admission.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model's slots and memory."""

    model: str
    slots: int
    running: int
    waiting: int
    oldest_wait: float
    """Seconds; 0 when nobody waits."""
    waits_for_memory: bool
    retry_after: int
    """Seconds that a refusal would advise now."""
    stage: str = "not loaded"
    num_ctx: int = 0
    booked: int = 0
    """Bytes; 0 when it is not loaded."""
    reported: int = 0
    """Bytes that `/api/ps` said; 0 when it said nothing yet."""
    parts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Bytes by what they are for, as predicted."""
    expires_in: float | None = None
    largest_num_ctx: int | None = None
    """The largest window that would fit beside what else is loaded; None without a limit or knowledge."""


@dataclass(frozen=True, slots=True)
class AdmissionStatus:
    """All of it."""

    limit: int | None
    held: int
    line: tuple[str, ...]
    """Models that wait for memory, the next one first."""
    alerts: tuple[Alert, ...]
    models: tuple[ModelStatus, ...]


def status(scheduler: Scheduler, now: float) -> AdmissionStatus:
    """What admission looks like at this moment."""
    ledger = scheduler.ledger
    names = dict.fromkeys((*scheduler.queues, *(holding.model for holding in ledger)))
    return AdmissionStatus(
        limit=ledger.policy.limit,
        held=ledger.held,
        line=scheduler.line,
        alerts=ledger.alerts,
        models=tuple(_model(scheduler, model, now) for model in sorted(names)),
    )


def _model(scheduler: Scheduler, model: str, now: float) -> ModelStatus:
    queue, holding = scheduler.queues.get(model), scheduler.ledger.get(model)
    oldest = None if queue is None else queue.oldest()
    demand = None if holding is None else holding.demand
    free, largest = scheduler.ledger.free, None
    if holding is not None and demand is not None and free is not None:
        largest = scheduler.ledger.fitting(demand, max(free + holding.booked, 0))
    return ModelStatus(
        model=model,
        slots=queue.slots if queue else 1,
        running=queue.running if queue else 0,
        waiting=queue.waiting if queue else 0,
        oldest_wait=0.0 if oldest is None else now - oldest,
        waits_for_memory=model in scheduler.line,
        retry_after=scheduler.retry_after(model, now),
        stage="not loaded" if holding is None else holding.stage.value,
        num_ctx=holding.num_ctx if holding else 0,
        booked=holding.booked if holding else 0,
        reported=holding.reported.size if holding and holding.reported else 0,
        parts=demand.at(holding.num_ctx or demand.num_ctx).parts() if holding and demand else {},
        expires_in=holding.expires_at - now if holding and holding.expires_at is not None else None,
        largest_num_ctx=largest,
    )
