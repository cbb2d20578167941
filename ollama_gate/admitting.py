"""Admission put to work: what each request asks of slots and memory, and what the guard finds, in log and metrics."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import add
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from ollama_gate.admission.alerts import SAYS, Alert
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.gatekeeper import Gatekeeper
from ollama_gate.admission.hold import Hold
from ollama_gate.admission.launching import launch_plan, memory_policy
from ollama_gate.admission.queue import QueuePolicy, SlotQueue
from ollama_gate.admission.refusals import queue_timeout
from ollama_gate.admission.residents import Reported, read_ps
from ollama_gate.admission.shapes import UnknownShape, shape_from_show
from ollama_gate.admission.sharing import SharedRunners
from ollama_gate.admission.status import (
    MemoryOverview,
    alert_facts,
    booked_by_part,
    largest_windows,
    memory_status,
    overview,
    slots_status,
)
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.catalog.names import InvalidName
from ollama_gate.config import Config
from ollama_gate.errors import Refusal, UpstreamBroken
from ollama_gate.machine import memory_bytes
from ollama_gate.observe.instruments import Read
from ollama_gate.observe.metrics import Metrics
from ollama_gate.policies import Applied, Dispute
from ollama_gate.requests import Control
from ollama_gate.upstream.client import Upstream

# An enum's members are slow to get (Python 3.11).
_LOAD, _UNLOAD, _REMOTE = Control.LOAD, Control.UNLOAD, Mode.REMOTE

_MOST_DEMANDS: Final = 1024
_Merge = Callable[[float, float], float]

GUARD_EVERY: Final = 15.0
"""Seconds between two looks at /api/ps."""


class Admission:
    """One gate's gatekeeper, with the catalog's names and the configuration's wishes."""

    def __init__(
        self,
        config: Config,
        *,
        upstream: Upstream,
        catalog: Catalog,
        metrics: Metrics,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
    ) -> None:
        """Begin with nothing loaded and nobody waiting."""
        self._config = config
        self._upstream = upstream
        self._catalog = catalog
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._demands: dict[tuple[str, int, int | None, int], Demand] = {}
        self._cards: dict[str, ModelCard] = {}
        """One of the cards of each runner, for its names."""
        self._gpu_seen = False
        self.gatekeeper = Gatekeeper(
            _queue_policy(config),
            memory_policy(config, machine=memory_bytes(), gpus=self.gpus),
            residents=self._residents,
            unload=self._unload,
            on_alert=self._alerted,
            clock=clock,
        )
        self.gatekeeper.scheduler.ledger.blind = True
        self._shared = SharedRunners(
            loader=self._loader,
            running=self._running,
            unload=self._unload,
            deadline=lambda: self._config.queue.deadline,
            late=self._late,
        )
        self._show_metrics()

    def configure(self, config: Config, *, upstream: Upstream, catalog: Catalog) -> None:
        """Take another configuration over; who waits or runs stays where it is."""
        self._config, self._upstream, self._catalog = config, upstream, catalog
        self._configure()

    @property
    def gpus(self) -> int:
        """Over how many GPUs models are spread, as configured or as far as was seen."""
        configured = self._config.memory.gpus
        return int(self._gpu_seen) if configured == "auto" else configured

    def _configure(self) -> None:
        """Work everything out anew that follows from the configuration and from what was seen."""
        self._demands.clear()
        policy = memory_policy(self._config, machine=memory_bytes(), gpus=self.gpus)
        self.gatekeeper.configure(_queue_policy(self._config), policy, self._config.upstream.num_parallel)

    def lease(
        self, card: ModelCard | None, applied: Applied, client: str, control: Control, *, priority: int = 0
    ) -> Hold:
        """A hold on a slot and memory, to be entered with `async with`."""
        if card is None or card.mode is _REMOTE:
            return Hold()  # of nothing: the model is unknown to Ollama, or runs in the cloud
        runner = card.runner
        if self._cards.get(runner) is not card:
            self._cards[runner] = card
            self._shared.met(card)
        demand = self.demand(card, applied)
        lease = self.gatekeeper.lease(runner, client, demand, priority=priority, control=control, name=card.name)
        if control is _UNLOAD or runner not in self._shared.mixed:
            return lease
        return self._shared.hold(card, lease, slots=0 if control is _LOAD else 1)

    def holds(self, card: ModelCard, applied: Applied) -> bool:
        """Whether a model is in memory, or on its way there, as the gate asks for it."""
        return not self.gatekeeper.scheduler.ledger.needs_memory(card.runner, self.demand(card, applied))

    def demand(self, card: ModelCard, applied: Applied) -> Demand:
        """What this model takes when it is loaded as the gate asks for it."""
        num_ctx = applied.window.num_ctx if applied.window is not None else 0
        found = self._demands.get((card.digest, num_ctx, applied.num_batch, applied.draft_tokens))
        return self._demand(card, num_ctx, applied.num_batch, applied.draft_tokens) if found is None else found

    def _demand(self, card: ModelCard, num_ctx: int, num_batch: int | None = None, draft_tokens: int = 0) -> Demand:
        key = (card.digest, num_ctx, num_batch, draft_tokens)
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = self._work_out(card, num_ctx, num_batch, draft_tokens)
        return found

    def _work_out(self, card: ModelCard, num_ctx: int, num_batch: int | None, draft_tokens: int) -> Demand:
        try:
            shape = shape_from_show(card.show, card.size or None)
            plan = launch_plan(self._config, num_ctx, num_batch, draft_tokens, gpus=self.gpus)
            return Demand.of(shape, plan)
        except UnknownShape as odd:
            self._log.warning("memory of this model is a guess", model=card.key, why=str(odd))
            return Demand.guess(card.size, num_ctx)

    def _forget(self) -> None:
        """Let go of models that Ollama no longer lists and nothing here holds: digests come and go for ever."""
        known = self._catalog.known()
        if not known:
            return  # the list is being read anew
        listed, keys = {card.runner: card for card in known}, {card.key for card in known}
        left = self.gatekeeper.scheduler.forget(listed)
        self._cards = {
            runner: card if card.key in keys else listed.get(runner, card)  # by a name that Ollama still has
            for runner, card in self._cards.items()
            if runner in left
        }
        self._shared.forget(left)
        digests = {card.digest for card in (*known, *self._cards.values())}
        self._demands = {key: demand for key, demand in self._demands.items() if key[0] in digests}
        if len(self._demands) > _MOST_DEMANDS:
            self._demands.clear()  # somebody loads past the gate with ever new windows

    async def _residents(self) -> Sequence[Reported]:
        self._forget()
        rows = await self._catalog.residents()
        for row in rows:
            if not isinstance(name := row.get("model"), str) or not name:
                raise UpstreamBroken("Ollama's answer to /api/ps names a model by nothing")
            await self._meet(name)
        now, wall = self._clock(), time.time()
        reported = read_ps({"models": rows}, self._runner, now=now, wall=wall)
        if not self._gpu_seen and any(entry.size_vram for entry in reported):
            self._gpu_seen = True
            if self._config.memory.gpus == "auto":
                self._configure()
                counts_host = self.gatekeeper.scheduler.ledger.policy.counts_host
                self._log.info("ollama uses a GPU", limit_counts_host_memory=counts_host)
        return tuple(map(self._as_found, reported))

    def _as_found(self, entry: Reported) -> Reported:
        """The same with what it takes by its metadata, for models that no request of this gate's has loaded."""
        card = self._cards.get(entry.model)
        if card is None or not entry.num_ctx:
            return entry
        return replace(entry, demand=self._demand(card, entry.num_ctx))

    async def _meet(self, name: object) -> None:
        """Have the card of a resident model at hand: its runner is the key that it is booked under."""
        if isinstance(name, str) and self._catalog.last_known(name) is None:
            try:
                await self._catalog.card(name)
            except (InvalidName, UpstreamBroken):
                return  # one that Ollama cannot describe is booked by its name and by what Ollama says that it takes

    def _runner(self, name: str) -> str:
        """The key under which a model of /api/ps is booked."""
        card = self._catalog.last_known(name)
        if card is None:
            return name
        self._cards[card.runner] = card
        self._shared.met(card)
        return card.runner

    async def _loader(self, runner: str) -> ModelCard | None:
        """The card of the name that a runner was loaded by; None when it is not loaded."""
        for row in await self._catalog.residents():
            name = row.get("model")
            await self._meet(name)
            card = self._catalog.last_known(name) if isinstance(name, str) else None
            if card is not None and card.runner == runner:
                return card
        return None

    def _running(self, runner: str) -> int:
        queue = self.gatekeeper.scheduler.queues.get(runner)
        return 0 if queue is None else queue.running

    def _late(self, card: ModelCard, waited: float) -> Refusal:
        """What is said to whoever waited too long for a runner to be loaded anew for it."""
        scheduler = self.gatekeeper.scheduler
        retry_after = scheduler.retry_after(card.runner, self._clock())
        slots = scheduler.queues[card.runner].slots
        return queue_timeout(card.name, waited=waited, slots=slots, for_memory=True, retry_after=retry_after)

    async def _unload(self, runner: str) -> None:
        body = {"model": self._called(runner), "keep_alive": 0}
        await self._upstream.exchange("POST", "/api/generate", body, within=30.0)

    def _called(self, runner: str) -> str:
        """What people, and Ollama, call the model of a runner."""
        card = self._cards.get(runner)
        return runner if card is None else card.name

    def _alerted(self, alert: Alert) -> None:
        facts = alert_facts(alert, self._called, self._clock())
        self._metrics.alerts.labels(facts["kind"]).inc()
        self._log.warning(SAYS[facts["kind"]], **facts)

    def disputed(self, dispute: Dispute) -> None:
        """Say which names share a runner and yet have different windows declared."""
        self._log.warning(
            "names over one file of weights have different windows declared: all of them get one",
            declared={name: num_ctx for name, num_ctx, _ in dispute.wishes},
            num_ctx=dispute.num_ctx,
            shift=dispute.shift,
        )

    def status(self, card: ModelCard, applied: Applied, free: int | None) -> dict[str, Any]:
        """Slots and memory of one model, for the status page; `free` is what the overview says."""
        scheduler, demand, now = self.gatekeeper.scheduler, self.demand(card, applied), self._clock()
        return {
            "slots": slots_status(scheduler, card.runner, demand.slots, now),
            "memory": memory_status(scheduler, card.runner, demand, now, free),
        }

    def overview(self) -> MemoryOverview:
        """The ledger in one glance, for the status page."""
        return overview(self.gatekeeper.scheduler, self._called, self._clock())

    def _show_metrics(self) -> None:
        """Let the gauges of slots and memory be read when somebody asks for them."""
        scheduler, metrics = self.gatekeeper.scheduler, self._metrics

        def label(runner: str) -> tuple[str]:
            card = self._cards.get(runner)
            return (metrics.model(None if card is None else card.key),)

        def queues(value: Callable[[SlotQueue], float], merge: _Merge = add) -> Read:
            return lambda: _merged(((label(model), value(queue)) for model, queue in scheduler.queues.items()), merge)

        metrics.slots.follow(queues(lambda queue: queue.slots))
        metrics.slots_running.follow(queues(lambda queue: queue.running))
        metrics.slots_waiting.follow(queues(lambda queue: queue.waiting))
        metrics.oldest_wait_seconds.follow(
            queues(lambda queue: 0.0 if (oldest := queue.oldest()) is None else self._clock() - oldest, max)
        )
        ledger = scheduler.ledger
        metrics.memory_booked_bytes.follow(lambda: _merged((label(one.model), one.booked) for one in ledger))
        metrics.memory_booked_part_bytes.follow(
            lambda: _merged(
                ((*label(one.model), part), size)
                for one in ledger
                for part, size in booked_by_part(ledger, one).items()
            )
        )
        metrics.largest_num_ctx.follow(
            lambda: _merged(((label(model), largest) for model, largest in largest_windows(scheduler).items()), min)
        )
        metrics.memory_limit_bytes.follow(lambda: [((), math.inf if (limit := ledger.policy.limit) is None else limit)])


def _merged(
    rows: Iterable[tuple[tuple[str, ...], float]], merge: _Merge = add
) -> Iterable[tuple[tuple[str, ...], float]]:
    """One row for each label: models past the most that are told apart share one."""
    merged: dict[tuple[str, ...], float] = {}
    for labels, value in rows:
        merged[labels] = merge(merged[labels], value) if labels in merged else value
    return merged.items()


def _queue_policy(config: Config) -> QueuePolicy:
    return QueuePolicy(depth=config.queue.depth, deadline=config.queue.deadline)
