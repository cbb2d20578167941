from dataclasses import replace

import pytest

from ollama_gate.admission.alerts import (
    BiggerThanBooked,
    LoadedElsewhere,
    OverLimit,
    SettingsDiffer,
    Spilled,
    StillThere,
    WindowDiffers,
)
from ollama_gate.admission.demand import Demand
from ollama_gate.admission.holdings import DoesNotFit, Granted, MemoryPolicy, OnFull, Outcome, Stage, Wait
from ollama_gate.admission.ledger import Ledger
from ollama_gate.admission.memory import LaunchPlan
from ollama_gate.admission.residents import Reported
from ollama_gate.admission.shapes import shape_from_show
from support.shows import PUBLISHED

GIB = 1024**3
LLAMA = shape_from_show(PUBLISHED["llama-8b"], 4_900_000_000)
GEMMA = shape_from_show(PUBLISHED["gemma3-4b"], 3_300_000_000)


def llama(num_ctx: int = 8192, num_parallel: int = 1) -> Demand:
    return Demand.of(LLAMA, LaunchPlan(num_ctx, num_parallel, host_cache=0))


def simple(gib: float, num_ctx: int = 4096) -> Demand:
    """A model that takes so much, headroom included."""
    return Demand.guess(int(gib * GIB / 1.5), num_ctx)


def ledger(limit: float | None = 10, on_full: OnFull = OnFull.EVICT, **policy: float) -> Ledger:
    return Ledger(MemoryPolicy(None if limit is None else int(limit * GIB), on_full, **policy))  # type: ignore[arg-type]


def use(book: Ledger, model: str, demand: Demand, now: float) -> None:
    """Load a model and leave it idle."""
    assert isinstance(book.request(model, demand, now), Granted)
    book.finish(model, demand, Outcome.ANSWERED, now)


def ps(model: str, demand: Demand, **changed: float) -> Reported:
    """A report that agrees with the arithmetic."""
    booked = demand.footprint
    values = {"size": booked.loaded - booked.unreported - booked.headroom, "size_vram": 0, "num_ctx": demand.num_ctx}
    return Reported(model, **(values | changed))  # type: ignore[arg-type]


def test_a_cold_model_is_booked_before_it_loads() -> None:
    book = ledger()
    assert book.request("a", simple(4), 0.0) == Granted(loads=True)
    assert book.held == pytest.approx(4 * GIB, rel=1e-6)
    assert [(holding.stage, holding.users) for holding in book] == [(Stage.LOADING, 1)]


def test_two_cold_models_at_once_cannot_both_slip_in() -> None:
    book = ledger(10)
    assert book.request("a", simple(6), 0.0) == Granted(loads=True)
    assert book.request("b", simple(6), 0.0) == Wait()
    assert book.held <= 10 * GIB


def test_a_second_request_joins_the_load_and_takes_no_more_memory() -> None:
    book = ledger(10)
    book.request("a", demand := simple(6), 0.0)
    assert book.request("a", demand, 0.1) == Granted(loads=True)
    book.finish("a", demand, Outcome.ANSWERED, 1.0)
    assert book.request("a", demand, 2.0) == Granted(loads=False)
    assert book.held == book.cost(demand.footprint)


def test_without_a_limit_everything_is_granted_and_still_known() -> None:
    book = ledger(None)
    for model in "abc":
        assert book.request(model, simple(100), 0.0) == Granted(loads=True)
    assert book.held == pytest.approx(300 * GIB, rel=1e-6)
    assert book.free is None
    assert not book.impossible(simple(1000))


def test_the_least_recently_used_idle_model_is_evicted() -> None:
    book = ledger(10)
    use(book, "old", simple(4), 1.0)
    use(book, "new", simple(4), 2.0)
    assert book.request("c", simple(5), 3.0) == Wait(evict=("old",))
    assert book.request("c", simple(5), 3.1) == Wait(), "it is asked to go once"
    book.reconcile([ps("new", simple(4))], 3.2, 3.3)
    assert book.request("c", simple(5), 3.4) == Granted(loads=True)
    assert book.held <= 10 * GIB


def test_no_more_models_are_evicted_than_needed() -> None:
    book = ledger(10)
    use(book, "small", simple(1), 1.0)
    use(book, "large", simple(8), 2.0)
    assert book.request("c", simple(7), 3.0) == Wait(evict=("large",))


def test_nothing_is_evicted_when_that_would_not_be_enough() -> None:
    book = ledger(10)
    book.request("busy", simple(6), 0.0)
    use(book, "idle", simple(3), 1.0)
    assert book.request("c", simple(8), 2.0) == Wait()
    assert book.get("idle").stage is Stage.RESIDENT  # type: ignore[union-attr]


def test_a_busy_model_is_never_evicted() -> None:
    book = ledger(10)
    demand = simple(6)
    book.request("busy", demand, 0.0)
    book.loaded("busy", demand, 1.0)
    assert book.request("c", simple(6), 2.0) == Wait()
    book.finish("busy", demand, Outcome.ANSWERED, 3.0)
    assert book.request("c", simple(6), 3.0) == Wait(evict=("busy",))


def test_what_cannot_fit_at_all_is_refused_with_what_would() -> None:
    book = ledger(8)
    use(book, "other", simple(2), 0.0)
    no = book.request("llama", llama(131072), 1.0)
    assert isinstance(no, DoesNotFit)
    assert no.needed > no.limit == 8 * GIB
    assert no.free == pytest.approx(6 * GIB, rel=1e-6)
    assert no.retry_at is None
    assert 0 < no.largest_now < no.largest_ever < 131072
    assert book.request("llama", llama(no.largest_ever), 1.0) == Wait(evict=("other",))


def test_the_policy_to_refuse_names_what_would_fit_now_and_when_to_come_back() -> None:
    book = ledger(8, OnFull.REFUSE)
    use(book, "other", simple(2), 0.0)
    book.reconcile([ps("other", simple(2), expires_at=300.0)], 0.1, 0.1)
    no = book.request("llama", llama(16384), 1.0)
    assert isinstance(no, DoesNotFit)
    assert no.needed <= no.limit
    assert no.retry_at == 300.0
    assert isinstance(book.request("llama", llama(no.largest_now), 1.0), Granted)


def test_what_does_not_fit_is_told_when_enough_will_have_expired_not_the_first_that_will() -> None:
    book = ledger(9, OnFull.REFUSE)
    for model, expires_at in (("later", 200.0), ("soon", 100.0), ("busy", 50.0)):
        use(book, model, simple(3), 0.0)
        book.reconcile([ps(h.model, simple(3), expires_at=h.expires_at or expires_at) for h in book], 1.0, 1.0)
    book.request("busy", simple(3), 2.0)
    told = {gib: book.request("new", simple(gib), 3.0) for gib in (2, 3, 5, 8)}
    assert {gib: no.retry_at for gib, no in told.items() if isinstance(no, DoesNotFit)} == {
        2: 100.0,
        3: 100.0,
        5: 200.0,
        8: None,
    }


def test_the_policy_to_wait_evicts_nothing_and_refuses_when_no_waiting_would_do() -> None:
    book = ledger(10, OnFull.WAIT)
    use(book, "idle", simple(6), 0.0)
    assert book.request("c", simple(6), 1.0, patience=240.0) == Wait(), "it may expire in time, for all that is known"
    book.reconcile([ps("idle", simple(6), expires_at=9e9)], 2.0, 2.0)
    assert isinstance(book.request("c", simple(6), 3.0, patience=240.0), DoesNotFit)
    book.reconcile([ps("idle", simple(6), expires_at=100.0)], 4.0, 4.0)
    assert book.request("c", simple(6), 5.0, patience=240.0) == Wait()
    book.reconcile([], 101.0, 101.0)
    assert book.request("c", simple(6), 102.0, patience=240.0) == Granted(loads=True)


def test_another_window_is_a_reload_and_is_booked_at_the_larger_until_it_is_over() -> None:
    book = ledger(20)
    small, large = llama(8192), llama(32768)
    use(book, "m", small, 0.0)
    assert book.request("m", large, 1.0) == Granted(loads=True)
    assert book.held == book.cost(large.footprint)
    book.finish("m", large, Outcome.ANSWERED, 2.0)
    assert book.request("m", small, 3.0) == Granted(loads=True)
    assert book.held == book.cost(large.footprint), "the old load goes only later"
    book.finish("m", small, Outcome.ANSWERED, 4.0)
    assert book.held == book.cost(small.footprint)


def test_an_answer_to_the_old_window_does_not_end_the_load_of_the_new_one() -> None:
    book = ledger(20)
    small, large = llama(8192), llama(32768)
    book.request("m", large, 0.0)
    book.loaded("m", large, 1.0)
    book.request("m", small, 2.0)
    book.finish("m", large, Outcome.ANSWERED, 3.0)
    assert book.held == book.cost(large.footprint)
    book.finish("m", small, Outcome.ANSWERED, 4.0)
    assert book.held == book.cost(small.footprint)


def test_what_was_never_sent_frees_its_memory_at_once() -> None:
    book = ledger(10)
    book.request("a", demand := simple(6), 0.0)
    book.finish("a", demand, Outcome.UNSENT, 1.0)
    assert (book.held, list(book)) == (0, [])


def test_a_failed_load_frees_its_memory_when_it_is_not_listed_and_a_failed_run_does_not() -> None:
    book = ledger(10)
    book.request("a", demand := simple(6), 0.0)
    book.finish("a", demand, Outcome.FAILED, 1.0)
    book.reconcile([], 0.5, 1.1)
    assert book.request("b", simple(6), 1.2) == Wait(), "it may have been loaded, and have failed while it ran"
    book.reconcile([], 1.3, 1.4)
    assert (book.held, list(book)) == (0, [])
    book.request("a", demand, 2.0)
    book.finish("a", demand, Outcome.FAILED, 3.0)
    assert book.reconcile([ps("a", demand)], 3.1, 3.2) == ()
    assert book.held == book.cost(demand.footprint)


def test_a_failed_reload_frees_nothing_until_the_old_load_is_seen_to_be_gone() -> None:
    book = ledger(20)
    small, large = llama(8192), llama(32768)
    use(book, "m", small, 0.0)
    book.request("m", large, 1.0)
    book.finish("m", large, Outcome.FAILED, 2.0)
    assert book.held == book.cost(large.footprint), "it may never have been sent"
    book.reconcile([ps("m", small)], 3.0, 3.0)
    assert book.held == book.cost(small.footprint)
    assert book.request("m", small, 4.0) == Granted(loads=False)


def test_a_load_that_nobody_waits_for_any_more_counts_until_it_has_certainly_gone() -> None:
    book = ledger(10, load_grace=10.0)
    book.request("a", demand := simple(6), 0.0)
    book.finish("a", demand, Outcome.LEFT, 5.0)
    book.reconcile([], 14.9, 15.0)
    assert book.held, "a load under way is not listed"
    book.reconcile([], 15.0, 15.1)
    assert not book.held


def test_an_abandoned_load_that_finished_all_the_same_is_resident() -> None:
    book = ledger(10)
    book.request("a", demand := simple(6), 0.0)
    book.finish("a", demand, Outcome.LEFT, 5.0)
    book.reconcile([ps("a", demand)], 7.0, 7.1)
    assert book.request("a", demand, 8.0) == Granted(loads=False)


def test_what_was_asked_before_a_load_ended_says_nothing_about_it() -> None:
    book = ledger(10)
    book.request("a", demand := simple(6), 0.0)
    book.loaded("a", demand, 2.0)
    book.finish("a", demand, Outcome.ANSWERED, 2.1)
    book.reconcile([], 1.0, 3.0)
    assert book.held
    book.reconcile([ps("a", demand, num_ctx=2048)], 1.0, 3.0)
    assert book.request("a", demand, 4.0) == Granted(loads=False)
    book.finish("a", demand, Outcome.ANSWERED, 5.0)
    book.reconcile([], 6.0, 6.1)
    assert not book.held


def test_an_old_listing_says_nothing_about_a_load_that_was_abandoned_since() -> None:
    book = ledger(10, load_grace=10.0)
    use(book, "a", demand := simple(6), 0.0)
    book.request("a", demand, 2.0)  # it had expired at 1.5, so Ollama loads it again
    book.finish("a", demand, Outcome.LEFT, 3.0)
    book.reconcile([ps("a", demand)], 1.0, 3.1)
    book.reconcile([], 3.2, 3.3)
    assert book.held
    book.reconcile([], 13.0, 13.1)
    assert not book.held


def test_a_model_in_use_is_booked_though_it_is_not_listed() -> None:
    book = ledger(10)
    book.request("a", simple(6), 0.0)
    book.reconcile([], 100.0, 100.0)
    assert book.held


def test_residents_found_at_the_start_are_booked_without_an_alert_and_later_ones_with() -> None:
    book = ledger(10)
    assert book.reconcile([Reported("a", 3 * GIB, 0, 4096)], 0.0, 0.0) == ()
    found = book.reconcile([Reported("a", 3 * GIB, 0, 4096), Reported("b", GIB, 0, 4096)], 1.0, 1.0)
    assert found == (LoadedElsewhere("b", GIB),)
    assert book.held == 4 * GIB
    assert book.reconcile([Reported("a", 3 * GIB, 0, 4096), Reported("b", GIB, 0, 4096)], 2.0, 2.0) == (), "once"
    assert book.alerts == (LoadedElsewhere("b", GIB),)
    book.reconcile([Reported("a", 3 * GIB, 0, 4096)], 3.0, 3.0)
    assert not book.alerts


def test_before_it_is_known_what_is_loaded_nothing_is_granted_below_a_limit() -> None:
    book = ledger(10)
    book.blind = True
    assert book.request("b", simple(6), 0.0) == Wait()
    assert isinstance(book.request("b", simple(12), 0.0), DoesNotFit), "it never will"
    book.reconcile([Reported("a", 6 * GIB, 0, 4096)], 1.0, 1.0)
    assert book.request("b", simple(6), 2.0) == Wait(evict=("a",))
    without = ledger(None)
    without.blind = True
    assert without.request("b", simple(6), 0.0) == Granted(loads=True)


def test_a_resident_of_others_is_adopted_by_the_first_request_and_booked_at_the_larger() -> None:
    book = ledger(20)
    demand = llama()
    book.reconcile([ps("m", demand)], 0.0, 0.0)
    assert book.held < book.cost(demand.footprint)
    assert book.request("m", demand, 1.0) == Granted(loads=False)
    assert book.held == book.cost(demand.footprint)


def test_a_resident_of_others_is_booked_with_what_its_metadata_say_that_it_may_take() -> None:
    book = ledger(20)
    demand = llama()
    listed = ps("m", demand)
    book.reconcile([replace(listed, demand=demand)], 0.0, 0.0)
    assert book.held == book.cost(demand.footprint)
    larger = replace(listed, size=listed.size + 2 * GIB, demand=demand)
    book.reconcile([larger], 1.0, 1.0)
    assert book.held > book.cost(demand.footprint)


def test_a_model_of_others_is_evicted_when_it_is_in_the_way() -> None:
    book = ledger(10)
    book.reconcile([Reported("theirs", 6 * GIB, 0, 4096)], 0.0, 0.0)
    assert book.request("ours", simple(6), 1.0) == Wait(evict=("theirs",))


def test_a_resident_with_another_window_is_an_alert_and_a_reload() -> None:
    book = ledger(20)
    use(book, "m", demand := llama(8192), 0.0)
    wide = llama(32768)
    alerts = book.reconcile([ps("m", wide)], 1.0, 1.0)
    assert alerts == (WindowDiffers("m", 8192, 32768),)
    assert book.held == book.cost(wide.footprint), "the ledger follows the truth"
    assert book.request("m", demand, 2.0) == Granted(loads=True)


def test_a_model_larger_than_booked_is_an_alert_and_booked_as_found() -> None:
    book = ledger(20)
    use(book, "m", demand := llama(), 0.0)
    more = 200 * 1024**2
    found = book.reconcile([ps("m", demand, size=demand.footprint.loaded + more)], 1.0, 1.0)
    assert found == (BiggerThanBooked("m", demand.footprint.loaded, demand.footprint.loaded + more),)
    assert book.held == book.cost(demand.footprint) + more


def test_what_ps_leaves_out_of_a_model_with_two_caches_is_added_again() -> None:
    book = ledger(20)
    demand = Demand.of(GEMMA, LaunchPlan(32768, host_cache=0))
    use(book, "m", demand, 0.0)
    size = demand.footprint.loaded - demand.footprint.unreported + 1
    assert book.reconcile([ps("m", demand, size=size)], 1.0, 1.0) == (
        BiggerThanBooked("m", demand.footprint.loaded, demand.footprint.loaded + 1),
    )


def test_a_spilled_model_is_an_alert_only_where_there_is_a_gpu() -> None:
    book = ledger(40)
    demand = llama()
    assert book.reconcile([ps("m", demand), ps("n", demand)], 0.0, 0.0) == ()
    size = ps("m", demand).size
    alerts = book.reconcile([ps("m", demand), ps("n", demand, size_vram=size)], 1.0, 1.0)
    assert alerts == (Spilled("m", size, 0),)


def test_the_wrong_num_parallel_is_seen_by_the_size_of_the_model() -> None:
    book = ledger(60)
    told, real = llama(32768, 1), llama(32768, 4)
    use(book, "m", told, 0.0)
    alerts = {type(alert): alert for alert in book.reconcile([ps("m", real, num_ctx=32768)], 1.0, 1.0)}
    assert BiggerThanBooked in alerts
    differs = alerts[SettingsDiffer]
    assert isinstance(differs, SettingsDiffer)
    assert (differs.num_parallel, differs.kv_cache_type) == (1, "f16")
    assert (4, "f16") in differs.likely


def test_the_right_settings_raise_no_alert_whatever_the_compute_buffer_really_is() -> None:
    for shape in (LLAMA, GEMMA):
        for slots in (1, 2, 4):
            book = ledger(None)
            demand = Demand.of(shape, LaunchPlan(8192, slots))
            use(book, "m", demand, 0.0)
            most = demand.footprint.loaded - demand.footprint.unreported - demand.footprint.headroom
            for size in (most, most - demand.footprint.compute_bound * 6 // 10):
                assert book.reconcile([ps("m", demand, size=size)], 1.0, 1.0) == ()


def test_a_model_that_will_not_go_is_an_alert_and_counts_again() -> None:
    book = ledger(10, leave_grace=30.0)
    use(book, "a", demand := simple(6), 0.0)
    assert book.request("b", simple(6), 1.0) == Wait(evict=("a",))
    book.left("a", 2.0)
    assert book.reconcile([ps("a", demand)], 31.0, 31.0) == ()
    assert book.reconcile([ps("a", demand)], 32.0, 32.0) == (StillThere("a"),)
    assert book.request("b", simple(6), 33.0) == Wait(evict=("a",)), "and is asked again"


def test_a_model_that_could_not_be_told_to_go_stays_and_others_are_tried_first() -> None:
    book = ledger(10)
    use(book, "a", simple(4), 0.0)
    use(book, "b", simple(4), 1.0)
    assert book.request("c", simple(4), 2.0) == Wait(evict=("a",))
    book.stays("a", 3.0)
    assert book.request("c", simple(4), 4.0) == Wait(evict=("b",))


def test_others_loading_past_the_limit_is_an_alert_and_stops_every_load() -> None:
    book = ledger(10, OnFull.WAIT)
    book.reconcile([Reported("a", 11 * GIB, 0, 4096)], 0.0, 0.0)
    assert book.alerts == (OverLimit(10 * GIB, 11 * GIB),)
    assert book.request("b", simple(1), 1.0) == Wait()


def test_a_draining_model_takes_no_new_requests_until_it_is_let_go() -> None:
    book = ledger(10)
    demand = simple(6)
    book.request("busy", demand, 0.0)
    book.loaded("busy", demand, 1.0)
    book.drain("c", simple(6))
    assert book.request("busy", demand, 2.0) == Wait()
    assert book.undrain() == ("busy",)
    assert book.request("busy", demand, 3.0) == Granted(loads=False)


def test_draining_stops_no_more_models_than_needed() -> None:
    book = ledger(10)
    for model, gib in (("a", 3), ("b", 3), ("c", 3)):
        book.request(model, demand := simple(gib), 0.0)
        book.loaded(model, demand, 0.0)
    book.drain("d", simple(3))
    assert [holding.model for holding in book if holding.draining] == ["a"]


def test_host_memory_counts_only_where_the_limit_covers_it() -> None:
    demand = Demand.of(LLAMA, LaunchPlan(8192))
    covering, devices = Ledger(MemoryPolicy(counts_host=True)), Ledger(MemoryPolicy(counts_host=False))
    assert covering.cost(demand.footprint) - devices.cost(demand.footprint) == demand.footprint.host > 8 * GIB
