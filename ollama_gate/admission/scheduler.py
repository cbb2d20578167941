"""Who runs next, everywhere: the queues of all models over the one ledger.

A pure state machine. It is told what happens (a request arrives, ends, is cancelled; time passes; `/api/ps` answered)
and says what to do through `Effects`. All calls come from one thread, so there are no locks.

Memory is handed out in order of asking: models whose next request needs a load stand in one line, and a later load
never overtakes an earlier one. Requests for what is loaded do not stand in it. A load that has waited `drain_after`
seconds for busy models makes them stop taking requests, so that even under steady traffic its turn comes.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Protocol

from ollama_gate.admission import refusals
from ollama_gate.admission.alerts import Alert
from ollama_gate.admission.holdings import Decision, DoesNotFit, Granted, MemoryPolicy, Outcome, Wait
from ollama_gate.admission.ledger import Ledger
from ollama_gate.admission.queue import LONGEST_RETRY, Place, QueuePolicy, SlotQueue, Ticket
from ollama_gate.admission.residents import Reported
from ollama_gate.errors import Refusal
from ollama_gate.requests import Control

# An enum's members are slow to get (Python 3.11).
_ANSWERED, _RUNNING, _GONE = Outcome.ANSWERED, Place.RUNNING, Place.GONE
_LOAD, _UNLOAD = Control.LOAD, Control.UNLOAD

_MEMORY_POLL = 0.25
"""Seconds between two looks at `/api/ps` while somebody waits for memory."""
_REFUSED_LOOK = 1.0
"""Least seconds between two looks for the sake of those who were refused."""

_SHORTEST_LOAD = 5
"""Seconds that nobody is told to come back in less while a model has yet to be loaded."""


class Effects(Protocol):
    """What the scheduler has done by others. None of these may call the scheduler back before it returns."""

    def start(self, ticket: Ticket) -> None:
        """The request may go to Ollama now."""
        ...

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None:
        """The request will not be served."""
        ...

    def evict(self, model: str) -> None:
        """Have Ollama unload an idle model; `evicted` or `stays` must follow."""
        ...

    def look(self) -> None:
        """There may be news of who is in memory, or somebody waits for it: ask `/api/ps` soon."""
        ...

    def alert(self, alert: Alert) -> None:
        """The guard found something new."""
        ...


class Scheduler:
    """Admission as a whole. `now` is seconds on any clock that never goes back."""

    def __init__(self, queue: QueuePolicy, memory: MemoryPolicy, effects: Effects) -> None:
        self.ledger = Ledger(memory)
        self._policy = queue
        self._effects = effects
        self._queues: dict[str, SlotQueue] = {}
        self._line: OrderedDict[str, float] = OrderedDict()
        """Models whose next request waits for memory, and since when."""
        self._drained_for: str | None = None
        """The model in the line for which others take no new requests."""
        self._looked_for_refused = -math.inf

    @property
    def queues(self) -> dict[str, SlotQueue]:
        """The queue of every model that was asked for and not forgotten since; not to be changed."""
        return self._queues

    @property
    def line(self) -> tuple[str, ...]:
        """Models that wait for memory, the next one first."""
        return tuple(self._line)

    def waits_since(self, model: str) -> float | None:
        """Since when a model's next load has waited for memory; None when it does not."""
        return self._line.get(model)

    def configure(self, queue: QueuePolicy, memory: MemoryPolicy, now: float) -> None:
        """Take new policies; who waits or runs stays where it is."""
        self._policy = queue
        self.ledger.policy = memory
        for line in self._queues.values():
            line.policy = queue
        self._pump_line(now)

    def resize(self, model: str, slots: int, now: float) -> None:
        """Ollama runs another number of a model's requests at once; who waits for one of more slots gets it now."""
        self._queues[model].slots = slots
        self._pump(model, now)
        self._pump_line(now)

    def forget(self, listed: Collection[str]) -> set[str]:
        """Let go of models that are neither listed, loaded, run nor waited for; returns those that are left."""
        held = {holding.model for holding in self.ledger}
        for model, queue in list(self._queues.items()):
            if not (queue.running or queue.waiting or model in held or model in listed):
                del self._queues[model]
        return {*listed, *held, *self._queues}

    def arrive(self, ticket: Ticket, now: float) -> None:
        """A request asks for a slot and, if need be, memory; it is started, refused, or waits when this returns."""
        ticket.arrived = now
        demand = ticket.demand
        if ticket.control is _UNLOAD:
            self._pass(ticket, now)
            return
        queue = self._queues.get(ticket.model)
        if queue is None:
            queue = self._queues[ticket.model] = SlotQueue(demand.slots, self._policy)
        if queue.demand is not demand:
            queue.demand, queue.slots = demand, demand.slots
        # A preload runs nothing, so what is loaded already needs no slot for it.
        slotless = ticket.control is _LOAD and not self.ledger.needs_memory(ticket.model, demand)
        if slotless or queue.at_once():
            decision = self._ask(ticket, now)
            if type(decision) is Granted:
                if slotless:
                    self._pass(ticket, now)
                else:
                    queue.start(ticket, now)
                    self._effects.start(ticket)
                return
            if isinstance(decision, DoesNotFit):
                self._turn_away(ticket, decision, now)
                return
        if queue.full(ticket.client):
            ticket.place = Place.GONE
            retry = self.retry_after(ticket.model, now)
            refusal = refusals.queue_full(ticket.called, waiting=queue.waiting, slots=queue.slots, retry_after=retry)
            self._leave_line_if_empty(ticket.model, now)
            self._effects.refuse(ticket, refusal)
            return
        queue.enqueue(ticket)

    def loaded(self, ticket: Ticket, now: float) -> None:
        """Ollama has begun to answer a request that runs: its model is loaded."""
        if ticket.control is not _UNLOAD:
            self.ledger.loaded(ticket.model, ticket.demand, now)

    def finish(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        """A request that was started has ended, one way or another."""
        queue = self._queues.get(ticket.model)
        if queue is not None and ticket.place is _RUNNING:
            queue.finish(ticket, now)
        ticket.place = _GONE
        if ticket.control is _UNLOAD:
            if outcome is _ANSWERED:
                self.ledger.leave(ticket.model, now)
                self._effects.look()
            return
        if self.ledger.finish(ticket.model, ticket.demand, outcome, now):
            self._effects.look()
        if self._line or (queue is not None and not queue.unwanted()):
            self._pump(ticket.model, now)
            self._pump_line(now)

    def leave(self, ticket: Ticket, now: float) -> None:
        """A waiting request is no longer wanted."""
        self._queues[ticket.model].cancel(ticket)
        self._leave_line_if_empty(ticket.model, now)
        self._pump_line(now)

    def tick(self, now: float) -> None:
        """Time has passed: refuse who waited too long, and let a load that waits long have its way."""
        for model, queue in self._queues.items():
            for ticket in queue.overdue(now):
                queue.cancel(ticket)
                refusal = refusals.queue_timeout(
                    ticket.called,
                    waited=now - ticket.arrived,
                    slots=queue.slots,
                    for_memory=model in self._line,
                    retry_after=self.retry_after(model, now),
                )
                self._effects.refuse(ticket, refusal)
            self._leave_line_if_empty(model, now)
        self._pump_line(now)
        if not self._line:
            return
        model, since = next(iter(self._line.items()))
        head = self._queues[model].head()
        if now - since >= self.ledger.policy.drain_after and self._drained_for is None and head:
            self._drained_for = model
            self.ledger.drain(model, head.demand)
            self._pump_line(now)
        self._effects.look()

    def next_due(self, now: float) -> float | None:
        """When `tick` is wanted; None when nobody waits."""
        oldest = [at for queue in self._queues.values() if (at := queue.oldest()) is not None]
        if not oldest:
            return None
        due = min(oldest) + self._policy.deadline
        return min(due, now + _MEMORY_POLL) if self._line else due

    def retry_after(self, model: str, now: float) -> int:
        """Whole seconds that a refusal for a model advises; a load, or waiting for memory, lasts as long as so far."""
        queue = self._queues.get(model)
        seconds = 1 if queue is None else queue.retry_after(now)
        since, holding = self._line.get(model), self.ledger.get(model)
        if since is None and holding is not None and holding.loads:
            since = holding.since
        return seconds if since is None else max(seconds, _SHORTEST_LOAD, min(math.ceil(now - since), LONGEST_RETRY))

    def evicted(self, model: str, now: float) -> None:
        """Ollama has taken the order to unload a model; `/api/ps` will say when it is gone."""
        self.ledger.left(model, now)
        self._effects.look()

    def stays(self, model: str, now: float) -> None:
        """Ollama could not be told to unload a model. What waits for its memory asks again with the next tick."""
        self.ledger.stays(model, now)

    def reconcile(self, reported: Sequence[Reported], asked_at: float, now: float) -> None:
        """Follow an answer of `/api/ps` that was asked for at `asked_at`."""
        for alert in self.ledger.reconcile(reported, asked_at, now):
            self._effects.alert(alert)
        if self.ledger.look_again(reported):
            self._effects.look()
        self._pump_line(now)

    def unheard(self, since: float, why: str) -> None:
        """`/api/ps` was asked since then and gave no answer that can be followed."""
        for alert in self.ledger.unheard(since, why):
            self._effects.alert(alert)

    def _pass(self, ticket: Ticket, now: float) -> None:
        ticket.place, ticket.started = Place.PASSING, now
        self._effects.start(ticket)

    def _ask(self, ticket: Ticket, now: float) -> Decision:
        """Ask the ledger, unless other loads asked before."""
        model, demand = ticket.model, ticket.demand
        decision: Decision
        if (
            self._line
            and next(iter(self._line)) != model
            and self.ledger.needs_memory(model, demand)
            and not self.ledger.impossible(demand)
        ):
            decision = Wait()
        else:
            patience = ticket.arrived + self._policy.deadline - now
            decision = self.ledger.request(model, demand, now, patience)
        if isinstance(decision, Wait):
            if model not in self._line:
                self._line[model] = now
                self._effects.look()
            for idle in decision.evict:
                self._effects.evict(idle)
        return decision

    def _pump(self, model: str, now: float) -> None:
        """Start whoever can start on one model."""
        queue = self._queues[model]
        while queue.free and (head := queue.head()) is not None:
            match self._ask(head, now):
                case Granted():
                    queue.start(head, now)
                    self._effects.start(head)
                    self._leave_line(model, now)
                case DoesNotFit() as why:
                    queue.cancel(head)
                    self._turn_away(head, why, now)
                case Wait():
                    return
        self._leave_line(model, now)  # nobody waits for its memory: the line is empty or its slots are taken

    def _pump_line(self, now: float) -> None:
        """Let the loads that wait for memory try, in their order."""
        while self._line:
            first = next(iter(self._line))
            self._pump(first, now)
            if next(iter(self._line), None) == first:
                return

    def _turn_away(self, ticket: Ticket, why: DoesNotFit, now: float) -> None:
        ticket.place = Place.GONE
        demand = ticket.demand
        if why.ever and now - self._looked_for_refused >= _REFUSED_LOOK:
            self._looked_for_refused = now
            self._effects.look()  # what has expired since the last look is known to the next request
        self._effects.refuse(ticket, refusals.does_not_fit(ticket.called, demand.num_ctx, demand.slots, why, now))

    def _leave_line_if_empty(self, model: str, now: float) -> None:
        if model in self._line and not self._queues[model].waiting:
            self._leave_line(model, now)

    def _leave_line(self, model: str, now: float) -> None:
        """The model asks for no memory any more; whoever was held back for it goes on."""
        self._line.pop(model, None)
        if self._drained_for == model:
            self._drained_for = None
            for drained in self.ledger.undrain():
                if drained in self._queues:
                    self._pump(drained, now)
