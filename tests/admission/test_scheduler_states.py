"""Random lives of the scheduler beside an Ollama that really loads and unloads: nothing leaks, nothing is overrun."""

from collections import defaultdict
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ollama_gate.admission.alerts import Alert
from ollama_gate.admission.holdings import SETTLES, Holding, MemoryPolicy, OnFull, Outcome, Stage
from ollama_gate.admission.queue import Place, QueuePolicy, Ticket
from ollama_gate.admission.residents import Reported
from ollama_gate.admission.scheduler import Scheduler
from ollama_gate.errors import Refusal
from ollama_gate.requests import Control
from support.demands import GIB, takes

MODELS = {
    "one-slot": (takes(4, 4096), takes(6, 8192)),
    "two-slots": (takes(5, 4096, slots=2), takes(3, 8192, slots=2)),
    "small": (takes(2, 4096), takes(2.5, 8192)),
    "whole": (takes(9.5, 4096), takes(30, 8192)),
}
"""Two windows each; the second stands for a configuration that was changed while the gate ran."""
LIMIT = 10 * GIB
GRACE = 10.0
KEEP_ALIVES = (1.0, 100.0, 9e9)
DEADLINE = 240.0
LOOKS = ("before", "during", "during, heard after", "after", "later")
"""When `/api/ps` is asked in a short life."""


@dataclass
class Runner:
    """A llama-server: what Ollama really has in memory."""

    num_ctx: int
    size: int
    loaded: bool = False
    aborts_at: float | None = None
    goes_when_idle: bool = False
    keep_alive: float = 300.0
    """Of the newest request."""
    expires: float | None = None
    """Worked out at the end of a request; until then it has that of before."""
    renewed: tuple[float, float] | None = None
    """When Ollama notices that a client has gone, and what it then works out."""


@dataclass
class FakeOllama:
    """Loads at once and takes all its memory at once, which is the worst that can happen."""

    runners: dict[str, Runner] = field(default_factory=dict)
    requests: dict[str, list[Ticket]] = field(default_factory=lambda: defaultdict(list))
    tells: bool = True
    """Whether it says when a model will go."""
    stays: dict[str, float] = field(default_factory=dict)
    """Until when a model stays that nobody uses: the truth, whatever is told of it."""

    def accept(self, ticket: Ticket, keep_alive: float) -> None:
        self.requests[ticket.model].append(ticket)
        size = ticket.demand.footprint.total
        runner = self.runners.setdefault(ticket.model, Runner(ticket.demand.num_ctx, size))
        runner.aborts_at = None
        runner.keep_alive = keep_alive

    def memory(self, model: str) -> int:
        """A reload is served when the requests before it are over; the larger of both loads is what it can take."""
        sizes = [ticket.demand.footprint.total for ticket in self.requests[model]]
        return max([self.runners[model].size, *sizes])

    def may_answer(self, ticket: Ticket) -> bool:
        """Requests for another window are served one after the other."""
        earlier = self.requests[ticket.model][: self.requests[ticket.model].index(ticket)]
        return all(other.demand.num_ctx == ticket.demand.num_ctx for other in earlier)

    def serve(self, ticket: Ticket) -> None:
        runner = self.runners[ticket.model]
        runner.loaded, runner.num_ctx, runner.size = True, ticket.demand.num_ctx, ticket.demand.footprint.total

    def end(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        requests, runner = self.requests[ticket.model], self.runners[ticket.model]
        requests.remove(ticket)
        if requests:
            return
        self.stays[ticket.model] = expires = now + runner.keep_alive
        if outcome is Outcome.LEFT:
            runner.renewed = (now + 0.9 * SETTLES, expires)
        else:
            runner.expires, runner.renewed = expires, None
        if runner.goes_when_idle or (outcome in {Outcome.FAILED, Outcome.UNSENT} and not runner.loaded):
            del self.runners[ticket.model]
        elif outcome is Outcome.LEFT and not runner.loaded:
            runner.aborts_at = now + GRACE / 2

    def obey(self, model: str) -> None:
        if (runner := self.runners.get(model)) is None:
            return
        if self.requests[model]:
            runner.goes_when_idle = True
        else:
            del self.runners[model]

    def pass_time(self, now: float) -> None:
        for model, runner in list(self.runners.items()):
            if runner.aborts_at is not None and now >= runner.aborts_at:
                del self.runners[model]
            if runner.renewed is not None and now >= runner.renewed[0]:
                runner.expires, runner.renewed = runner.renewed[1], None

    def ps(self, now: float) -> list[Reported]:
        listed = []
        for model, runner in self.runners.items():
            expires = now + runner.keep_alive if runner.expires is None else runner.expires
            if runner.loaded:
                told = expires if self.tells else None
                listed.append(Reported(model, runner.size // 3 * 2, 0, runner.num_ctx, told))
        return listed


class Admission(RuleBasedStateMachine):
    @initialize(
        on_full=st.sampled_from(OnFull),
        depth=st.integers(0, 6),
        drain_after=st.sampled_from([0.0, 15.0]),
        tells=st.sampled_from([True, True, False]),
    )
    def begin(self, on_full: OnFull, depth: int, drain_after: float, tells: bool) -> None:  # noqa: FBT001
        self.now = 0.0
        self.ollama = FakeOllama(tells=tells)
        self.keep_alives: dict[Ticket, float] = {}
        self.looks = 0
        self.unasked: dict[str, Holding] = {}
        self.waiting: list[Ticket] = []
        self.running: list[Ticket] = []
        self.orders: list[str] = []
        self.snapshots: list[tuple[float, list[Reported]]] = []
        self.order_of_arrival: dict[tuple[str, str, int], list[Ticket]] = defaultdict(list)
        self.inside = False
        policy = MemoryPolicy(LIMIT, on_full, drain_after=drain_after, load_grace=GRACE)
        self.depth = depth
        self.scheduler = Scheduler(QueuePolicy(depth, DEADLINE), policy, self)

    # Effects

    def start(self, ticket: Ticket) -> None:
        if ticket in self.waiting:
            self.waiting.remove(ticket)
            assert self.order_of_arrival[ticket.model, ticket.client, ticket.priority].pop(0) is ticket
        self.running.append(ticket)
        if ticket.control is Control.UNLOAD:
            return
        self.ollama.accept(ticket, self.keep_alives[ticket])
        holding = self.scheduler.ledger.get(ticket.model)
        assert holding is not None
        if holding.stage is Stage.LOADING:
            self.unasked[ticket.model] = holding

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None:
        assert refusal.status == 503
        ledger = self.scheduler.ledger
        if (
            refusal.code == "model_does_not_fit"
            and ledger.policy.on_full is OnFull.WAIT
            and not ledger.impossible(ticket.demand)
        ):
            others = [one for one in ledger if one.idle and one.model != ticket.model]
            gives_up = ticket.arrived + DEADLINE
            stay = sum(one.booked for one in others if self.ollama.stays.get(one.model, 0.0) > gives_up)
            assert LIMIT - stay < ledger.cost(ticket.demand.footprint), "enough would have expired in time"
        self.forget(ticket)

    def evict(self, model: str) -> None:
        holding = self.scheduler.ledger.get(model)
        assert holding is not None
        assert holding.users == 0
        self.orders.append(model)

    def look(self) -> None:
        """The machine looks when its rules say so."""
        self.looks += 1

    def alert(self, alert: Alert) -> None:
        """Whatever Ollama reports here was loaded through the gate."""

    def forget(self, ticket: Ticket) -> None:
        if ticket in self.waiting:
            self.waiting.remove(ticket)
            self.order_of_arrival[ticket.model, ticket.client, ticket.priority].remove(ticket)

    # What happens

    @rule(
        model=st.sampled_from(sorted(MODELS)),
        changed=st.integers(0, 9).map(lambda n: n == 0),
        client=st.sampled_from("abc"),
        priority=st.sampled_from([0, 0, 0, 5]),
        control=st.sampled_from([Control.NONE] * 6 + [Control.LOAD, Control.UNLOAD]),
        keep_alive=st.sampled_from(KEEP_ALIVES),
    )
    def arrive(
        self,
        model: str,
        changed: bool,  # noqa: FBT001
        client: str,
        priority: int,
        control: Control,
        keep_alive: float,
    ) -> None:
        ticket = Ticket(model, client, MODELS[model][changed], control, priority)
        self.keep_alives[ticket] = keep_alive
        before = len(self.running)
        self.scheduler.arrive(ticket, self.now)
        if ticket.place is Place.WAITING:
            self.waiting.append(ticket)
            self.order_of_arrival[model, client, priority].append(ticket)
        assert control is not Control.UNLOAD or len(self.running) == before + 1, "an unload is never queued"

    @rule(
        model=st.sampled_from(sorted(MODELS)),
        keep_alive=st.sampled_from(KEEP_ALIVES),
        outcome=st.sampled_from([Outcome.ANSWERED, Outcome.ANSWERED, Outcome.LEFT]),
        listed=st.sets(st.sampled_from(LOOKS)),
    )
    def runs_at_once(self, model: str, keep_alive: float, outcome: Outcome, listed: set[str]) -> None:
        """A short life from end to end, with looks here and there."""

        def look(when: str, seconds: float = 0.01) -> None:
            self.time_passes(seconds)
            if when in listed:
                self.guard_asks()
                while self.snapshots:
                    self.guard_hears()

        look("before")
        self.arrive(model, changed=False, client="a", priority=0, control=Control.NONE, keep_alive=keep_alive)
        look("during")
        if "during, heard after" in listed:
            self.guard_asks()
        if self.running and (ticket := self.running[-1]).model == model and ticket.control is Control.NONE:
            self.end_one(ticket, outcome)
        while self.snapshots:
            self.guard_hears()
        look("after")
        look("later", SETTLES)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def load_ends(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.running))
        if ticket.control is not Control.UNLOAD and self.ollama.may_answer(ticket):
            self.ollama.serve(ticket)
            self.scheduler.loaded(ticket, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def runs_and_fails(self, data: st.DataObject) -> None:
        """Ollama loads the model, fails while it runs the request, and says so before anything else."""
        ticket = data.draw(st.sampled_from(self.running))
        if ticket.control is not Control.UNLOAD and self.ollama.may_answer(ticket):
            self.ollama.serve(ticket)
            self.end_one(ticket, Outcome.FAILED)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        self.end_one(data.draw(st.sampled_from(self.running)), outcome)

    def end_one(self, ticket: Ticket, outcome: Outcome) -> None:
        unloads = ticket.control is Control.UNLOAD
        if not unloads and not self.ollama.may_answer(ticket):
            outcome = Outcome.LEFT
        if not unloads and outcome in {Outcome.FAILED, Outcome.UNSENT} and len(self.ollama.requests[ticket.model]) > 1:
            outcome = Outcome.LEFT
        self.running.remove(ticket)
        if unloads:
            if outcome is Outcome.ANSWERED:
                self.ollama.obey(ticket.model)
        else:
            if outcome is Outcome.ANSWERED:
                self.ollama.serve(ticket)
            self.ollama.end(ticket, outcome, self.now)
        looks, alone = self.looks, not self.waiting
        self.scheduler.finish(ticket, outcome, self.now)
        asked = self.looks > looks
        holding = self.scheduler.ledger.get(ticket.model)
        if unloads:
            assert asked is (outcome is Outcome.ANSWERED)
        elif outcome is not Outcome.ANSWERED:
            assert asked
        elif holding is not None and holding.stage is not Stage.LOADING:
            if self.unasked.pop(ticket.model, None) is holding:
                assert asked, "what became of a load is asked at once"
            elif holding.untold and not holding.users:
                assert asked, "when it expires could not be told as long as it was used"
            elif alone:
                assert not asked, "a request to a resident model asks nothing"

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def client_leaves_the_queue(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.waiting))
        self.forget(ticket)
        self.scheduler.leave(ticket, self.now)
        assert ticket.place is Place.GONE

    @rule(seconds=st.sampled_from([0.01, 0.3, 4.0, 11.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.ollama.pass_time(self.now)
        self.scheduler.tick(self.now)

    @precondition(lambda self: self.orders)
    @rule(obeys=st.booleans())
    def unload_order(self, obeys: bool) -> None:  # noqa: FBT001
        model = self.orders.pop(0)
        if obeys:
            self.ollama.obey(model)
            self.scheduler.evicted(model, self.now)
        else:
            self.scheduler.stays(model, self.now)

    @rule(data=st.data())
    def an_idle_model_expires(self, data: st.DataObject) -> None:
        idle = [m for m, runner in self.ollama.runners.items() if runner.loaded and not self.ollama.requests[m]]
        if idle:
            del self.ollama.runners[data.draw(st.sampled_from(sorted(idle)))]

    @rule()
    def guard_asks(self) -> None:
        self.snapshots.append((self.now, self.ollama.ps(self.now)))

    @precondition(lambda self: self.snapshots)
    @rule()
    def guard_hears(self) -> None:
        asked_at, reported = self.snapshots.pop(0)
        self.scheduler.reconcile(reported, asked_at, self.now)

    @rule(listed=st.sets(st.sampled_from(sorted(MODELS))))
    def models_are_no_longer_listed(self, listed: set[str]) -> None:
        left = self.scheduler.forget(listed)
        assert listed <= left
        assert {
            ticket.model for ticket in (*self.waiting, *self.running) if ticket.control is not Control.UNLOAD
        } <= left
        assert set(self.scheduler.queues) <= left

    @rule()
    def guard_hears_nothing(self) -> None:
        self.scheduler.unheard(self.now, "no list")

    # What must always hold

    @invariant()
    def slots_are_never_overrun(self) -> None:
        holding: dict[str, int] = defaultdict(int)
        for ticket in self.running:
            if ticket.place is Place.RUNNING:
                holding[ticket.model] += 1
        for model, queue in self.scheduler.queues.items():
            assert queue.running == holding[model] <= queue.slots

    @invariant()
    def nobody_is_lost(self) -> None:
        assert all(ticket.place is Place.WAITING for ticket in self.waiting)
        assert all(ticket.place in {Place.RUNNING, Place.PASSING} for ticket in self.running)
        for model, queue in self.scheduler.queues.items():
            assert queue.waiting == sum(ticket.model == model for ticket in self.waiting) <= self.depth
            if queue.waiting and queue.free:
                assert model in self.scheduler.line, "a free slot is given to whoever waits, unless memory is not"
        for model in self.scheduler.line:
            assert self.scheduler.queues[model].waiting

    @invariant()
    def users_are_counted(self) -> None:
        for holding in self.scheduler.ledger:
            users = [t for t in self.running if t.model == holding.model and t.control is not Control.UNLOAD]
            assert holding.users == len(users)
            assert holding.stage is not Stage.LEAVING or not users

    @invariant()
    def memory_is_never_over_the_limit(self) -> None:
        ledger = self.scheduler.ledger
        assert ledger.held <= LIMIT
        for model in self.ollama.runners:
            holding = ledger.get(model)
            assert holding is not None, "what is in memory is booked"
            assert self.ollama.memory(model) <= holding.booked

    def teardown(self) -> None:
        """Left to itself, with every request answered and every order obeyed, all who wait get their turn."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(200):
            for ticket in list(self.running):
                if ticket in self.running:
                    self.end_one(ticket, Outcome.ANSWERED)
            for model in list(self.orders):
                self.orders.remove(model)
                self.ollama.obey(model)
                self.scheduler.evicted(model, self.now)
            self.now += 0.5
            self.ollama.pass_time(self.now)
            if self.scheduler.ledger.policy.on_full is not OnFull.EVICT:
                for model in [m for m in self.ollama.runners if not self.ollama.requests[m]]:
                    del self.ollama.runners[model]
            self.scheduler.reconcile(self.ollama.ps(self.now), self.now, self.now)
            self.scheduler.tick(self.now)
            if not self.waiting and not self.running:
                break
        assert not self.waiting
        assert not self.running
        assert not any(queue.running or queue.waiting for queue in self.scheduler.queues.values())
        assert not any(holding.users or holding.draining for holding in self.scheduler.ledger)
        assert self.scheduler.line == ()


LIVES = settings(stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
def test_nothing_leaks_and_nothing_is_overrun() -> None:
    run_state_machine_as_test(Admission, settings=settings(LIVES, max_examples=50))


@pytest.mark.slow
def test_nothing_leaks_and_nothing_is_overrun_in_many_lives() -> None:
    run_state_machine_as_test(Admission, settings=settings(LIVES, max_examples=400))


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lives=st.lists(
        st.tuples(
            st.sampled_from(["whole", "small"]),
            st.sampled_from([1.0, 9e9]),
            st.sampled_from([Outcome.ANSWERED, Outcome.ANSWERED, Outcome.LEFT]),
            st.sets(st.sampled_from(LOOKS), max_size=2),
        ),
        min_size=3,
        max_size=10,
    )
)
def test_who_waits_is_never_refused_for_what_was_true_before(
    lives: list[tuple[str, float, Outcome, set[str]]],
) -> None:
    """`Admission.refuse` compares with the truth."""
    machine = Admission()
    machine.begin(on_full=OnFull.WAIT, depth=3, drain_after=15.0, tells=True)
    for life in lives:
        machine.runs_at_once(*life)
        for ticket in list(machine.waiting):
            machine.forget(ticket)
            machine.scheduler.leave(ticket, machine.now)
