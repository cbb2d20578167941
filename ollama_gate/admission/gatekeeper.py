"""Admission on the event loop: a lease for each request, and the timers and calls that the pure scheduler asks for."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ollama_gate.admission.alerts import Alert
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.hold import Hold
from ollama_gate.admission.holdings import MemoryPolicy, Outcome
from ollama_gate.admission.queue import Place, QueuePolicy, Ticket
from ollama_gate.admission.refusals import away, memory_unknown
from ollama_gate.admission.residents import Reported
from ollama_gate.admission.scheduler import Scheduler
from ollama_gate.errors import Refusal, Refused, UpstreamError, UpstreamUnreachable
from ollama_gate.requests import Control
from ollama_gate.tasks import spawn

# An enum's members are slow to get (Python 3.11).
_ANSWERED, _LEFT = Outcome.ANSWERED, Outcome.LEFT
_RUNNING, _PASSING = Place.RUNNING, Place.PASSING

PATIENCE = 10.0
"""Seconds without a word of Ollama after which nobody waits for its memory any longer; a restart takes one or two."""


class Lease(Ticket, Hold):
    """A request's hold on a slot and on memory: its ticket, and who takes it.

    Raises:
        Refused: on entering, with status 503.
    """

    __slots__ = ("gatekeeper", "outcome", "waited")

    gatekeeper: "Gatekeeper"
    outcome: Outcome
    """How it ended, as far as memory is concerned; told when it is left."""

    def enter(self) -> Awaitable[None] | None:
        """Ask for the turn."""
        turn = self.gatekeeper.admit(self)
        return None if turn is None else self._wait(turn)

    async def _wait(self, turn: Awaitable[None]) -> None:
        try:
            await turn
        finally:  # who is refused, or leaves, has waited too
            self.waited = self.gatekeeper.seconds_since(self.arrived)

    def leave(self) -> None:
        """Free everything."""
        self.gatekeeper.release(self, self.outcome)

    def answered(self) -> None:
        """Ollama has begun to answer, be it with a client error: the model is loaded."""
        if self.outcome is not _ANSWERED:
            self.outcome = _ANSWERED
            self.gatekeeper.answered(self)

    def failed(self) -> None:
        """Ollama said that it could not load or run the model."""
        self.outcome = Outcome.FAILED

    def unsent(self) -> None:
        """The request never reached Ollama."""
        self.outcome = Outcome.UNSENT


class Gatekeeper:
    """The one place that lets requests through to Ollama's models."""

    def __init__(
        self,
        queue: QueuePolicy,
        memory: MemoryPolicy,
        *,
        residents: Callable[[], Awaitable[Sequence[Reported]]],
        unload: Callable[[str], Awaitable[object]],
        on_alert: Callable[[Alert], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with empty queues; nothing is asked yet.

        Args:
            queue: How many may wait, how long.
            memory: The limit and how it is kept.
            residents: Asks `/api/ps`; raises UpstreamError when it cannot.
            unload: Tells Ollama to unload a model (`keep_alive:0`), given its key; raises UpstreamError likewise.
            on_alert: Told of what the guard newly found.
            clock: Seconds, never going back.
        """
        self.scheduler = Scheduler(queue, memory, self)
        self._residents = residents
        self._unload = unload
        self._on_alert = on_alert
        self._clock = clock
        self._turns: dict[Ticket, asyncio.Future[Refusal | None]] = {}
        self._refused_at_once: Refusal | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looking = False
        self._unanswered_since: float | None = None
        self._look_again = False

    def configure(self, queue: QueuePolicy, memory: MemoryPolicy, num_parallel: int) -> None:
        """Take new policies; who waits or runs stays where it is, and by the new deadline.

        Args:
            queue: How many may wait, how long.
            memory: The limit and how it is kept.
            num_parallel: How many of a model's requests Ollama runs at once, where it does not force them into a row.
        """
        now = self._clock()
        self.scheduler.configure(queue, memory, now)
        for model, line in self.scheduler.queues.items():
            if line.demand is not None and line.demand.shape is not None and not line.demand.shape.single_slot:
                self.scheduler.resize(model, num_parallel, now)
        self._set_timer(now)

    def lease(
        self,
        model: str,
        client: str,
        demand: Demand,
        *,
        priority: int = 0,
        control: Control = Control.NONE,
        name: str = "",
    ) -> Lease:
        """A lease to be entered with `async with`.

        Args:
            model: Key of the runner: names that share a file share it.
            client: Whom to be fair to: an API key, else an address.
            demand: What the model takes.
            priority: Higher goes first.
            control: A preload takes no slot if the model is loaded; an unload never waits.
            name: What a refusal calls the model; its key may be a file's path.
        """
        lease = Lease(model, client, demand, control, priority, name)
        lease.gatekeeper, lease.outcome, lease.waited = self, _LEFT, 0.0
        return lease

    def admit(self, ticket: Ticket) -> Awaitable[None] | None:
        """Let a ticket in: None when it may run at once, else what is to be waited for.

        Raises:
            Refused: it may not, at once or after waiting.
        """
        now = self._clock()
        self.scheduler.arrive(ticket, now)
        place = ticket.place
        if place is _RUNNING or place is _PASSING:
            return None
        refusal, self._refused_at_once = self._refused_at_once, None
        if refusal is not None:
            raise Refused(refusal)
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        if self._timer is None:
            self._set_timer(now)
        return self._turn(ticket, turn)

    def seconds_since(self, moment: float) -> float:
        """How long ago a moment of the gatekeeper's clock was."""
        return self._clock() - moment

    async def _turn(self, ticket: Ticket, turn: asyncio.Future[Refusal | None]) -> None:
        try:
            refusal = await turn
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        if refusal is not None:
            raise Refused(refusal)

    def _withdraw(self, ticket: Ticket) -> None:
        """The client went while its request waited, perhaps at the very moment of its turn."""
        self._turns.pop(ticket, None)
        if ticket.place is Place.WAITING:
            self.scheduler.leave(ticket, self._clock())
        elif ticket.place is Place.RUNNING:
            self.scheduler.finish(ticket, Outcome.UNSENT, self._clock())

    def answered(self, ticket: Ticket) -> None:
        """Ollama has begun to answer."""
        self.scheduler.loaded(ticket, self._clock())

    def release(self, ticket: Ticket, outcome: Outcome) -> None:
        """The request is over."""
        self.scheduler.finish(ticket, outcome, self._clock())

    async def guard(self, every: float) -> None:
        """Compare the ledger with `/api/ps` for ever, every so many seconds."""
        while True:
            self.look()
            await asyncio.sleep(every)

    def close(self) -> None:
        """Stop the timer; who still waits is cancelled by whoever runs it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What the scheduler asks for (`scheduler.Effects`).

    def start(self, ticket: Ticket) -> None:
        """Wake the request, if it slept."""
        if (turn := self._turns.pop(ticket, None)) is not None and not turn.done():
            turn.set_result(None)

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None:
        """Wake the request with its refusal; one that has not slept yet takes it from here."""
        if (turn := self._turns.pop(ticket, None)) is None:
            self._refused_at_once = refusal
        elif not turn.done():
            turn.set_result(refusal)

    def evict(self, model: str) -> None:
        """Tell Ollama in the background."""
        _ = spawn(self._evict(model), name=f"unload {model}")

    def look(self) -> None:
        """Ask `/api/ps` in the background; one question at a time."""
        self._look_again = True
        if not self._looking:
            self._looking = True
            _ = spawn(self._look(), name="look at /api/ps")

    def alert(self, alert: Alert) -> None:
        """Hand it on."""
        self._on_alert(alert)

    async def _evict(self, model: str) -> None:
        told = False
        try:
            await self._unload(model)
            told = True
        except UpstreamError:
            pass  # the model stays, which is what `told` says
        finally:
            now = self._clock()
            if told:
                self.scheduler.evicted(model, now)
            else:
                self.scheduler.stays(model, now)

    async def _look(self) -> None:
        try:
            while self._look_again:
                self._look_again = False
                asked_at = self._clock()
                try:
                    reported = await self._residents()
                except UpstreamError as failure:
                    self._unanswered(failure, self._clock())
                    return  # the next tick or the guard asks again
                self._unanswered_since = None
                self.scheduler.reconcile(reported, asked_at, self._clock())
        finally:
            self._looking = False
            self._set_timer(self._clock())  # whoever waits for memory wants the next look soon

    def _unanswered(self, failure: UpstreamError, now: float) -> None:
        """Nobody waits long for memory of which Ollama does not say who has it; one that starts again is waited for."""
        if self._unanswered_since is None:
            self._unanswered_since = now
        if now - self._unanswered_since < PATIENCE:
            return
        self.scheduler.unheard(self._unanswered_since, str(failure))
        # With Ollama gone nobody's turn will come; else only theirs will not whose model needs room in memory.
        gone, line = isinstance(failure, UpstreamUnreachable), set(self.scheduler.line)
        for ticket in list(self._turns):
            if ticket.place is not Place.WAITING or not (gone or ticket.model in line):
                continue
            if (turn := self._turns.pop(ticket, None)) is not None:
                self.scheduler.leave(ticket, now)
                if not turn.done():
                    turn.set_result(away() if gone else memory_unknown(failure))

    def _set_timer(self, now: float) -> None:
        due = self.scheduler.next_due(now)
        if due is None:
            self.close()
            return
        loop = asyncio.get_running_loop()
        delay = max(due - now, 0.0)
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock()
        self.scheduler.tick(now)
        self._set_timer(now)
