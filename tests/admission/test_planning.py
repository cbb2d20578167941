"""What fits into so much memory, and in which order it is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.admission.memory import LaunchPlan, footprint, launch_faults
from ollama_gate.admission.planning import SLOTS, SMALL_WINDOW, TYPES, ModelPlan, Planner, in_order
from ollama_gate.admission.shapes import ModelShape, shape_from_show
from support.shows import PUBLISHED

GIB = 1024**3
LAUNCH = LaunchPlan(SMALL_WINDOW, host_cache=GIB)


def shape(name: str, weights: float = 5) -> ModelShape:
    return shape_from_show(PUBLISHED[name], int(weights * GIB))


def planned(name: str, gib: float, *, counts_host: bool = True, weights: float = 5) -> ModelPlan:
    return Planner(int(gib * GIB), counts_host).plan(name, shape(name, weights), LAUNCH)


@given(st.sampled_from(sorted(PUBLISHED)), st.floats(1, 200), st.booleans())
def test_what_is_told_to_fit_fits_and_no_larger_window_does(name: str, gib: float, counts_host: bool) -> None:  # noqa: FBT001
    limit = int(gib * GIB)
    for each in planned(name, gib, counts_host=counts_host).combinations:
        launch = LaunchPlan(0, each.num_parallel, each.kv_cache_type, host_cache=GIB)

        def size(num_ctx: int, launch: LaunchPlan = launch) -> int:
            at = footprint(shape(name), LaunchPlan(num_ctx, launch.num_parallel, launch.kv_cache_type, host_cache=GIB))
            return at.total if counts_host else at.loaded

        for fit in each.fitting:
            assert fit.bytes == size(fit.num_ctx) <= limit
        trained = shape(name).trained_window
        assert [fit.num_ctx for fit in each.fitting] == sorted({fit.num_ctx for fit in each.fitting})
        if each.largest_num_ctx:
            assert each.fitting[-1].num_ctx == each.largest_num_ctx
            assert each.largest_num_ctx == trained or size(each.largest_num_ctx + 256) > limit
        else:
            assert each.fitting == ()
            assert size(min(SMALL_WINDOW, trained)) > limit
        assert not launch_faults(shape(name), launch)


def test_every_cache_type_and_number_of_slots_is_tried() -> None:
    found = {(each.kv_cache_type, each.num_parallel) for each in planned("llama-8b", 24).combinations}
    assert found == {(kind, slots) for kind in TYPES for slots in SLOTS}


@pytest.mark.parametrize(("name", "types", "slots"), [("qwen35", TYPES, {1}), ("bert-minilm", ("f16",), {1})])
def test_what_ollama_cannot_do_is_not_offered(name: str, types: tuple[str, ...], slots: set[int]) -> None:
    found = planned(name, 64).combinations
    assert {each.kv_cache_type for each in found} == set(types)
    assert {each.num_parallel for each in found} == slots


def test_without_flash_attention_no_quantized_cache_is_offered() -> None:
    plan = Planner(64 * GIB, counts_host=True).plan("m", shape("llama-8b"), LaunchPlan(4096, flash_attention=False))
    assert {each.kv_cache_type for each in plan.combinations} == {"f16"}
    assert plan.best is not None
    assert plan.best.kv_cache_type == "f16"


def test_the_advice_is_one_slot_a_q8_0_cache_and_the_largest_window() -> None:
    best = planned("llama-8b", 12).best
    assert best is not None
    assert (best.kv_cache_type, best.num_parallel) == ("q8_0", 1)
    assert best.largest_num_ctx > SMALL_WINDOW


def test_the_biggest_model_that_fits_comes_first() -> None:
    plans = [planned("llama-8b", 24), planned("qwen3moe-30b", 24, weights=18), planned("deepseek-v3", 24, weights=400)]
    assert [(plan.model, plan.fits) for plan in in_order(plans)] == [
        ("qwen3moe-30b", True),
        ("llama-8b", True),
        ("deepseek-v3", False),
    ]
    assert in_order(plans)[-1].best is None
