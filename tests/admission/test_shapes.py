import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.admission.memory import LaunchPlan, footprint
from ollama_gate.admission.shapes import CacheLayers, UnknownShape, shape_from_show
from support.shows import PUBLISHED, Show, attention, quiet, show, size, ssm, tensor
from support.unhurried import unhurried

RECORDED = Path(__file__).parents[1] / "data" / "admission"


def recorded(name: str) -> Show:
    answer: Show = json.loads((RECORDED / f"{name}.json").read_text())
    return answer


def without_verbose(answer: Show, tensors: list[dict[str, Any]]) -> Show:
    return {**quiet(answer), "tensors": tensors}


def test_a_recorded_answer_gives_the_shape_of_gemma3() -> None:
    shape = shape_from_show(recorded("show-gemma3-270m"), file_bytes=291_554_930)
    assert shape.known
    assert (shape.blocks, shape.embedding, shape.window, shape.trained_window) == (18, 640, 512, 32768)
    assert set(shape.cache) == {CacheLayers(15, 256, 256, sliding=True), CacheLayers(3, 256, 256)}
    assert shape.vocabulary == 262144
    assert shape.weights == 291_554_930
    assert not shape.embedder


def test_a_recorded_answer_gives_the_shape_of_an_encoder() -> None:
    shape = shape_from_show(recorded("show-all-minilm"))
    assert (shape.encoder, shape.embedder, shape.single_slot, shape.cache) == (True, True, True, ())
    assert shape.vocabulary == 30522


@pytest.mark.parametrize(
    ("model", "file_bytes", "num_ctx", "reported"),
    [
        ("all-minilm", 45_949_364, 512, 51_359_251),
        ("gemma3-270m", 253_113_620, 1024, 284_101_180),
        ("gemma3-270m", 253_113_620, 256, 261_147_851),
    ],
)
def test_what_a_real_ollama_reported_lies_within_the_booking(
    model: str, file_bytes: int, num_ctx: int, reported: int
) -> None:
    """`size` of /api/tags and of /api/ps as Ollama v0.33 sent them."""
    prediction = footprint(shape_from_show(recorded(f"show-{model}"), file_bytes), LaunchPlan(num_ctx))
    assert reported + prediction.unreported <= prediction.loaded <= 1.25 * reported


def test_per_layer_heads_are_read_from_tensors_when_the_array_is_withheld() -> None:
    answer = PUBLISHED["gemma4-31b"]
    slides = answer["model_info"]["gemma4.attention.sliding_window_pattern"]
    tensors = [tensor("token_embd.weight", 5376, 262144)]
    for i, sliding in enumerate(slides):
        key, heads = (256, 16) if sliding else (512, 4)
        tensors += [tensor(f"blk.{i}.attn_k.weight", 5376, heads * key), tensor(f"blk.{i}.attn_k_norm.weight", key)]
    assert shape_from_show(without_verbose(answer, tensors)).cache == shape_from_show(answer).cache
    assert shape_from_show(without_verbose(answer, tensors)).notes == ()


@pytest.mark.parametrize(("model", "convolution"), [("lfm2", "shortconv.conv"), ("granite-hybrid", "ssm_conv1d")])
def test_recurrent_layers_are_told_by_their_convolution_when_the_array_is_withheld(
    model: str, convolution: str
) -> None:
    answer, whole = PUBLISHED[model], shape_from_show(PUBLISHED[model])
    kv_heads = answer["model_info"][f"{whole.architecture}.attention.head_count_kv"]
    tensors = [
        tensor(f"blk.{i}.attn_k.weight", whole.embedding, heads * whole.key)
        if heads
        else tensor(f"blk.{i}.{convolution}.weight", 4, 64)
        for i, heads in enumerate(kv_heads)
    ]
    quietly = shape_from_show(without_verbose(answer, tensors))
    assert (quietly.cache, quietly.recurrent, quietly.kv_heads) == (whole.cache, whole.recurrent, whole.kv_heads)


def test_layers_with_only_a_feed_forward_net_keep_nothing() -> None:
    answer, whole = PUBLISHED["nemotron-h"], shape_from_show(PUBLISHED["nemotron-h"])
    info = answer["model_info"]
    tensors = []
    for i in range(56):
        if info["nemotron_h.attention.head_count_kv"][i]:
            tensors.append(tensor(f"blk.{i}.attn_k.weight", 4480, 1024))
        elif width := info["nemotron_h.feed_forward_length"][i]:
            tensors.append(tensor(f"blk.{i}.ffn_up.weight", 4480, width))
        else:
            tensors.append(tensor(f"blk.{i}.ssm_conv1d.weight", 4, 12288))
    quietly = shape_from_show(without_verbose(answer, tensors))
    assert (quietly.cache, quietly.recurrent) == (whole.cache, whole.recurrent)
    assert quietly.feed_forward == whole.feed_forward == 15680


@pytest.mark.parametrize("model", ["gemma4-31b", "gemma4-e2b", "lfm2", "granite-hybrid", "nemotron-h", "jamba"])
def test_withheld_arrays_without_tensors_are_booked_high_and_said(model: str) -> None:
    whole, blind = shape_from_show(PUBLISHED[model]), shape_from_show(quiet(PUBLISHED[model]))
    assert blind.notes
    plan = LaunchPlan(32768)
    assert footprint(blind, plan).loaded >= footprint(whole, plan).loaded


def test_fused_projections_are_split_by_the_output_width() -> None:
    answer = show("deci", **size(2, 2048, 8192, 1000), attention__head_count=[16, 16], attention__head_count_kv=[4, 2])
    answer["model_info"]["deci.attention.key_length"] = 128
    tensors = [
        t
        for i, kv_heads in enumerate([4, 2])
        for t in (
            tensor(f"blk.{i}.attn_qkv.weight", 2048, 2048 + 2 * kv_heads * 128),
            tensor(f"blk.{i}.attn_output.weight", 2048, 2048),
        )
    ]
    assert {layers.key_width for layers in shape_from_show(without_verbose(answer, tensors)).cache} == {512, 256}
    assert shape_from_show(without_verbose(answer, tensors)).heads == 16


def test_an_unknown_architecture_is_booked_as_full_attention_and_named() -> None:
    answer = show("brand-new", **size(10, 1024, 4096, 1000), **attention(16, 4, 64, window=128))
    shape = shape_from_show(answer)
    assert not shape.known
    assert shape.cache == (CacheLayers(10, 256, 256),)
    assert "brand-new" in shape.notes[0]


def test_an_unknown_architecture_takes_the_wider_of_metadata_and_tensors() -> None:
    answer = show("brand-new", **size(2, 1024, 4096, 1000), **attention(16, 4, 64), **ssm(2048, 128, 1))
    answer["tensors"] = [
        tensor("blk.0.attn_k.weight", 1024, 512),
        tensor("blk.0.attn_v.weight", 1024, 128),
        tensor("blk.1.ssm_conv1d.weight", 4, 2304),
    ]
    shape = shape_from_show(answer)
    assert set(shape.cache) == {CacheLayers(1, 512, 256), CacheLayers(1, 256, 256)}
    assert shape.recurrent is not None
    assert shape.recurrent.layers == 1


@pytest.mark.parametrize(("published", "rule"), [("gptoss", "gpt-oss"), ("olmo3", "olmo2"), ("qwen25vl", "qwen2vl")])
def test_ollamas_own_names_keep_their_keys_and_take_llama_cpps_rules(published: str, rule: str) -> None:
    shape = shape_from_show(show(published, **size(8, 1024, 4096, 1000), **attention(16, 4, 64, window=128)))
    assert (shape.architecture, shape.rule, shape.known) == (published, rule, True)
    assert bool(shape.window) is (rule in {"gpt-oss", "olmo2"})


def test_gemma3_with_pooling_is_the_embedding_model_and_keeps_no_cache() -> None:
    answer = show("gemma3", **size(24, 768, 1152, 262144), **attention(3, 1, 256, window=512), pooling_type=1)
    shape = shape_from_show(answer)
    assert (shape.rule, shape.encoder, shape.cache) == ("gemma-embedding", True, ())


@pytest.mark.parametrize(
    ("architecture", "keys", "sliding"),
    [
        ("gemma3", {"attention__sliding_window": 0}, 0),
        ("gemma3", {}, 0),
        ("gemma2", {}, 6),
        ("llama4", {}, 9),
        ("llama4", {"attention__sliding_window": 0}, 0),
        ("exaone4", {}, 0),
        ("smallthinker", {"attention__sliding_window": 128}, 9),
        ("gemma3", {"attention__sliding_window": 128, "attention__sliding_window_pattern": 2}, 6),
        ("gemma3", {"attention__sliding_window": 128, "attention__sliding_window_pattern": [True] * 12}, 10),
        ("mellum", {"attention__sliding_window": 128, "attention__sliding_window_pattern": [True] * 12}, 12),
        ("qwen2", {"attention__sliding_window": 128, "attention__sliding_window_pattern": 2}, 0),
    ],
)
def test_which_layers_slide_is_each_architectures_own_rule(
    architecture: str, keys: dict[str, Any], sliding: int
) -> None:
    shape = shape_from_show(show(architecture, **size(12, 1024, 4096, 1000), **attention(16, 4, 64), **keys))
    assert sum(layers.count for layers in shape.cache if layers.sliding) == sliding
    assert sum(layers.count for layers in shape.cache) == 12


def test_llama4_looks_back_as_far_as_its_code_says_not_its_metadata() -> None:
    shape = shape_from_show(show("llama4", **size(12, 1024, 4096, 1000), **attention(16, 4, 64, window=4096)))
    assert shape.window == 8192


def test_qwen3next_takes_the_most_key_heads_of_any_layer_for_all() -> None:
    answer = PUBLISHED["qwen3next"]
    varied = answer["model_info"] | {"qwen3next.attention.head_count_kv": [1] * 47 + [2]}
    assert shape_from_show({**answer, "model_info": varied}) == shape_from_show(answer)


def test_exaone4_slides_only_with_64_layers() -> None:
    shape = shape_from_show(show("exaone4", **size(64, 5120, 27392, 102400), **attention(40, 8, 128)))
    assert {(layers.count, layers.sliding) for layers in shape.cache} == {(48, True), (16, False)}


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"model_info": None},
        {"model_info": {"general.architecture": 7}},
        {"model_info": {"general.architecture": "llama"}},
        {"model_info": {"general.architecture": "llama", "llama.block_count": 10**9, "llama.embedding_length": 64}},
        {"model_info": {"general.architecture": "llama", "llama.block_count": 2.5, "llama.embedding_length": 64}},
        {"model_info": {"general.architecture": "llama", "llama.block_count": True, "llama.embedding_length": 64}},
        {"model_info": {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": -64}},
    ],
)
def test_metadata_that_says_nothing_is_refused(damaged: Show) -> None:
    with pytest.raises(UnknownShape):
        shape_from_show(damaged)


def test_unknown_weight_types_are_taken_at_four_bytes_and_named() -> None:
    answer = show("llama", **size(1, 64, 128, 320), **attention(4))
    answer["tensors"] = [tensor("a", 64, 64, kind="Q4_K"), tensor("b", 100, kind="Q9_Z")]
    shape = shape_from_show(answer)
    assert shape.weights == 64 * 64 // 256 * 144 + 400
    assert "Q9_Z" in shape.notes[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(sorted({key.partition(".")[2] for answer in PUBLISHED.values() for key in answer["model_info"]}))


@pytest.mark.slow
@unhurried
@given(
    st.sampled_from(sorted(PUBLISHED)),
    st.dictionaries(keys, json_values, max_size=5),
    st.lists(json_values | st.fixed_dictionaries({"name": st.text(), "type": st.text(), "shape": json_values})),
)
def test_hostile_metadata_gives_a_footprint_or_is_refused(
    model: str, damage: dict[str, Any], tensors: list[Any]
) -> None:
    answer = PUBLISHED[model]
    prefix = answer["model_info"]["general.architecture"]
    info = answer["model_info"] | {f"{prefix}.{key}": value for key, value in damage.items()}
    try:
        shape = shape_from_show({**answer, "model_info": info, "tensors": tensors})
    except UnknownShape:
        return
    prediction = footprint(shape, LaunchPlan(4096, 2))
    assert all(part > 0 for part in prediction.parts().values())
