"""What the status page and the metrics are told of slots and memory."""

import orjson
import pytest

from ollama_gate.admission.alerts import MemoryUnknown, OverLimit, WindowDiffers
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.holdings import MemoryPolicy, OnFull, Outcome
from ollama_gate.admission.memory import LaunchPlan
from ollama_gate.admission.queue import QueuePolicy, Ticket
from ollama_gate.admission.residents import Reported
from ollama_gate.admission.scheduler import Scheduler
from ollama_gate.admission.shapes import shape_from_show
from ollama_gate.admission.status import (
    MemoryStatus,
    alert_facts,
    booked_by_part,
    largest_windows,
    memory_status,
    overview,
    slots_status,
)
from support.demands import GIB, takes
from support.shows import PUBLISHED


class Nothing:
    """Effects that do nothing."""

    def start(self, ticket: Ticket) -> None: ...
    def refuse(self, ticket: Ticket, refusal: object) -> None: ...
    def evict(self, model: str) -> None: ...
    def look(self) -> None: ...
    def alert(self, alert: object) -> None: ...


def scheduler(limit: float | None = 10, *, counts_host: bool = True) -> Scheduler:
    policy = MemoryPolicy(None if limit is None else int(limit * GIB), OnFull.EVICT, counts_host=counts_host)
    return Scheduler(QueuePolicy(), policy, Nothing())


def arrive(on: Scheduler, model: str, demand: Demand, now: float = 0.0) -> Ticket:
    ticket = Ticket(model, "someone", demand)
    on.arrive(ticket, now)
    return ticket


def llama(num_ctx: int = 4096) -> Demand:
    return Demand.of(shape_from_show(PUBLISHED["llama-8b"], 5 * GIB), LaunchPlan(num_ctx, host_cache=0))


def memory(on: Scheduler, model: str, demand: Demand, now: float) -> MemoryStatus:
    return memory_status(on, model, demand, now, on.ledger.free)


def shouted(model: str) -> str:
    return model.upper()


def test_slots_tell_who_runs_and_who_waits() -> None:
    on = scheduler()
    demand = takes(6, slots=2)
    assert slots_status(on, "a", demand.slots, 0.0).total == 2
    for _ in range(5):
        arrive(on, "a", demand)
    told = slots_status(on, "a", demand.slots, 7.0)
    assert (told.total, told.running, told.waiting, told.oldest_wait_seconds) == (2, 2, 3, 7.0)
    assert told.retry_after >= 1


def test_memory_is_told_by_part_from_before_the_load_to_its_end() -> None:
    on, demand = scheduler(), llama()
    before = memory(on, "a", demand, 0.0)
    assert (before.stage, before.booked, before.fits, before.largest_num_ctx) == ("not loaded", 0, "yes", None)
    ticket = arrive(on, "a", demand)
    loading = memory(on, "a", demand, 1.0)
    assert loading.stage == "loading"
    assert loading.booked == loading.predicted == sum(loading.parts.values()) == demand.footprint.total
    on.loaded(ticket, 1.0)
    on.finish(ticket, Outcome.ANSWERED, 2.0)
    on.reconcile([Reported("a", 6 * GIB, 0, 4096, expires_at=300.0)], 3.0, 3.0)
    resident = memory(on, "a", demand, 4.0)
    assert (resident.stage, resident.reported, resident.expires_in_seconds) == ("resident", 6 * GIB, 296.0)
    assert resident.largest_num_ctx is not None
    assert demand.at(resident.largest_num_ctx).total <= 10 * GIB < demand.at(resident.largest_num_ctx + 256).total


def test_a_model_with_another_window_is_told_with_that() -> None:
    on, demand = scheduler(limit=None), llama()
    on.finish(arrive(on, "a", demand), Outcome.ANSWERED, 1.0)
    on.reconcile([Reported("a", 6 * GIB, 0, 32768)], 2.0, 2.0)
    told = memory(on, "a", demand, 3.0)
    assert (told.num_ctx, told.largest_num_ctx) == (32768, None)
    assert told.parts["kv_full"] == 8 * demand.footprint.kv_full


def test_what_waits_for_memory_is_told() -> None:
    on = scheduler()
    arrive(on, "a", takes(6))
    arrive(on, "b", takes(6))
    waiting = memory(on, "b", takes(6), 5.0)
    assert (waiting.stage, waiting.waiting_seconds, waiting.fits) == ("not loaded", 5.0, "after others have gone")
    told = overview(on, shouted, 5.0)
    assert [(one.model, one.stage) for one in told.models] == [("A", "loading")]
    assert [(one.model, one.seconds) for one in told.line] == [("B", 5.0)]
    assert (told.limit, told.held + (told.free or 0)) == (10 * GIB, 10 * GIB)


def test_what_is_worked_out_of_a_demand_is_kept_for_that_one_alone() -> None:
    one, other = llama(), llama()
    assert one != other
    before = Demand.fitting.cache_info().hits
    assert one.fitting(20 * GIB, with_host=True) == one.fitting(20 * GIB, with_host=True)
    assert Demand.fitting.cache_info().hits == before + 1
    assert one.fitting(10 * GIB, with_host=True) < one.fitting(20 * GIB, with_host=True)


def test_what_can_never_be_loaded_is_told() -> None:
    assert memory(scheduler(), "a", takes(11), 0.0).fits == "never"


@pytest.mark.parametrize("counts_host", [True, False])
def test_what_the_limit_does_not_count_is_not_in_the_prediction(*, counts_host: bool) -> None:
    footprint = llama().footprint
    told = memory(scheduler(counts_host=counts_host), "a", llama(), 0.0)
    assert told.predicted == (footprint.total if counts_host else footprint.loaded)
    assert "process" in told.parts


@pytest.mark.parametrize("counts_host", [True, False])
def test_a_booking_is_told_by_the_parts_that_the_limit_counts(*, counts_host: bool) -> None:
    on, demand = scheduler(counts_host=counts_host), llama()
    arrive(on, "a", demand)
    [holding] = on.ledger
    parts = booked_by_part(on.ledger, holding)
    assert parts == demand.footprint.parts(with_host=counts_host)
    assert sum(parts.values()) == holding.booked
    assert ("process" in parts) == counts_host


def test_what_nothing_explains_is_a_part_of_its_own() -> None:
    on, demand = scheduler(limit=100), llama()
    on.finish(arrive(on, "a", demand), Outcome.ANSWERED, 1.0)
    theirs = Reported("theirs", 7 * GIB, 0, 4096)
    met = Reported("met", 7 * GIB, 0, 4096, demand=llama())
    on.reconcile([Reported("a", 90 * GIB, 0, 4096), theirs, met], 2.0, 2.0)
    for holding in on.ledger:
        parts = booked_by_part(on.ledger, holding)
        assert sum(parts.values()) == holding.booked, holding.model
        weights = {"a": 5 * GIB, "met": 5 * GIB, "theirs": None}[holding.model]
        assert parts.get("weights") == weights
        assert parts["found"] > 0
    assert booked_by_part(on.ledger, next(one for one in on.ledger if one.model == "theirs")) == {"found": 7 * GIB}


def test_the_parts_of_a_model_with_another_window_are_those_of_that_window() -> None:
    on, demand = scheduler(limit=None), llama()
    on.finish(arrive(on, "a", demand), Outcome.ANSWERED, 1.0)
    on.reconcile([Reported("a", 6 * GIB, 0, 32768)], 2.0, 2.0)
    [holding] = on.ledger
    assert booked_by_part(on.ledger, holding)["kv_full"] == 8 * demand.footprint.kv_full


def test_the_largest_window_that_fits_is_told_of_what_is_loaded_and_of_what_was_asked_for() -> None:
    on = scheduler(limit=15)
    on.finish(arrive(on, "a", llama()), Outcome.ANSWERED, 1.0)
    alone = largest_windows(on)
    assert alone == {"a": memory(on, "a", llama(), 1.0).largest_num_ctx}
    on.reconcile([Reported("a", 5 * GIB, 0, 4096), Reported("c", GIB, 0, 4096, demand=llama())], 2.0, 2.0)
    arrive(on, "b", llama())
    told = largest_windows(on)
    assert set(told) == {"a", "b", "c"}
    assert 0 < told["a"] < alone["a"]
    assert told["b"] == 0, "it waits for memory"


def test_without_a_limit_every_window_fits_and_none_is_told() -> None:
    on = scheduler(limit=None)
    arrive(on, "a", llama())
    assert largest_windows(on) == {}


def test_alerts_are_flat_and_name_the_model_as_people_do() -> None:
    found = alert_facts(WindowDiffers("a", 4096, 8192), shouted, 7.0)
    assert found == {"kind": "WindowDiffers", "model": "A", "expected": 4096, "found": 8192}
    assert alert_facts(OverLimit(5, 6), shouted, 7.0) == {"kind": "OverLimit", "limit": 5, "held": 6}


def test_how_long_ollama_has_not_been_heard_is_told_in_seconds() -> None:
    told = alert_facts(MemoryUnknown(since=100.0, why="no list"), shouted, 112.34)
    assert told == {"kind": "MemoryUnknown", "why": "no list", "seconds": 12.3}


def test_all_of_it_is_json() -> None:
    on = scheduler()
    arrive(on, "a", llama())
    told = (overview(on, shouted, 1.0), slots_status(on, "a", 1, 1.0), memory(on, "a", llama(), 1.0))
    first, slots, held = orjson.loads(orjson.dumps(told))
    assert (first["models"][0]["model"], slots["running"], held["stage"]) == ("A", 1, "loading")
