"""Admission as scripts: who asks, and what the gate then does."""

from dataclasses import dataclass, field

import pytest

from ollama_gate.admission.alerts import Alert, LoadedElsewhere
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.holdings import MemoryPolicy, OnFull, Outcome
from ollama_gate.admission.queue import Place, QueuePolicy, Ticket
from ollama_gate.admission.residents import Reported
from ollama_gate.admission.scheduler import Scheduler
from ollama_gate.errors import Refusal
from ollama_gate.requests import Control
from support.demands import GIB, takes


@dataclass
class Recorded:
    """Effects that only remember."""

    started: list[Ticket] = field(default_factory=list)
    refused: list[tuple[Ticket, Refusal]] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    looks: int = 0

    def start(self, ticket: Ticket) -> None:
        self.started.append(ticket)

    def refuse(self, ticket: Ticket, refusal: Refusal) -> None:
        self.refused.append((ticket, refusal))

    def evict(self, model: str) -> None:
        self.evicted.append(model)

    def look(self) -> None:
        self.looks += 1

    def alert(self, alert: Alert) -> None:
        self.alerts.append(alert)


class Script:
    """A scheduler, its effects, and short words for what happens to it."""

    def __init__(
        self,
        *,
        limit: float | None = None,
        on_full: OnFull = OnFull.EVICT,
        depth: int = 8,
        deadline: float = 240.0,
        drain_after: float = 15.0,
    ) -> None:
        self.did = Recorded()
        memory = MemoryPolicy(None if limit is None else int(limit * GIB), on_full, drain_after=drain_after)
        self.scheduler = Scheduler(QueuePolicy(depth, deadline), memory, self.did)
        self.now = 0.0

    def arrive(
        self, model: str, demand: Demand, client: str = "a", control: Control = Control.NONE, priority: int = 0
    ) -> Ticket:
        ticket = Ticket(model, client, demand, control, priority)
        self.scheduler.arrive(ticket, self.now)
        return ticket

    def answer(self, *tickets: Ticket) -> None:
        for ticket in tickets:
            self.scheduler.finish(ticket, Outcome.ANSWERED, self.now)

    def at(self, now: float) -> "Script":
        self.now = now
        self.scheduler.tick(now)
        return self

    def ps(self, *residents: tuple[str, Demand]) -> None:
        reported = [Reported(model, demand.footprint.weights, 0, demand.num_ctx) for model, demand in residents]
        self.now += 0.001
        self.scheduler.reconcile(reported, self.now, self.now)


def places(*tickets: Ticket) -> list[str]:
    return [ticket.place.value for ticket in tickets]


def test_a_free_slot_is_given_at_once() -> None:
    script = Script()
    ticket = script.arrive("m", takes(1))
    assert script.did.started == [ticket]
    assert ticket.place is Place.RUNNING


def test_no_more_run_than_there_are_slots_and_the_next_follows_at_once() -> None:
    script = Script()
    demand = takes(1, slots=2)
    first, second, third = (script.arrive("m", demand) for _ in range(3))
    assert places(first, second, third) == ["running", "running", "waiting"]
    script.answer(second)
    assert places(first, second, third) == ["running", "gone", "running"]


def test_models_do_not_wait_for_each_other() -> None:
    script = Script()
    assert places(*(script.arrive(model, takes(1)) for model in "abc")) == ["running"] * 3


def test_nobody_is_told_to_come_back_in_a_second_while_a_model_loads_or_waits_for_memory() -> None:
    script = Script(limit=4, depth=1)
    other = script.arrive("other", takes(3))
    loading, waiting = [script.arrive(model, takes(1)) for model in ("m", "m")]
    script.scheduler.loaded(other, 0.0)
    for _ in range(2):
        script.arrive("big", takes(2))
    told: dict[float, list[str]] = {0.1: [], 30.0: []}
    for at, seconds in told.items():
        script.now = at
        for model in ("m", "big"):
            script.arrive(model, takes(1 if model == "m" else 2))
            seconds.append(script.did.refused[-1][1].headers["Retry-After"])
    assert told == {0.1: ["5", "5"], 30.0: ["30", "30"]}
    script.scheduler.loaded(loading, 30.0)
    script.answer(loading)
    assert waiting.place is Place.RUNNING
    script.arrive("m", takes(1))
    script.arrive("m", takes(1))
    assert script.did.refused[-1][1].headers == {"Retry-After": "30"}, "it is loaded: as long as the one before took"


def test_a_full_queue_refuses_with_a_true_retry_after() -> None:
    script = Script(depth=1)
    demand = takes(1)
    running, waiting = script.arrive("m", demand), script.arrive("m", demand)
    script.now = 12.0
    late = script.arrive("m", demand)
    ((refused, refusal),) = script.did.refused
    assert (refused, late.place) == (late, Place.GONE)
    assert (refusal.status, refusal.code) == (503, "queue_full")
    assert refusal.headers == {"Retry-After": "12"}, "as long as what runs has taken so far"
    assert places(running, waiting) == ["running", "waiting"]


def test_a_refusal_calls_the_model_by_its_name_not_by_the_path_of_its_file() -> None:
    script = Script(depth=0, limit=10)
    path = "/blobs/sha256-0123"
    script.arrive(path, takes(1))
    for other, demand in ((path, takes(1)), (path + "9", takes(11))):
        script.scheduler.arrive(Ticket(other, "a", demand, name="llama3.2:1b"), 1.0)
    assert [refusal.code for _, refusal in script.did.refused] == ["queue_full", "model_does_not_fit"]
    assert [refusal.details["model"] for _, refusal in script.did.refused] == ["llama3.2:1b"] * 2
    assert not any(path in refusal.message for _, refusal in script.did.refused)


def test_who_waited_as_long_as_it_may_is_refused() -> None:
    script = Script(deadline=10.0)
    demand = takes(1)
    script.arrive("m", demand)
    waiting = script.arrive("m", demand)
    script.at(9.9)
    assert places(waiting) == ["waiting"]
    assert script.scheduler.next_due(9.9) == 10.0
    script.at(10.0)
    assert waiting.place is Place.GONE
    assert [refusal.code for _, refusal in script.did.refused] == ["queue_timeout"]
    assert script.scheduler.next_due(10.0) is None


def test_a_cancelled_waiter_is_gone_and_the_next_gets_its_turn() -> None:
    script = Script()
    demand = takes(1)
    running, gone, waiting = (script.arrive("m", demand) for _ in range(3))
    script.scheduler.leave(gone, 1.0)
    script.answer(running)
    assert places(gone, waiting) == ["gone", "running"]


def test_an_unload_passes_a_full_queue_and_makes_the_gate_look() -> None:
    script = Script(depth=0)
    demand = takes(1)
    script.answer(script.arrive("m", demand))
    looks = script.did.looks
    unload = script.arrive("m", demand, control=Control.UNLOAD)
    assert unload.place is Place.PASSING
    script.answer(unload)
    assert script.did.looks == looks + 1
    script.ps()
    assert script.scheduler.ledger.held == 0


def test_an_unload_passes_while_the_model_is_busy_and_frees_nothing_yet() -> None:
    script = Script()
    running = script.arrive("m", takes(1))
    script.answer(script.arrive("m", takes(1), control=Control.UNLOAD))
    script.ps()
    assert script.scheduler.ledger.held
    assert running.place is Place.RUNNING


def test_a_preload_of_what_is_loaded_takes_no_slot() -> None:
    script = Script()
    demand = takes(1)
    running = script.arrive("m", demand)
    preload = script.arrive("m", demand, control=Control.LOAD)
    assert places(running, preload) == ["running", "passing"]
    script.answer(preload)
    assert script.scheduler.ledger.get("m").users == 1  # type: ignore[union-attr]


def test_a_preload_of_a_cold_model_passes_memory_admission() -> None:
    script = Script(limit=10)
    assert script.arrive("a", takes(6), control=Control.LOAD).place is Place.RUNNING
    assert script.arrive("b", takes(6), control=Control.LOAD).place is Place.WAITING


def test_two_cold_models_at_once_cannot_both_slip_in() -> None:
    script = Script(limit=10)
    demand = takes(6)
    first, second = script.arrive("a", demand), script.arrive("b", demand)
    assert places(first, second) == ["running", "waiting"]
    assert script.did.looks == 1
    script.answer(first)
    assert script.did.evicted == ["a"]
    assert second.place is Place.WAITING
    script.scheduler.evicted("a", 1.0)
    script.now = 1.1
    script.ps(("a", demand))
    assert second.place is Place.WAITING, "it is on its way, not gone"
    script.ps()
    assert places(second) == ["running"]


def test_what_can_never_fit_is_refused_at_once_though_others_wait() -> None:
    script = Script(limit=10)
    script.arrive("a", takes(6))
    script.arrive("b", takes(6))
    script.arrive("c", takes(11))
    ((_, refusal),) = script.did.refused
    assert (refusal.status, refusal.code) == (503, "model_does_not_fit")
    assert refusal.headers == {"x-should-retry": "false"}


def test_loads_are_served_in_the_order_of_asking() -> None:
    script = Script(limit=10)
    busy = script.arrive("a", takes(8))
    large, small = script.arrive("b", takes(9)), script.arrive("c", takes(1))
    assert places(large, small) == ["waiting", "waiting"], "the small one would fit, but then the large one never would"
    assert script.scheduler.line == ("b", "c")
    script.answer(busy)
    script.ps()
    assert places(large, small) == ["running", "running"]


def test_when_the_first_load_in_line_gives_up_the_next_one_goes_at_once() -> None:
    script = Script(limit=10)
    script.arrive("a", takes(8))
    large, small = script.arrive("b", takes(9)), script.arrive("c", takes(1))
    script.scheduler.leave(large, 1.0)
    assert places(small) == ["running"]


def test_a_load_that_turns_out_not_to_fit_leaves_the_line() -> None:
    script = Script(limit=10, on_full=OnFull.WAIT)
    script.answer(script.arrive("a", takes(6)))
    script.arrive("b", takes(6))
    small = script.arrive("c", takes(1))
    assert script.scheduler.line == ("b", "c")
    kept = Reported("a", 4 * GIB, 0, 4096, expires_at=9e9)
    script.scheduler.reconcile([kept], 1.0, 1.0)
    assert [refusal.code for _, refusal in script.did.refused] == ["model_does_not_fit"]
    assert places(small) == ["running"]
    assert not script.scheduler.line


def test_what_is_loaded_does_not_stand_in_line() -> None:
    script = Script(limit=10)
    demand = takes(6, slots=2)
    script.arrive("a", demand)
    script.arrive("b", takes(6))
    assert script.arrive("a", demand).place is Place.RUNNING


def test_under_steady_traffic_a_waiting_load_gets_its_turn() -> None:
    script = Script(limit=10, drain_after=15.0)
    busy, other = takes(6, slots=2), takes(6)
    first = script.arrive("a", busy)
    load = script.arrive("b", other)
    script.at(14.0)
    second = script.arrive("a", busy)
    assert second.place is Place.RUNNING
    script.at(15.0)
    script.answer(first)
    third = script.arrive("a", busy)
    assert places(third, load) == ["waiting", "waiting"]
    script.answer(second)
    assert script.did.evicted == ["a"]
    script.ps()
    assert places(load, third) == ["running", "waiting"]
    assert script.scheduler.line == ("a",), "and now the other waits for its own load"


def test_who_was_held_back_goes_on_when_the_waiting_load_gives_up() -> None:
    script = Script(limit=10)
    demand = takes(6)
    script.arrive("a", demand)
    load = script.arrive("b", takes(6))
    script.at(20.0)
    held_back = script.arrive("a", takes(6, slots=2))
    assert places(held_back) == ["waiting"]
    script.scheduler.leave(load, 21.0)
    assert held_back.place is Place.RUNNING
    assert script.scheduler.line == ()


def test_who_was_held_back_does_not_wait_behind_loads_that_it_does_not_need() -> None:
    script = Script(limit=10)
    held, cold = takes(6, slots=2), takes(6)
    script.arrive("a", held)
    load = script.arrive("b", cold)
    script.at(20.0)
    behind = script.arrive("c", cold)
    held_back = script.arrive("a", held)
    assert ">".join(script.scheduler.line) == "b>c>a"
    script.scheduler.leave(load, 21.0)
    assert places(held_back, behind) == ["running", "waiting"]
    assert ">".join(script.scheduler.line) == "c"


def test_a_failed_load_lets_the_next_one_in_when_it_is_known_to_be_one() -> None:
    script = Script(limit=10)
    first, second = script.arrive("a", takes(6)), script.arrive("b", takes(6))
    script.scheduler.finish(first, Outcome.FAILED, 1.0)
    assert places(second) == ["waiting"]
    assert script.did.looks == 2
    script.now = 1.1
    script.ps()
    assert places(second) == ["running"]


def test_what_was_never_sent_lets_the_next_one_in() -> None:
    script = Script(limit=10)
    first, second = script.arrive("a", takes(6)), script.arrive("b", takes(6))
    script.scheduler.finish(first, Outcome.UNSENT, 1.0)
    assert second.place is Place.RUNNING


def test_a_model_that_cannot_be_unloaded_is_tried_again_later_not_at_once() -> None:
    script = Script(limit=10)
    script.answer(script.arrive("a", takes(6)))
    load = script.arrive("b", takes(6))
    assert script.did.evicted == ["a"]
    script.scheduler.stays("a", 1.0)
    assert script.did.evicted == ["a"]
    script.at(1.25)
    assert script.did.evicted == ["a", "a"]
    script.scheduler.evicted("a", 1.5)
    script.now = 2.0
    script.ps()
    assert load.place is Place.RUNNING


@pytest.mark.parametrize("outcome", [Outcome.LEFT, Outcome.FAILED])
def test_a_loaded_model_whose_client_went_makes_room_as_soon_as_it_is_known_to_be_loaded_still(
    outcome: Outcome,
) -> None:
    script = Script(limit=10)
    demand = takes(6)
    script.answer(script.arrive("a", demand))
    running, load = script.arrive("a", demand), script.arrive("b", demand)
    script.now = 1.0
    script.scheduler.finish(running, outcome, script.now)
    assert script.did.evicted == [], "it may have expired, and the request have begun to load it"
    script.now = 1.1
    script.ps(("a", demand))
    assert script.did.evicted == ["a"]
    script.scheduler.evicted("a", 1.2)
    script.now = 1.3
    script.ps()
    assert load.place is Place.RUNNING


def test_waiting_for_memory_is_looked_after_four_times_a_second() -> None:
    script = Script(limit=10)
    script.arrive("a", takes(6))
    script.arrive("b", takes(6))
    assert script.scheduler.next_due(5.0) == 5.25
    looks = script.did.looks
    script.at(5.25)
    assert script.did.looks == looks + 1


def test_the_policy_to_refuse_answers_at_once() -> None:
    script = Script(limit=10, on_full=OnFull.REFUSE)
    script.arrive("a", takes(6))
    script.arrive("b", takes(6))
    assert [refusal.code for _, refusal in script.did.refused] == ["model_does_not_fit"]


def test_the_policy_to_wait_loads_when_another_has_expired() -> None:
    script = Script(limit=10, on_full=OnFull.WAIT)
    script.answer(script.arrive("a", takes(6)))
    load = script.arrive("b", takes(6))
    assert (load.place, script.did.evicted) == (Place.WAITING, [])
    script.now = 1.0
    script.ps()
    assert load.place is Place.RUNNING


def test_a_timeout_in_front_of_a_full_memory_says_so() -> None:
    script = Script(limit=10, deadline=30.0)
    script.arrive("a", takes(6))
    script.arrive("b", takes(6))
    script.at(30.0)
    ((_, refusal),) = script.did.refused
    assert refusal.details["waits_for"] == "memory"
    assert refusal.headers == {"Retry-After": "30"}, "nothing points to less than it has taken so far"
    assert script.scheduler.line == ()


def test_new_policies_take_effect_for_those_who_wait() -> None:
    script = Script(limit=10)
    script.arrive("a", takes(6))
    load = script.arrive("b", takes(6))
    script.scheduler.configure(QueuePolicy(1, 60.0), MemoryPolicy(20 * GIB), 1.0)
    assert load.place is Place.RUNNING


def test_alerts_are_handed_on_once() -> None:
    script = Script()
    script.ps()
    script.now = 1.0
    script.ps(("theirs", takes(3)))
    script.ps(("theirs", takes(3)))
    assert script.did.alerts == [LoadedElsewhere("theirs", 2 * GIB)]


@pytest.mark.parametrize("control", [Control.NONE, Control.LOAD])
def test_who_finds_the_queue_full_leaves_no_trace_in_the_line_for_memory(control: Control) -> None:
    script = Script(limit=10, depth=0)
    script.arrive("a", takes(6))
    script.arrive("b", takes(6), control=control)
    assert [refusal.code for _, refusal in script.did.refused] == ["queue_full"]
    assert script.scheduler.line == ()


def test_ollama_is_asked_what_became_of_a_load_when_the_first_of_its_requests_is_answered_in_full() -> None:
    script = Script()
    demand = takes(6, slots=3)
    first, second, third = (script.arrive("a", demand) for _ in range(3))
    for ticket in (first, second, third):
        script.scheduler.loaded(ticket, 1.0)
    assert script.did.looks == 0, "it works out when the model expires at the end of a request"
    script.answer(second)
    assert script.did.looks == 1
    script.answer(first, third)
    script.answer(script.arrive("a", demand))
    assert script.did.looks == 1, "once for each load, not for each request"
    script.answer(script.arrive("a", takes(6, num_ctx=8192, slots=3)))
    assert script.did.looks == 2, "another window is another load"


@pytest.mark.parametrize("answered_late", [False, True])
def test_a_model_that_was_in_use_at_the_look_behind_its_load_is_looked_at_again(*, answered_late: bool) -> None:
    """The self-check asks for texts as soon as a model is loaded."""
    script = Script()
    demand = takes(6, slots=2)
    listed = Reported("a", 6 * GIB, 0, demand.num_ctx, expires_at=300.0)
    script.answer(script.arrive("a", demand))
    assert script.did.looks == 1
    check = script.arrive("a", demand)
    other = script.arrive("a", demand)
    if answered_late:
        script.scheduler.reconcile([listed], 1.0, 1.5)
    script.now = 2.0
    script.answer(other)
    assert script.did.looks == 1, "it is still in use"
    script.answer(check)
    if not answered_late:
        script.scheduler.reconcile([listed], 1.0, 2.5)
    holding = script.scheduler.ledger.get("a")
    assert holding is not None
    assert (script.did.looks, holding.expires_at) == (2, None)
    script.scheduler.reconcile([listed], 3.0, 3.0)
    assert holding.expires_at == 300.0
    script.now = 4.0
    script.answer(script.arrive("a", demand))
    script.scheduler.reconcile([listed], 3.5, 4.5)
    assert script.did.looks == 2, "once it was told"


def test_a_preload_is_over_at_once_and_ollama_asked_then() -> None:
    script = Script()
    script.answer(script.arrive("a", takes(6), control=Control.LOAD))
    assert script.did.looks == 1
    script.answer(script.arrive("a", takes(6), control=Control.LOAD))
    assert script.did.looks == 1


@pytest.mark.parametrize("outcome", [Outcome.LEFT, Outcome.FAILED])
def test_a_load_whose_first_request_came_to_nothing_is_asked_after_again_behind_the_first_answer(
    outcome: Outcome,
) -> None:
    script = Script()
    demand = takes(6, slots=2)
    gone, other = script.arrive("a", demand), script.arrive("a", demand)
    script.scheduler.finish(gone, outcome, 1.0)
    assert script.did.looks == 1
    script.answer(other)
    assert script.did.looks == 2
    script.answer(script.arrive("a", demand))
    assert script.did.looks == 2


def test_an_answer_with_the_old_window_is_not_taken_for_the_end_of_the_new_load() -> None:
    script = Script()
    old = script.arrive("a", takes(3, 4096, slots=2))
    script.scheduler.loaded(old, 0.0)
    new = script.arrive("a", takes(6, 8192, slots=2))
    script.answer(old)
    assert script.did.looks == 0
    script.answer(new)
    assert script.did.looks == 1


def test_who_is_refused_for_want_of_room_has_ollama_asked_for_the_next_one() -> None:
    script = Script(limit=10, on_full=OnFull.REFUSE)
    script.answer(script.arrive("a", takes(6)))
    looks = script.did.looks
    assert script.arrive("b", takes(6)).place is Place.GONE
    assert script.did.looks == looks + 1
    script.ps()
    assert script.arrive("b", takes(6)).place is Place.RUNNING


def test_hammering_a_full_memory_has_ollama_asked_once_a_second() -> None:
    script = Script(limit=10, on_full=OnFull.REFUSE)
    script.answer(script.arrive("a", takes(6)))
    looks = script.did.looks
    for tenth in range(30):
        script.now = tenth / 10
        assert script.arrive("b", takes(6)).place is Place.GONE
    assert script.did.looks == looks + 3


def test_nobody_is_asked_for_what_never_fits() -> None:
    script = Script(limit=10, on_full=OnFull.REFUSE)
    assert script.arrive("c", takes(11)).place is Place.GONE
    assert script.did.looks == 0


def test_who_waits_for_memory_is_not_refused_for_what_was_said_before_the_last_request_ended() -> None:
    script = Script(limit=10, on_full=OnFull.WAIT)
    demand = takes(6)
    for_long = Reported("a", 4 * GIB, 0, 4096, expires_at=1000.0)
    script.answer(script.arrive("a", demand))
    script.scheduler.reconcile([for_long], 1.0, 1.0)
    script.now = 2.0
    running = script.arrive("a", demand)  # with a keep_alive of ten seconds
    script.scheduler.reconcile([for_long], 3.0, 3.0)  # Ollama does not know yet
    script.now = 4.0
    script.answer(running)
    load = script.arrive("b", takes(6))
    assert places(load) == ["waiting"]
    script.scheduler.reconcile([for_long], 4.01, 4.01)  # nor does it the moment after
    assert places(load) == ["waiting"]
    script.scheduler.reconcile([Reported("a", 4 * GIB, 0, 4096, expires_at=14.0)], 5.0, 5.0)
    assert places(load) == ["waiting"]
    script.now = 14.1
    script.ps()
    assert places(load) == ["running"]
