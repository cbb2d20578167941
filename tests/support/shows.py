"""Answers of `/api/show` for published models, as their metadata gives them."""

from typing import Any

Show = dict[str, Any]


def show(
    architecture: str, /, *, tensors: list[dict[str, Any]] | None = None, vision: bool = False, **keys: Any
) -> Show:
    """A verbose answer. A key's double underscore stands for the dot: `attention__head_count`."""
    info = {f"{architecture}.{name.replace('__', '.')}": value for name, value in keys.items()}
    embeds = f"{architecture}.pooling_type" in info
    return {
        "model_info": {"general.architecture": architecture, **info},
        "tensors": tensors or [],
        "capabilities": ["embedding"] if embeds else ["completion", *(["vision"] if vision else [])],
    }


def quiet(answer: Show) -> Show:
    """The same answer without `verbose`: every array is null."""
    info = {key: None if isinstance(value, list) else value for key, value in answer["model_info"].items()}
    return {**answer, "model_info": info}


def tensor(name: str, *shape: int, kind: str = "F16") -> dict[str, Any]:
    """One entry of `tensors`."""
    return {"name": name, "type": kind, "shape": list(shape)}


def attention(
    heads: int | list[int],
    kv_heads: int | list[int] | None = None,
    key: int | None = None,
    value: int | None = None,
    window: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The keys under `attention.` that most models have."""
    keys: dict[str, Any] = {"attention__head_count": heads}
    if kv_heads is not None:
        keys["attention__head_count_kv"] = kv_heads
    if key is not None:
        keys["attention__key_length"] = key
        keys["attention__value_length"] = key if value is None else value
    if window is not None:
        keys["attention__sliding_window"] = window
    return keys | {f"attention__{name}": value for name, value in more.items()}


def size(blocks: int, embedding: int, feed_forward: int | list[int], vocabulary: int, trained: int = 1 << 20) -> Show:
    """The lengths that every model has."""
    return {
        "block_count": blocks,
        "embedding_length": embedding,
        "feed_forward_length": feed_forward,
        "vocab_size": vocabulary,
        "context_length": trained,
    }


def experts(used: int, width: int | None = None, **more: int) -> Show:
    """The keys of a mixture of experts."""
    widths = {} if width is None else {"expert_feed_forward_length": width}
    return {"expert_used_count": used, **widths, **{f"expert_{name}": n for name, n in more.items()}}


def ssm(inner: int, state: int, group: int, conv: int = 4) -> Show:
    """The keys of a state-space layer."""
    return {
        "ssm__conv_kernel": conv,
        "ssm__inner_size": inner,
        "ssm__state_size": state,
        "ssm__group_count": group,
    }


def at(layers: int, where: set[int], inside: int, outside: int = 0) -> list[int]:
    """One number a layer."""
    return [inside if i in where else outside for i in range(layers)]


_EVERY_SIXTH_FULL = [i % 6 != 5 for i in range(60)]
_NEMOTRON_ATTENTION = at(56, {7, 18, 29, 40}, 8)
_NEMOTRON_FFN = [15680 if i % 2 and i < 54 and not _NEMOTRON_ATTENTION[i] else 0 for i in range(56)]
_QWEN_SSM = ssm(inner=4096, state=128, group=16)
_QWEN3NEXT_EXPERTS = experts(10, 512, shared_feed_forward_length=512)
_LFM2_KV_HEADS = [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0]

PUBLISHED: dict[str, Show] = {
    "llama-8b": show("llama", **size(32, 4096, 14336, 128256), **attention(32, 8)),
    "llama-window-ignored": show("llama", **size(32, 4096, 14336, 32768), **attention(32, 8, window=4096)),
    "phi3": show("phi3", **size(32, 3072, 8192, 32064), **attention(32, 32, window=262144)),
    "qwen3moe-30b": show("qwen3moe", **size(48, 2048, 6144, 151936), **attention(32, 4, 128), **experts(8, 768)),
    "gemma2": show("gemma2", **size(26, 2304, 9216, 256000), **attention(8, 4, 256, window=4096)),
    "gemma3-4b": show("gemma3", **size(34, 2560, 10240, 262144), **attention(8, 4, 256, window=1024)),
    "gemma3-270m": show("gemma3", **size(18, 640, 2048, 262144), **attention(4, 1, 256, window=512)),
    "gemma3n": show(
        "gemma3n",
        **size(30, 2048, 8192, 262144),
        **attention(8, 2, 256, window=512),
        embedding_length_per_layer_input=256,
    ),
    "gemma4-e2b": show(
        "gemma4",
        **size(35, 1536, 12288, 262144),
        **attention(8, 1, 512, window=512, key_length_swa=256, value_length_swa=256, shared_kv_layers=20),
        attention__sliding_window_pattern=[i % 5 != 4 for i in range(35)],
        embedding_length_per_layer_input=256,
    ),
    "gemma4-31b": show(
        "gemma4",
        **size(60, 5376, 21504, 262144),
        **attention(32, [16 if slides else 4 for slides in _EVERY_SIXTH_FULL], 512, window=1024),
        attention__key_length_swa=256,
        attention__value_length_swa=256,
        attention__shared_kv_layers=0,
        attention__sliding_window_pattern=_EVERY_SIXTH_FULL,
    ),
    "gpt-oss-20b": show(
        "gpt-oss", **size(24, 2880, 2880, 201088), **attention(64, 8, 64, window=128), **experts(4, 2880)
    ),
    "llama4-scout": show("llama4", **size(48, 5120, 16384, 202048), **attention(40, 8, 128), **experts(1, 8192)),
    "olmo3": show("olmo2", **size(32, 4096, 11008, 100278), **attention(32, 32, window=4096)),
    "deepseek-v3": show(
        "deepseek2",
        **size(61, 7168, 18432, 129280),
        **attention(128, 1, 576, 512, key_length_mla=192, value_length_mla=128),
        **experts(8, 2048, shared_count=1),
    ),
    "deepseek-v2-lite": show(
        "deepseek2",
        **size(27, 2048, 10944, 102400),
        **attention(16, 1, 576, 512, key_length_mla=192, value_length_mla=128),
        **experts(6, 1408, shared_count=2),
    ),
    "deepseek-v2-lite-old": show(
        "deepseek2",
        **size(27, 2048, 10944, 102400),
        **attention(16, 16, 192, 128),
        **experts(6, 1408, shared_count=2),
    ),
    "qwen3next": show(
        "qwen3next",
        **size(48, 2048, 5120, 151936),
        **attention(16, 2, 256),
        **_QWEN_SSM,
        **_QWEN3NEXT_EXPERTS,
        full_attention_interval=4,
    ),
    "qwen35": show("qwen35", **size(32, 4096, 12288, 248320), **attention(16, 4, 256), **_QWEN_SSM),
    "lfm2": show("lfm2", **size(16, 2048, 8192, 65536), **attention(32, _LFM2_KV_HEADS), shortconv__l_cache=3),
    "nemotron-h": show(
        "nemotron_h",
        **size(56, 4480, _NEMOTRON_FFN, 131072),
        **attention(40, _NEMOTRON_ATTENTION, 128),
        **ssm(inner=10240, state=128, group=8),
    ),
    "granite-hybrid": show(
        "granitehybrid",
        **size(40, 1536, 512, 100352),
        **attention(12, at(40, {5, 15, 25, 35}, 4)),
        **ssm(inner=3072, state=128, group=1),
        **experts(6, 512, shared_feed_forward_length=1024),
    ),
    "jamba": show(
        "jamba",
        **size(32, 4096, 14336, 65536),
        **attention(32, at(32, {4, 12, 20, 28}, 8)),
        **ssm(inner=8192, state=16, group=0),
        **experts(2),
    ),
    "falcon-h1": show(
        "falcon-h1",
        **size(24, 2048, 4096, 65537),
        **attention(8, 2, 128),
        **ssm(inner=3072, state=256, group=1),
    ),
    "mamba2": show(
        "mamba2",
        **size(48, 2048, 0, 50288),
        **attention(0),
        **ssm(inner=4096, state=128, group=1),
    ),
    "kimi-linear": show(
        "kimi-linear",
        **size(27, 2304, 9216, 163840),
        **attention(32, at(27, {3, 7, 11, 15, 19, 23, 26}, 1), 576, 512, key_length_mla=192, value_length_mla=128),
        ssm__conv_kernel=4,
        kda__head_dim=128,
        **experts(8, 1024, shared_count=1),
    ),
    "bert-minilm": show("bert", **size(6, 384, 1536, 30522), **attention(12), pooling_type=1),
    "bert-m3": show("bert", **size(24, 1024, 4096, 250002), **attention(16), pooling_type=1),
    "qwen3-embedding": show("qwen3", **size(28, 1024, 3072, 151936), **attention(16, 8, 128), pooling_type=3),
}
"""Models of the field by a short name. Shapes are those of the published models."""

TINY: dict[str, Show] = {
    "gpt-oss": show("gpt-oss", **size(4, 128, 128, 320), **attention(4, 2, 64, window=128)),
    "gemma4": show(
        "gemma4",
        **size(10, 128, 256, 320),
        **attention(2, 1, 512, window=512, key_length_swa=256, value_length_swa=256, shared_kv_layers=5),
        attention__sliding_window_pattern=[i % 5 != 4 for i in range(10)],
    ),
    "qwen35": show("qwen35", **size(8, 512, 512, 320), **attention(4, 2, 256), **ssm(inner=1024, state=128, group=4)),
    "qwen35-mtp": show(
        "qwen35",
        **size(9, 512, 512, 320),
        **attention(4, 2, 256),
        **ssm(inner=1024, state=128, group=4),
        nextn_predict_layers=1,
    ),
    "glm4moe": show("glm4moe", **size(4, 512, 512, 320), **attention(4, 2, 128), nextn_predict_layers=1),
}
"""Tiny random models that were loaded by a real Ollama v0.33; only what decides their caches is known."""
