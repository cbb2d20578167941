"""Admission as the status page and the metrics see it: frozen values, cheap to make, with JSON's names for fields."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ollama_gate.admission.alerts import Alert, MemoryUnknown
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.holdings import Holding
from ollama_gate.admission.ledger import Ledger
from ollama_gate.admission.scheduler import Scheduler
from ollama_gate.values import frozen

Names = Callable[[str], str]
"""From the key that a model is booked under to what people call it."""


@frozen
class SlotsStatus:
    """Who runs and who waits on one model."""

    total: int
    running: int = 0
    waiting: int = 0
    oldest_wait_seconds: float | None = None
    """None when nobody waits."""
    retry_after: int = 1
    """Seconds that a refusal would advise now."""


@frozen
class MemoryStatus:
    """One model's memory, in bytes."""

    stage: str
    """not loaded, loading, resident or leaving."""
    num_ctx: int
    """The window that it is loaded with, or would be."""
    predicted: int
    """What the arithmetic says that it takes at this window; the limit counts this."""
    booked: int = 0
    """0 when it is not loaded."""
    reported: int | None = None
    """`size` of /api/ps; None when that has not named it."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """What the prediction is made of. Parts that the limit does not count are listed too."""
    fits: str = "yes"
    """Whether it can be loaded: yes, `after others have gone`, or never."""
    largest_num_ctx: int | None = None
    """The largest window that would fit beside what else is loaded; told of models that are loaded or wait."""
    waiting_seconds: float | None = None
    """How long its next load has waited for memory; None when it does not."""
    expires_in_seconds: float | None = None
    notes: tuple[str, ...] = ()
    """What had to be assumed."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A model whose load waits for memory."""

    model: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Held:
    """A model that holds memory."""

    model: str
    stage: str
    booked: int


@dataclass(frozen=True, slots=True)
class MemoryOverview:
    """The ledger in one glance; bytes."""

    limit: int | None
    held: int
    free: int | None
    counts_host: bool
    """Whether the limit is one for host memory too."""
    models: tuple[Held, ...]
    line: tuple[Waiting, ...]
    """Who waits for memory, the next one first."""
    alerts: tuple[Mapping[str, Any], ...]


def overview(scheduler: Scheduler, names: Names, now: float) -> MemoryOverview:
    """Who holds memory and who waits for it."""
    ledger = scheduler.ledger
    return MemoryOverview(
        limit=ledger.policy.limit,
        held=ledger.held,
        free=ledger.free,
        counts_host=ledger.policy.counts_host,
        models=tuple(Held(names(one.model), one.stage.value, one.booked) for one in ledger),
        line=tuple(
            Waiting(names(model), round(now - since, 3))
            for model in scheduler.line
            if (since := scheduler.waits_since(model)) is not None
        ),
        alerts=tuple(alert_facts(alert, names, now) for alert in ledger.alerts),
    )


def alert_facts(alert: Alert, names: Names, now: float) -> dict[str, Any]:
    """An alert as a flat record; a moment on the gate's clock is told as the seconds since then."""
    facts: dict[str, Any] = {"kind": type(alert).__name__}
    facts |= {name: getattr(alert, name) for name in alert.__dataclass_fields__}
    if alert.model:
        facts["model"] = names(alert.model)
    else:
        del facts["model"]
    if isinstance(alert, MemoryUnknown):
        facts["seconds"] = round(now - facts.pop("since"), 1)
    return facts


def slots_status(scheduler: Scheduler, model: str, slots: int, now: float) -> SlotsStatus:
    """The slots of one model; `slots` is how many it has when nobody has asked for it yet."""
    queue = scheduler.queues.get(model)
    if queue is None:
        return SlotsStatus(slots)
    oldest = queue.oldest()
    return SlotsStatus(
        total=queue.slots,
        running=queue.running,
        waiting=queue.waiting,
        oldest_wait_seconds=None if oldest is None else round(now - oldest, 3),
        retry_after=scheduler.retry_after(model, now),
    )


def memory_status(scheduler: Scheduler, model: str, demand: Demand, now: float, free: int | None) -> MemoryStatus:
    """The memory of one model that is, or would be, loaded with this demand.

    Args:
        scheduler: Everybody's slots and memory.
        model: Key of the runner.
        demand: What it takes.
        now: Seconds.
        free: `Ledger.free`, which is worked out once for all models.
    """
    ledger, since = scheduler.ledger, scheduler.waits_since(model)
    holding = ledger.get(model)
    num_ctx = demand.num_ctx if holding is None else holding.num_ctx or demand.num_ctx
    footprint = demand.at(num_ctx)
    predicted = ledger.cost(footprint)
    needed = predicted if footprint is demand.footprint else ledger.cost(demand.footprint)
    room = _room(free, holding)
    expires = None if holding is None else holding.expires_at
    return MemoryStatus(
        stage="not loaded" if holding is None else holding.stage.value,
        num_ctx=num_ctx,
        predicted=predicted,
        booked=0 if holding is None else holding.booked,
        reported=None if holding is None or holding.reported is None else holding.reported.size,
        parts=footprint.parts(),
        fits=_fits(ledger.policy.limit, room, needed),
        largest_num_ctx=None
        if room is None or (holding is None and since is None)
        else ledger.fitting(demand, max(room, 0)),
        waiting_seconds=None if since is None else round(now - since, 3),
        expires_in_seconds=None if expires is None else round(expires - now, 1),
        notes=footprint.notes,
    )


def _room(free: int | None, holding: Holding | None) -> int | None:
    """Bytes that a model could take beside what else is loaded; None without a limit."""
    return free if free is None or holding is None else free + holding.booked


def _fits(limit: int | None, room: int | None, needed: int) -> str:
    if limit is not None and needed > limit:
        return "never"
    return "yes" if room is None or needed <= room else "after others have gone"


def largest_windows(scheduler: Scheduler) -> dict[str, int]:
    """The largest num_ctx that would fit now, of each model that is loaded or was asked for; empty without a limit."""
    ledger, free = scheduler.ledger, scheduler.ledger.free
    demands = {model: queue.demand for model, queue in scheduler.queues.items()}
    demands |= {holding.model: demand for holding in ledger if (demand := _explained_by(holding)) is not None}
    return {
        model: ledger.fitting(demand, max(room, 0))
        for model, demand in demands.items()
        if demand is not None and (room := _room(free, ledger.get(model))) is not None
    }


def booked_by_part(ledger: Ledger, holding: Holding) -> dict[str, int]:
    """What a booking is made of, in bytes: the parts that the limit counts, and `found`, which nothing explains.

    That is what /api/ps showed beyond the arithmetic, or all of a model without metadata that others have loaded.
    """
    demand = _explained_by(holding)
    parts = {}
    if demand is not None:
        footprint = demand.at(holding.num_ctx or demand.num_ctx)
        parts = footprint.parts(with_host=ledger.policy.counts_host)
    if (found := holding.booked - sum(parts.values())) > 0:
        parts["found"] = found
    return parts


def _explained_by(holding: Holding) -> Demand | None:
    if holding.demand is None and holding.reported is not None:
        return holding.reported.demand
    return holding.demand
