"""Whose turn it is: the slots of one model and the line of those who wait for one.

A pure state machine: time is passed in, nothing is awaited, and every operation costs the same however many wait.
Clients take turns, one request each; within a client the order is that of arrival. Among waiting requests the highest
priority goes first, and only there does one client's many requests come before another's one.
"""

import math
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from operator import neg

from ollama_gate.admission.demand import Demand
from ollama_gate.requests import Control

LONGEST_RETRY = 3600
"""Seconds; no estimate is worth more."""
_SHARED = 8
"""One place in so many is kept for clients of whom nobody waits: a busy one cannot fill them all."""
_LEARNING_RATE = 0.2
"""Weight of the newest service time; about the last ten matter."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How many may wait for one model, and how long."""

    depth: int = 64
    deadline: float = 240.0
    """Seconds. Agents hang up at 300 and send everything again, so an answer must come before that."""


class Place(Enum):
    """Where a request stands."""

    OUTSIDE = "outside"
    WAITING = "waiting"
    RUNNING = "running"
    """Holds a slot."""
    PASSING = "passing"
    """Runs without a slot: nothing is computed for it here."""
    GONE = "gone"


_WAITING, _RUNNING, _GONE = Place.WAITING, Place.RUNNING, Place.GONE  # an enum's members are slow to get (Python 3.11)


@dataclass(eq=False, repr=False, slots=True)
class Ticket:
    """One request on its way through admission."""

    model: str
    client: str
    demand: Demand
    """What its model takes when it is loaded."""
    control: Control = Control.NONE
    priority: int = 0
    """Higher goes first."""
    name: str = ""
    """What people call the model; its key, when empty."""
    arrived: float = 0.0
    started: float = 0.0
    place: Place = Place.OUTSIDE

    @property
    def called(self) -> str:
        """The model in words for people."""
        return self.name or self.model

    def __repr__(self) -> str:
        return f"Ticket({self.model} for {self.client}, {self.place.value})"


class SlotQueue:
    """The slots of one model: at most `slots` tickets run, at most `policy.depth` wait."""

    def __init__(self, slots: int, policy: QueuePolicy) -> None:
        self.slots = slots
        """May be changed at any time; running requests are never stopped for it."""
        self.policy = policy
        self.demand: Demand | None = None
        """What its model takes, as the newest request has it."""
        self._running: OrderedDict[Ticket, None] = OrderedDict()
        self._arrivals: OrderedDict[Ticket, None] = OrderedDict()
        self._levels: dict[int, OrderedDict[str, OrderedDict[Ticket, None]]] = {}
        self._priorities: list[int] = []
        """Of those who wait, highest first."""
        self._service = 0.0
        """Seconds a request holds its slot, learned; 0 before the first one ended."""

    def __repr__(self) -> str:
        return f"SlotQueue({self.running}/{self.slots} running, {self.waiting} waiting)"

    @property
    def running(self) -> int:
        """How many hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._arrivals)

    def at_once(self) -> bool:
        """Whether one that comes now may run at once: there is a slot, and nobody waits for one."""
        return len(self._running) < self.slots and not self._arrivals

    def unwanted(self) -> bool:
        """Whether nobody waits. No property, because every request asks."""
        return not self._arrivals

    @property
    def free(self) -> bool:
        """Whether one more may run."""
        return len(self._running) < self.slots

    def full(self, client: str) -> bool:
        """Whether nobody more of this client may wait."""
        waiting, depth = len(self._arrivals), self.policy.depth
        if waiting < depth - depth // _SHARED:
            return False
        return waiting >= depth or any(client in level for level in self._levels.values())

    def enqueue(self, ticket: Ticket) -> None:
        """Let a ticket wait; the caller has looked at `full`."""
        level = self._levels.get(ticket.priority)
        if level is None:
            level = self._levels[ticket.priority] = OrderedDict()
            insort(self._priorities, ticket.priority, key=neg)
        line = level.get(ticket.client)
        if line is None:
            line = level[ticket.client] = OrderedDict()
        line[ticket] = None
        self._arrivals[ticket] = None
        ticket.place = _WAITING

    def head(self) -> Ticket | None:
        """The one whose turn is next."""
        if not self._priorities:
            return None
        level = self._levels[self._priorities[0]]
        return next(iter(next(iter(level.values()))))

    def start(self, ticket: Ticket, now: float) -> None:
        """Give a slot to the head of the line, or to one that never had to wait; the caller has looked at `free`."""
        if ticket.place is _WAITING:
            level = self._levels[ticket.priority]
            level.move_to_end(ticket.client)  # the client's next turn comes after everybody else's
            self._forget(ticket)
        ticket.place = _RUNNING
        ticket.started = now
        self._running[ticket] = None

    def cancel(self, ticket: Ticket) -> None:
        """Take a waiting ticket out of the line."""
        self._forget(ticket)
        ticket.place = Place.GONE

    def finish(self, ticket: Ticket, now: float) -> None:
        """Free the ticket's slot and learn from how long it was held."""
        del self._running[ticket]
        ticket.place = _GONE
        held = max(now - ticket.started, 0.0)
        self._service += (held - self._service) * (_LEARNING_RATE if self._service else 1.0)

    def overdue(self, now: float) -> Iterator[Ticket]:
        """Those whose deadline has passed, oldest first; the caller cancels each before taking the next."""
        while self._arrivals:
            oldest = next(iter(self._arrivals))
            if now < oldest.arrived + self.policy.deadline:
                return
            yield oldest

    def oldest(self) -> float | None:
        """When the one who waits longest arrived; None when nobody waits."""
        return next(iter(self._arrivals)).arrived if self._arrivals else None

    def retry_after(self, now: float) -> int:
        """Whole seconds until a newcomer would find a place and a slot before its deadline, by all that is known.

        That is when the next slot becomes free, or when those who wait have become so few that a newcomer would be
        served within the deadline, whichever is later. Nobody knows who else will come.
        """
        each = self._seconds_each(now) / max(self.slots, 1)
        backlog = each * (self.waiting + 1)
        return max(1, min(math.ceil(max(each, backlog - self.policy.deadline)), LONGEST_RETRY))

    def _seconds_each(self, now: float) -> float:
        if not self._running:
            return self._service
        if not self._service:
            return now - next(iter(self._running)).started
        # All that run have run at least as long as the youngest of them: a stuck model is seen here.
        return max(self._service, now - next(reversed(self._running)).started)

    def _forget(self, ticket: Ticket) -> None:
        del self._arrivals[ticket]
        level = self._levels[ticket.priority]
        line = level[ticket.client]
        del line[ticket]
        if not line:
            del level[ticket.client]
        if not level:
            del self._levels[ticket.priority]
            self._priorities.remove(ticket.priority)
