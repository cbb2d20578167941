"""Who holds how much memory: residents as `/api/ps` reports them, and loads under way.

A pure state machine: no clock, no I/O. Memory is booked before a load begins and freed only when it is certain that
the model has gone, so whatever happens in between, the bookings never pass the limit by the gate's own doing. The
booking of a resident is the larger of the arithmetic and of what was reported, because `/api/ps` loses one of two
caches and the arithmetic knows no driver.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ollama_gate.admission.alerts import (
    Alert,
    BiggerThanBooked,
    LoadedElsewhere,
    MemoryUnknown,
    OverLimit,
    Spilled,
    StillThere,
    WindowDiffers,
    settings_alert,
)
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.holdings import (
    LOAD_GRANT,
    RESIDENT_GRANT,
    Decision,
    DoesNotFit,
    Holding,
    MemoryPolicy,
    OnFull,
    Outcome,
    Stage,
    Wait,
)
from ollama_gate.admission.memory import Footprint
from ollama_gate.admission.residents import Reported

# An enum's members are slow to get (Python 3.11).
_LOADING, _LEAVING, _ANSWERED = Stage.LOADING, Stage.LEAVING, Outcome.ANSWERED


@dataclass(slots=True)
class Ledger:
    """All bookings. Methods that change it are called in the order in which things happen."""

    policy: MemoryPolicy
    _holdings: dict[str, Holding] = field(default_factory=dict)
    _alerts: dict[tuple[type, str], Alert] = field(default_factory=dict)
    _unheard: MemoryUnknown | None = None
    _reconciled: bool = False
    blind: bool = False
    """Nothing is known of what is loaded, and nothing granted: a gate has just started. The first `/api/ps` ends it."""

    @property
    def held(self) -> int:
        """Bytes booked."""
        return sum(holding.booked for holding in self._holdings.values())

    @property
    def free(self) -> int | None:
        """Bytes left under the limit; None without a limit, negative when others loaded past it."""
        return None if self.policy.limit is None else self.policy.limit - self.held

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """What the last reconciliation found and what still holds; while Ollama is not heard, only that."""
        return tuple(self._alerts.values()) if self._unheard is None else (self._unheard,)

    def __iter__(self) -> Iterator[Holding]:
        """All holdings; they are not to be changed."""
        return iter(self._holdings.values())

    def get(self, model: str) -> Holding | None:
        """One model's holding; it is not to be changed."""
        return self._holdings.get(model)

    def cost(self, footprint: Footprint) -> int:
        """Bytes of a footprint that the limit counts."""
        return footprint.total if self.policy.counts_host else footprint.loaded

    def needs_memory(self, model: str, demand: Demand) -> bool:
        """Whether the model would have to be loaded, or loaded anew, for this demand."""
        holding = self._holdings.get(model)
        return holding is None or not _serves(holding, demand)

    def impossible(self, demand: Demand) -> bool:
        """Whether the demand passes the limit with nothing else loaded."""
        return self.policy.limit is not None and self.cost(demand.footprint) > self.policy.limit

    def request(self, model: str, demand: Demand, now: float, patience: float = math.inf) -> Decision:
        """Ask for a place in memory; when it is granted, it is booked and `finish` must follow.

        Args:
            model: Key of the runner.
            demand: What it takes.
            now: Seconds.
            patience: Seconds the request is willing to wait.
        """
        holding = self._holdings.get(model)
        if holding is not None and holding.draining:
            return Wait()
        if holding is not None and _serves(holding, demand):
            holding.users += 1
            holding.last_used = now
            if holding.demand is not demand:
                holding.demand = demand
                holding.booked = max(holding.booked, self.cost(demand.at(holding.num_ctx or demand.num_ctx)))
            return LOAD_GRANT if holding.stage is _LOADING else RESIDENT_GRANT
        cost, own = self.cost(demand.footprint), 0 if holding is None else holding.booked
        limit = self.policy.limit
        if (self.blind or self._unheard is not None) and limit is not None and cost <= limit:
            return Wait()  # others may have loaded anything meanwhile
        if limit is None or cost <= limit - (self.held - own):
            self._book(model, holding, demand, cost, now)
            return LOAD_GRANT
        if cost > limit:
            return self._does_not_fit(demand, limit, own)
        return self._make_room(model, demand, cost, own, now, patience)

    def _book(self, model: str, holding: Holding | None, demand: Demand, cost: int, now: float) -> None:
        if holding is None:
            holding = self._holdings[model] = Holding(model, Stage.LOADING, cost, demand.num_ctx)
        holding.stage, holding.since = Stage.LOADING, now
        # The old load goes only when its last request has ended.
        holding.booked = max(holding.booked, cost)
        holding.num_ctx = demand.num_ctx
        holding.demand = demand
        holding.reported = None
        holding.abandoned_at = None
        holding.look_due = True
        holding.users += 1
        holding.last_used = now

    def _make_room(self, model: str, demand: Demand, cost: int, own: int, now: float, patience: float) -> Decision:
        limit = self.policy.limit or 0
        others = [holding for holding in self._holdings.values() if holding.model != model]
        leaving = sum(holding.booked for holding in others if holding.stage is Stage.LEAVING)
        free = limit - sum(holding.booked for holding in others)
        # Told to go before `/api/ps` has said what a request left of it, a model would count for `load_grace` more.
        idle = sorted((h for h in others if h.idle and h.abandoned_at is None), key=lambda holding: holding.last_used)
        if self.policy.on_full is OnFull.EVICT:
            return Wait(self._evict(idle, cost - free - leaving, now))
        if self.policy.on_full is OnFull.WAIT:
            until = now + patience
            stays = sum(h.booked for h in idle if h.expiry_sure and h.expires_at is not None and h.expires_at > until)
            waits = limit - stays >= cost
        else:
            waits = free + leaving >= cost
        if waits:
            return Wait()
        return self._does_not_fit(demand, limit, own, _expired_by(idle, cost - free - leaving))

    def _evict(self, idle: Sequence[Holding], lacking: int, now: float) -> tuple[str, ...]:
        """Mark the least recently used idle models as leaving, as many as needed; none when all would not do."""
        if lacking <= 0 or sum(holding.booked for holding in idle) < lacking:
            return ()
        chosen: list[Holding] = []
        for holding in idle:
            if lacking <= 0:
                break
            chosen.append(holding)
            lacking -= holding.booked
        for holding in reversed(chosen[:-1]):  # a large one at the end may have made smaller ones needless
            if lacking + holding.booked <= 0:
                chosen.remove(holding)
                lacking += holding.booked
        for holding in chosen:
            holding.stage, holding.since = Stage.LEAVING, now
        return tuple(holding.model for holding in chosen)

    def _does_not_fit(self, demand: Demand, limit: int, own: int, retry_at: float | None = None) -> DoesNotFit:
        free = max(limit - self.held + own, 0)
        alone = self.alone(demand, limit)
        return replace(alone, free=free, largest_now=self.fitting(demand, free), retry_at=retry_at)

    def alone(self, demand: Demand, limit: int) -> DoesNotFit:
        """What there is to say of a demand that passes the limit with nothing else loaded."""
        largest = self.fitting(demand, limit)
        host_cache = demand.footprint.host_cache_bound if self.policy.counts_host else 0
        return DoesNotFit(self.cost(demand.footprint), limit, limit, largest, largest, host_cache=host_cache)

    def fitting(self, demand: Demand, within: int) -> int:
        """The largest num_ctx with which the model would take at most so many bytes; 0 when none."""
        return demand.fitting(within, with_host=self.policy.counts_host)

    def drain(self, model: str, demand: Demand) -> None:
        """Stop busy models from taking new requests, the least recently used first, until their going would do."""
        if self.policy.limit is None or self.policy.on_full is not OnFull.EVICT:
            return
        others = sorted(
            (holding for holding in self._holdings.values() if holding.model != model), key=lambda h: h.last_used
        )
        lacking = self.cost(demand.footprint) - (self.policy.limit - sum(holding.booked for holding in others))
        for holding in sorted(others, key=lambda h: h.users > 0):  # those that go anyway count first
            if lacking <= 0:
                return
            lacking -= holding.booked
            holding.draining = holding.stage is not Stage.LEAVING

    def undrain(self) -> tuple[str, ...]:
        """Let every draining model take requests again; says which they were."""
        drained = tuple(holding.model for holding in self._holdings.values() if holding.draining)
        for model in drained:
            self._holdings[model].draining = False
        return drained

    def loaded(self, model: str, demand: Demand, now: float) -> None:
        """Ollama has answered a request that was granted with this demand: its load is over."""
        holding = self._holdings[model]
        holding.seen = now
        holding.abandoned_at = None
        if holding.stage is _LOADING and holding.num_ctx == demand.num_ctx:
            holding.stage, holding.since = Stage.RESIDENT, now
            holding.booked = self.cost(demand.footprint)

    def finish(self, model: str, demand: Demand, outcome: Outcome, now: float) -> bool:
        """A request that was granted with this demand has ended; says whether `/api/ps` has news of its model now.

        It has when nobody knows what Ollama made of a load, and once behind every load that an answer came of: not
        when the answer begins, because Ollama works out when the model expires at the end of each request.
        """
        holding = self._holdings[model]
        if outcome is _ANSWERED:
            self.loaded(model, demand, now)
        holding.users -= 1
        holding.last_used = now
        news = outcome is not _ANSWERED
        if holding.look_due and not news and holding.stage is not _LOADING:
            holding.look_due, news = False, True
        holding.tried = holding.tried or outcome is Outcome.FAILED
        if holding.users:
            return news
        news = news or holding.untold
        if holding.stage is _LOADING and holding.seen == -math.inf and outcome in {Outcome.FAILED, Outcome.UNSENT}:
            if not holding.tried:
                del self._holdings[model]  # it never was there, and now it never will be
            holding.since = now  # the load is over: loaded or not, what is listed from now on is the truth
        elif outcome is not _ANSWERED or holding.stage is _LOADING:
            holding.abandoned_at = now
        return news

    def leave(self, model: str, now: float) -> None:
        """Somebody asked Ollama to unload the model."""
        if (holding := self._holdings.get(model)) is not None and holding.idle:
            holding.stage, holding.since = Stage.LEAVING, now

    def left(self, model: str, now: float) -> None:
        """Ollama has taken an order to unload; only a later `/api/ps` can show that the model is gone."""
        if (holding := self._holdings.get(model)) is not None and holding.stage is Stage.LEAVING:
            holding.since = now

    def stays(self, model: str, now: float) -> None:
        """It could not be unloaded after all; others are tried before it the next time."""
        if (holding := self._holdings.get(model)) is not None and holding.stage is Stage.LEAVING:
            holding.stage, holding.since, holding.last_used = Stage.RESIDENT, now, now

    def reconcile(self, reported: Sequence[Reported], asked_at: float, now: float) -> tuple[Alert, ...]:
        """Follow `/api/ps`; returns the alerts that were not there before.

        Args:
            reported: Its answer.
            asked_at: When it was asked; what happened later it cannot know.
            now: Seconds.
        """
        found = {entry.model: entry for entry in reported}
        alerts: list[Alert] = []
        gpu = any(entry.size_vram for entry in reported)
        for model in [model for model, holding in self._holdings.items() if model not in found]:
            if self._has_gone(self._holdings[model], asked_at):
                del self._holdings[model]
        for entry in found.values():
            holding = self._holdings.get(entry.model)
            if holding is None:
                if self._reconciled:
                    alerts.append(LoadedElsewhere(entry.model, entry.size))
                holding = Holding(entry.model, Stage.RESIDENT, entry.size, entry.num_ctx, last_used=asked_at)
                holding.told_expiry, holding.told_of_use, holding.told_late = entry.expires_at, asked_at, True
                self._holdings[entry.model] = holding
            elif holding.demand is None and (LoadedElsewhere, entry.model) in self._alerts:
                alerts.append(LoadedElsewhere(entry.model, entry.size))
            alerts += self._follow(holding, entry, asked_at, now, gpu=gpu)
        if self.policy.limit is not None and (held := self.held) > self.policy.limit:
            alerts.append(OverLimit(self.policy.limit, held))
        before, self._alerts = self._alerts, {(type(alert), alert.model): alert for alert in alerts}
        self._reconciled, self.blind, self._unheard = True, False, None
        return tuple(alert for key, alert in self._alerts.items() if key not in before)

    def look_again(self, reported: Sequence[Reported]) -> bool:
        """Whether a use that has ended since kept this answer of `/api/ps` from telling when a model expires."""
        listed = ((self._holdings.get(entry.model), entry) for entry in reported)
        return any(h is not None and h.reported is entry and h.idle and h.untold for h, entry in listed)

    def unheard(self, since: float, why: str) -> tuple[Alert, ...]:
        """There is no answer of `/api/ps` to follow; returns the alert if that is new. The next answer ends it.

        Args:
            since: When that began, in seconds.
            why: What came instead.
        """
        new = self._unheard is None
        self._unheard = MemoryUnknown(since, why)
        return (self._unheard,) if new else ()

    def _cost_of(self, entry: Reported, expected: Footprint) -> int:
        """What counts of a listed model: what was expected, and what it turned out to take more."""
        cost = self.cost(expected)
        return max(cost, entry.size + expected.unreported + cost - expected.loaded)

    def _has_gone(self, holding: Holding, asked_at: float) -> bool:
        """Whether a model that is not listed is certainly not in memory."""
        if holding.users:
            return False
        if holding.abandoned_at is not None:
            return asked_at >= holding.abandoned_at + self.policy.load_grace
        return asked_at > max(holding.since, holding.seen)

    def _follow(self, holding: Holding, entry: Reported, asked_at: float, now: float, *, gpu: bool) -> Iterator[Alert]:
        """Take one listed model's truth into its holding."""
        if asked_at <= holding.since:
            return  # the ledger knows better
        if holding.stage is Stage.LOADING and holding.users and entry.num_ctx not in {holding.num_ctx, 0}:
            return  # the load that ours is about to replace
        if holding.stage is Stage.LEAVING:
            if asked_at < holding.since + self.policy.leave_grace:
                return
            yield StillThere(holding.model)
            holding.last_used = now
        if holding.stage is not Stage.RESIDENT:
            holding.stage, holding.since = Stage.RESIDENT, asked_at
        holding.seen = max(holding.seen, asked_at)
        if holding.abandoned_at is not None and asked_at > holding.abandoned_at:
            holding.abandoned_at = None
        holding.reported = entry
        holding.tell_expiry(entry.expires_at, asked_at)
        holding.num_ctx = entry.num_ctx
        if gpu and entry.size_vram < entry.size:
            yield Spilled(entry.model, entry.size, entry.size_vram)
        if holding.demand is None:
            # Loaded by others, or before a restart: what it may still grow by is not in what is reported.
            holding.booked = entry.size if entry.demand is None else self._cost_of(entry, entry.demand.footprint)
            return
        expected = holding.demand.at(entry.num_ctx or holding.demand.num_ctx)
        if entry.num_ctx not in {holding.demand.num_ctx, 0}:
            yield WindowDiffers(entry.model, holding.demand.num_ctx, entry.num_ctx)
        size = entry.size + expected.unreported
        # Without metadata another window's cost is unknown, and then a booking does not shrink.
        least = 0 if holding.demand.shape or expected.launch.num_ctx == entry.num_ctx else holding.booked
        holding.booked = max(self._cost_of(entry, expected), least)
        if size > expected.loaded:
            yield BiggerThanBooked(entry.model, expected.loaded, size)
        if (differs := settings_alert(holding.demand, entry)) is not None:
            yield differs


def _expired_by(idle: Sequence[Holding], lacking: int) -> float | None:
    """When so many bytes will have become free by themselves; None when they will not, or nobody knows when."""
    timed = [(holding.expires_at, holding.booked) for holding in idle if holding.expires_at is not None]
    for at, booked in sorted(timed):
        lacking -= booked
        if lacking <= 0:
            return at
    return None


def _serves(holding: Holding, demand: Demand) -> bool:
    """Whether a model that is in memory, or on its way there, needs not be loaded anew for this demand."""
    return holding.stage is not _LEAVING and (holding.num_ctx == demand.num_ctx or not holding.num_ctx)
