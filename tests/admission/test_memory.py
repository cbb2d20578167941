from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.admission import memory
from ollama_gate.admission.memory import (
    Footprint,
    LaunchPlan,
    footprint,
    largest_window,
    launch_faults,
    settle,
)
from ollama_gate.admission.memory_rules import CACHE_TYPES
from ollama_gate.admission.shapes import ModelShape, shape_from_show
from support.shows import PUBLISHED, TINY, attention, show, size
from support.unhurried import unhurried

MIB = 1024 * 1024
SHAPES = {name: shape_from_show(answer) for name, answer in PUBLISHED.items()}


class Worked(NamedTuple):
    """What llama.cpp b10488 itself allocates, in bytes."""

    model: str
    num_ctx: int
    num_parallel: int
    kind: str
    batch: int
    full: int
    sliding: int
    recurrent: int
    compute: int
    flash: bool = True


WORKED = [
    Worked("llama-8b", 4096, 1, "f16", 512, 536870912, 0, 0, 125841440),
    Worked("llama-8b", 4096, 1, "f16", 512, 536870912, 0, 0, 322969632, flash=False),
    Worked("llama-8b", 32768, 4, "q8_0", 2048, 9126805504, 0, 0, 587333664),
    Worked("llama-8b", 1000, 2, "q4_0", 512, 75497472, 0, 0, 114389024),
    Worked("llama-window-ignored", 8192, 1, "f16", 1024, 1073741824, 0, 0, 260071456),
    Worked("phi3", 4096, 1, "f16", 512, 1610612736, 0, 0, 79704096),
    Worked("qwen3moe-30b", 40960, 1, "bf16", 2048, 4026531840, 0, 0, 536920096),
    Worked("gemma2", 8192, 1, "f16", 1024, 436207616, 272629760, 0, 177250336),
    Worked("gemma3-4b", 4096, 1, "f16", 512, 83886080, 182452224, 0, 88625184),
    Worked("gemma3-4b", 32768, 4, "q8_0", 2048, 1426063360, 775421952, 0, 495566880),
    Worked("gemma3-270m", 32768, 1, "f16", 1024, 100663296, 23592960, 0, 107520032),
    Worked("gemma3n", 32768, 1, "f16", 1024, 268435456, 50331648, 0, 284209184),
    Worked("gemma4-e2b", 32768, 1, "f16", 1024, 201326592, 18874368, 0, 299937824),
    Worked("gemma4-31b", 8192, 2, "q8_0", 1024, 713031680, 1782579200, 0, 386211872),
    Worked("gemma4-31b", 4096, 1, "f16", 512, 503316480, 1258291200, 0, 413675552, flash=False),
    Worked("gpt-oss-20b", 8192, 1, "f16", 1024, 201326592, 31457280, 0, 213164064),
    Worked("gpt-oss-20b", 131072, 1, "f16", 2048, 3221225472, 56623104, 0, 933838880),
    Worked("llama4-scout", 16384, 1, "f16", 1024, 805306368, 1358954496, 0, 258191392),
    Worked("olmo3", 16384, 1, "f16", 1024, 2147483648, 2013265920, 0, 246456352),
    Worked("deepseek-v3", 4096, 1, "f16", 512, 287834112, 0, 0, 432021536),
    Worked("deepseek-v2-lite", 4096, 2, "q8_0", 1024, 135364608, 0, 0, 176439328),
    Worked("deepseek-v2-lite-old", 4096, 1, "f16", 512, 1132462080, 0, 0, 88223776),
    Worked("qwen3next", 4096, 1, "f16", 512, 100663296, 0, 79036416, 94384192),
    Worked("qwen35", 32768, 1, "q8_0", 1024, 570425344, 0, 52690944, 268750912),
    Worked("lfm2", 32768, 1, "f16", 1024, 402653184, 0, 163840, 192979008),
    Worked("nemotron-h", 32768, 1, "f16", 1024, 536870912, 0, 145539072, 376082496),
    Worked("granite-hybrid", 4096, 4, "f16", 1024, 134217728, 0, 232243200, 106442816),
    Worked("jamba", 4096, 2, "f16", 1024, 134217728, 0, 34865152, 411201600),
    Worked("falcon-h1", 4096, 1, "f16", 512, 100663296, 0, 76529664, 56819776),
    Worked("mamba2", 4096, 2, "f16", 1024, 0, 0, 206340096, 116867136),
    Worked("kimi-linear", 4096, 1, "f16", 512, 33030144, 0, 44892160, 114825280),
    Worked("bert-minilm", 512, 1, "f16", 512, 0, 0, 0, 6037504),
    Worked("bert-m3", 8192, 1, "f16", 2048, 0, 0, 0, 67133472),
    Worked("qwen3-embedding", 8192, 1, "f16", 2048, 939524096, 0, 0, 1286660128),
]


def of(row: Worked) -> Footprint:
    plan = LaunchPlan(row.num_ctx, row.num_parallel, row.kind, flash_attention=row.flash)
    return footprint(SHAPES[row.model], plan)


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"{row.model}-{row.num_ctx}x{row.num_parallel}-{row.kind}")
def test_caches_and_states_equal_what_llama_cpp_allocates_to_the_byte(row: Worked) -> None:
    prediction = of(row)
    assert (prediction.kv_full, prediction.kv_sliding, prediction.recurrent) == (row.full, row.sliding, row.recurrent)


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"{row.model}-{row.num_ctx}x{row.num_parallel}-{row.kind}")
def test_the_compute_bound_is_never_below_what_llama_cpp_allocates(row: Worked) -> None:
    bound = of(row).compute_bound
    assert row.compute <= bound
    assert bound <= 2.5 * row.compute, "a bound so loose refuses what fits"


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"{row.model}-{row.num_ctx}x{row.num_parallel}-{row.kind}")
def test_the_batch_that_ollama_chooses_by_itself_is_foreseen(row: Worked) -> None:
    assert of(row).launch.num_batch == row.batch


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"{row.model}-{row.num_ctx}x{row.num_parallel}-{row.kind}")
def test_every_model_of_the_table_has_a_rule(row: Worked) -> None:
    assert SHAPES[row.model].known
    assert SHAPES[row.model].notes == ()


def bound(model: str, **plan: Any) -> int:
    return footprint(SHAPES[model], LaunchPlan(4096, **plan)).compute_bound


def test_a_quantized_cache_brings_its_rotation_matrices() -> None:
    assert bound("llama-8b", kv_cache_type="q8_0") - bound("llama-8b") == 4 * (64**2 + 128**2)
    assert bound("gemma3-4b", kv_cache_type="q4_0") - bound("gemma3-4b") == 4 * (64**2 + 128**2 + 256**2)


def test_each_slot_of_a_recurrent_model_adds_one_layers_state_and_a_row_of_logits() -> None:
    one, two = (bound("mamba2", num_parallel=slots, num_batch=512) for slots in (1, 2))
    conv, state = 3 * (4096 + 2 * 128), 128 * 4096
    assert two - one == 8 * (conv + state) + 4 * 50288


def test_attention_beside_recurrence_needs_three_more_embeddings_a_token() -> None:
    apart = footprint(replace(SHAPES["falcon-h1"], parallel_state=False), LaunchPlan(4096)).compute_bound
    assert bound("falcon-h1") - apart == 4 * 512 * 3 * 2048


def test_without_flash_attention_latent_attention_needs_more_for_each_cell() -> None:
    plan = LaunchPlan(4096, num_batch=512, flash_attention=False)
    attention_floats = 4 * 2048 + 16 * (576 + 512 + 192 + 128)
    scores = 4 * 512 * (attention_floats + (16 + 1) * 4096)
    logits = 4 * 102400
    by_hand = -(-(scores + 1024 * 4096) * 23 // 20) + logits + MIB
    assert footprint(SHAPES["deepseek-v2-lite"], plan).compute_bound == by_hand


def test_tiny_gpt_oss_loads_as_its_log_said() -> None:
    prediction = footprint(shape_from_show(TINY["gpt-oss"]), LaunchPlan(4096, 2, "q4_0", num_batch=2048))
    assert (prediction.launch.cells, prediction.launch.sliding_cells) == (4096, 2304)
    assert (prediction.kv_full / MIB, round(prediction.kv_sliding / MIB, 2)) == (2.25, 1.27)


def test_tiny_gemma4_with_shared_layers_loads_as_its_log_said() -> None:
    prediction = footprint(shape_from_show(TINY["gemma4"]), LaunchPlan(1000, 4, "q8_0", num_batch=512))
    assert (prediction.launch.cells, prediction.launch.sliding_cells) == (1024, 1024)
    assert (prediction.kv_full / MIB, prediction.kv_sliding / MIB) == (4.25, 8.5)


def test_a_family_that_ollama_forces_to_one_slot_is_booked_with_one() -> None:
    prediction = footprint(shape_from_show(TINY["qwen35"]), LaunchPlan(1000, 4, "q8_0"))
    assert prediction.launch.num_parallel == 1
    # Launched by hand with four slots, the log said 8.50 and 12.56 MiB.
    assert prediction.kv_full / MIB == 8.5 / 4
    assert round(4 * prediction.recurrent / MIB, 2) == 12.56


def test_drafting_keeps_the_state_once_more_for_each_token_and_adds_an_f16_cache() -> None:
    shape = shape_from_show(TINY["qwen35-mtp"])
    plain, drafting = (footprint(shape, LaunchPlan(4096, 2, "q8_0", draft_tokens=tokens)) for tokens in (0, 4))
    assert plain.draft == 0
    assert drafting.recurrent == 5 * plain.recurrent
    # Log, two slots and f16: 32.00 MiB main cache (the prediction layer has none there), 16.00 MiB for drafting.
    f16 = footprint(shape, LaunchPlan(4096, 2, "f16", draft_tokens=4))
    assert f16.kv_full / MIB == 32 / 2
    assert f16.draft > 16 * MIB / 2
    assert drafting.draft - drafting.compute_bound * 3 // 2 == 8 * MIB, "f16 whatever the cache type"
    assert round(2 * f16.recurrent / MIB, 2) == 31.41
    assert any("drafting" in note for note in f16.notes)


def test_prediction_layers_get_a_cache_in_the_main_context_where_llama_cpp_gives_them_one() -> None:
    assert footprint(shape_from_show(TINY["glm4moe"]), LaunchPlan(4096, 2)).kv_full == 32 * MIB


@pytest.mark.parametrize(("kind", "bytes_a_token"), [
    ("f32", 4.0), ("f16", 2.0), ("bf16", 2.0), ("q8_0", 1.0625), ("q5_1", 0.75), ("q5_0", 0.6875), ("q4_1", 0.625),
    ("q4_0", 0.5625), ("iq4_nl", 0.5625),
])  # fmt: skip
def test_every_cache_type_has_its_own_row_size(kind: str, bytes_a_token: float) -> None:
    elements = 32 * 2 * 8 * 128 * 4096
    assert footprint(SHAPES["llama-8b"], LaunchPlan(4096, 1, kind)).kv_full == elements * bytes_a_token


def test_a_full_sliding_cache_is_booked_when_the_operator_says_so() -> None:
    narrow = footprint(SHAPES["gemma3-4b"], LaunchPlan(32768))
    wide = footprint(SHAPES["gemma3-4b"], LaunchPlan(32768, swa_full=True))
    assert wide.kv_full == narrow.kv_full
    assert wide.kv_sliding == narrow.kv_sliding // narrow.launch.sliding_cells * 32768


@pytest.mark.parametrize(("model", "checkpoint_mib"), [("gemma3-4b", 116), ("gemma4-31b", 800)])
def test_a_checkpoint_of_a_sliding_window_holds_its_last_tokens(model: str, checkpoint_mib: int) -> None:
    one = footprint(SHAPES[model], LaunchPlan(32768, checkpoints=1)).checkpoints
    assert round(one / MIB) == checkpoint_mib
    assert footprint(SHAPES[model], LaunchPlan(32768, checkpoints=32)).checkpoints == 7 * one
    assert footprint(SHAPES[model], LaunchPlan(32768, num_parallel=2, checkpoints=1)).checkpoints == 2 * one


def test_a_checkpoint_of_a_recurrent_model_is_its_state() -> None:
    prediction = footprint(SHAPES["qwen35"], LaunchPlan(4096, checkpoints=1))
    assert prediction.checkpoints == prediction.recurrent


def test_a_model_that_can_rewind_its_cache_makes_no_checkpoints() -> None:
    assert footprint(SHAPES["llama-8b"], LaunchPlan(32768)).checkpoints == 0


@pytest.mark.parametrize(("model", "num_ctx", "megabytes"), [("bert-minilm", 512, 62.5), ("bert-m3", 8192, 2050)])
def test_an_embedder_is_booked_with_the_logits_of_its_longest_input(model: str, num_ctx: int, megabytes: float) -> None:
    prediction = footprint(SHAPES[model], LaunchPlan(num_ctx, num_parallel=4))
    assert prediction.embed_output / 1e6 == pytest.approx(megabytes, rel=0.01)
    assert prediction.host_cache_bound == 0, "only completions save prompts"
    assert prediction.launch.num_parallel == 1


def test_the_parts_add_up() -> None:
    for shape in SHAPES.values():
        prediction = footprint(shape, LaunchPlan(4096, 2, gpus=1))
        assert sum(prediction.parts().values()) == prediction.total == prediction.loaded + prediction.host


def test_ps_leaves_out_the_first_of_two_caches() -> None:
    assert footprint(SHAPES["llama-8b"], LaunchPlan(4096)).unreported == 0
    assert footprint(SHAPES["qwen35"], LaunchPlan(4096)).unreported == 0
    for model in ("gemma2", "gemma3-4b", "gemma4-31b", "gpt-oss-20b", "llama4-scout", "olmo3"):
        prediction = footprint(SHAPES[model], LaunchPlan(4096))
        assert prediction.unreported == prediction.kv_full > 0


def test_sparse_attention_adds_the_key_cache_of_its_indexer() -> None:
    answer = show(
        "deepseek32",
        **size(62, 7168, 18432, 129280),
        **attention(128, 1, 576, 512, key_length_mla=192, value_length_mla=128),
        attention__indexer__key_length=128,
        attention__indexer__head_count=64,
        nextn_predict_layers=1,
    )
    prediction = footprint(shape_from_show(answer), LaunchPlan(4096, 2))
    assert prediction.kv_indexer == 4096 * 2 * 128 * 2 * 61, "the prediction layer has none"
    assert prediction.kv_full == 4096 * 2 * 576 * 2 * 61
    assert prediction.unreported == prediction.kv_full


@pytest.mark.parametrize(("asked", "settled"), [(4_000_000_000, 131072), (2, 4), (1000, 1000), (131073, 131072)])
def test_the_window_is_clamped_as_ollama_clamps_it(asked: int, settled: int) -> None:
    shape = shape_from_show(show("llama", **size(2, 64, 128, 320, trained=131072), attention__head_count=4))
    assert settle(shape, LaunchPlan(asked)).num_ctx == settled


def test_a_vision_model_gets_a_larger_least_window_and_its_projectors_headroom() -> None:
    shape = shape_from_show(show("llama", vision=True, **size(2, 64, 128, 320), attention__head_count=4))
    assert settle(shape, LaunchPlan(256)).num_ctx == 2048
    assert footprint(shape, LaunchPlan(256)).headroom > 1024 * MIB


def test_launches_that_llama_cpp_refuses_are_named() -> None:
    llama, phi2 = (
        SHAPES["llama-8b"],
        shape_from_show(show("phi2", **size(32, 2560, 10240, 51200), attention__head_count=32)),
    )
    assert launch_faults(llama, LaunchPlan(4096, 1, "q8_0")) == ()
    assert "flash attention" in launch_faults(llama, LaunchPlan(4096, 1, "q8_0", flash_attention=False))[0]
    assert [fault for fault in launch_faults(phi2, LaunchPlan(4096, 1, "q8_0")) if "is 80" in fault]
    assert launch_faults(phi2, LaunchPlan(4096, 1, "f16", flash_attention=False)) == ()
    assert "q9_9" in launch_faults(llama, LaunchPlan(4096, 1, "q9_9"))[0]


plans = st.builds(
    LaunchPlan,
    num_ctx=st.integers(1, 300_000),
    num_parallel=st.integers(1, 8),
    kv_cache_type=st.sampled_from(sorted(CACHE_TYPES)),
    num_batch=st.none() | st.integers(1, 4096),
    flash_attention=st.booleans(),
    gpus=st.integers(0, 4),
)
shapes = st.sampled_from(sorted(SHAPES)).map(SHAPES.__getitem__)


@unhurried
@given(shapes, plans, st.integers(0, 50_000))
def test_a_larger_window_never_takes_less(shape: ModelShape, plan: LaunchPlan, more: int) -> None:
    small, large = footprint(shape, plan), footprint(shape, replace(plan, num_ctx=plan.num_ctx + more))
    assert large.total >= small.total
    assert large.loaded >= small.loaded


@unhurried
@given(shapes, plans, st.integers(0, 1 << 41))
def test_the_largest_window_fits_and_the_next_one_does_not(shape: ModelShape, plan: LaunchPlan, limit: int) -> None:
    window = largest_window(shape, plan, limit)

    def total(num_ctx: int) -> int:
        return footprint(shape, replace(plan, num_ctx=num_ctx)).total

    if window:
        assert total(window) <= limit
    if window < shape.trained_window:
        assert total(window + 256) > limit
    assert window % 256 == 0 or window == shape.trained_window


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_largest_window_is_found_by_no_more_footprints_than_halving_needs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[LaunchPlan] = []

    def counted(shape: ModelShape, plan: LaunchPlan) -> Footprint:
        tried.append(plan)
        return footprint(shape, plan)

    monkeypatch.setattr(memory, "footprint", counted)
    shape, plan = SHAPES[name], LaunchPlan(4096, num_parallel=4)
    least, most = (footprint(shape, replace(plan, num_ctx=num_ctx)).total for num_ctx in (256, 1 << 20))
    for share in range(1, 20):
        largest_window(shape, plan, least + (most - least) * share // 20)
    assert len(tried) <= 19 * 14, "halving alone would need so many"
