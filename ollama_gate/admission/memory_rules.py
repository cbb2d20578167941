"""What decides a model's memory and stands in no metadata: the rules fixed in llama.cpp's and Ollama's code.

One table, read by `shapes.py` (which layer keeps what) and `memory.py` (how large it is). Each entry names where its
rule is written. Versions: Ollama v0.33.0, llama.cpp b10488.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

CELL_PADDING = 256
"""Cache cells come in multiples of this (`src/llama-context.cpp`, `GGML_PAD(n_ctx, 256)`)."""

CACHE_TYPES = MappingProxyType(
    {
        "f32": (4, 1),
        "f16": (2, 1),
        "bf16": (2, 1),
        "q8_0": (34, 32),
        "q5_1": (24, 32),
        "q5_0": (22, 32),
        "q4_1": (20, 32),
        "q4_0": (18, 32),
        "iq4_nl": (18, 32),
    }
)
"""KV cache type -> (bytes, elements) of a block (`common/arg.cpp:kv_cache_types`, `ggml/src/ggml-common.h`)."""

UNQUANTIZED = frozenset({"f32", "f16", "bf16"})

TENSOR_BLOCKS = MappingProxyType(
    {
        **CACHE_TYPES,
        "f64": (8, 1),
        "i8": (1, 1),
        "i16": (2, 1),
        "i32": (4, 1),
        "i64": (8, 1),
        "q8_1": (36, 32),
        "q2_k": (84, 256),
        "q3_k": (110, 256),
        "q4_k": (144, 256),
        "q5_k": (176, 256),
        "q6_k": (210, 256),
        "q8_k": (292, 256),
        "iq1_s": (50, 256),
        "iq1_m": (56, 256),
        "iq2_xxs": (66, 256),
        "iq2_xs": (74, 256),
        "iq2_s": (82, 256),
        "iq3_xxs": (98, 256),
        "iq3_s": (110, 256),
        "iq4_xs": (136, 256),
        "tq1_0": (54, 256),
        "tq2_0": (66, 256),
        "mxfp4": (17, 32),
        "nvfp4": (36, 64),
    }
)
"""Weight type, lower case -> (bytes, elements) of a block (`ggml/src/ggml-common.h`)."""


class Pattern(StrEnum):
    """How an architecture says which of its layers use the sliding window."""

    LAST = "last"
    """Layer i slides unless it is the last of its period: `i % p < p - 1`."""
    FIRST = "first"
    """Layer i slides unless it is the first of its period: `i % p != 0`."""
    ARRAY = "array"
    """One truth value a layer in `attention.sliding_window_pattern`, and no default."""
    EVERY = "every"
    """Every attention layer."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """A sliding-window rule (`src/models/<architecture>.cpp:load_arch_hparams`, `llama_hparams::set_swa_pattern`)."""

    pattern: Pattern
    period: int = 0
    """Used when metadata has no scalar `attention.sliding_window_pattern`."""
    default_window: int = 0
    """Tokens, used when metadata has no `attention.sliding_window`."""
    fixed_window: int = 0
    """Tokens, whatever the key says, unless it says 0."""
    reads_array: bool = False
    """An array under the pattern key replaces the period (elsewhere it is ignored)."""
    only_blocks: int = 0
    """The rule holds for models with exactly this many layers; 0 means for all."""


SLIDING = MappingProxyType(
    {
        "gemma2": Sliding(Pattern.LAST, 2, default_window=4096),
        "gemma3": Sliding(Pattern.LAST, 6),
        "gemma3n": Sliding(Pattern.LAST, 5),
        "gpt-oss": Sliding(Pattern.LAST, 2),
        "cohere2": Sliding(Pattern.LAST, 4),
        "olmo2": Sliding(Pattern.LAST, 4),
        "afmoe": Sliding(Pattern.LAST, 4),
        "plamo3": Sliding(Pattern.LAST, 8),
        "mellum": Sliding(Pattern.LAST, 4, reads_array=True),
        "exaone4": Sliding(Pattern.LAST, 4, default_window=4096, only_blocks=64),
        "exaone-moe": Sliding(Pattern.LAST, 4),
        "llama4": Sliding(Pattern.LAST, 4, fixed_window=8192),
        "smallthinker": Sliding(Pattern.FIRST, 4),
        "laguna": Sliding(Pattern.FIRST, 4),
        "cohere2moe": Sliding(Pattern.FIRST, 4, reads_array=True),
        "muse-glimmer": Sliding(Pattern.ARRAY),
        "gemma4": Sliding(Pattern.ARRAY),
        "step35": Sliding(Pattern.ARRAY),
        "mimo2": Sliding(Pattern.ARRAY),
        "lfm2": Sliding(Pattern.EVERY),
        "lfm2moe": Sliding(Pattern.EVERY),
    }
)
"""Every other architecture keeps a full cache, even when its metadata has `attention.sliding_window`."""

ENCODERS = frozenset(
    {
        "bert",
        "nomic-bert",
        "nomic-bert-moe",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "eurobert",
        "gemma-embedding",
    }
)
"""No cache at all (`src/llama-model.cpp:create_memory`)."""

DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})
"""No cache either, but a language-model head (`src/llama-model.cpp:create_memory`)."""


class Split(StrEnum):
    """How an architecture with recurrent layers tells them from its attention layers."""

    INTERVAL = "interval"
    """Recurrent unless `(i + 1) % full_attention_interval == 0`, or as `attention.recurrent_layers` says."""
    NO_KV_HEADS = "no_kv_heads"
    """Recurrent where `attention.head_count_kv[i]` is 0."""
    NO_KV_HEADS_NO_FFN = "no_kv_heads_no_ffn"
    """As above, and only where `feed_forward_length[i]` is 0; a layer with a feed-forward net keeps nothing."""
    BOTH = "both"
    """Every layer is attention and recurrent at once."""
    ALL = "all"
    """Every layer is recurrent."""


class State(StrEnum):
    """What a recurrent layer keeps for each sequence."""

    SSM = "ssm"
    SHORT_CONV = "short_conv"
    KDA = "kda"
    RWKV = "rwkv"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Which layers are recurrent and what they keep (`src/llama-hparams.cpp:n_embd_r`, `n_embd_s`)."""

    split: Split
    state: State
    drafts: bool = False
    """While drafting, the state is kept once more for each drafted token."""


RECURRENT = MappingProxyType(
    {
        "qwen3next": Recurrence(Split.INTERVAL, State.SSM),
        "qwen35": Recurrence(Split.INTERVAL, State.SSM, drafts=True),
        "qwen35moe": Recurrence(Split.INTERVAL, State.SSM, drafts=True),
        "jamba": Recurrence(Split.NO_KV_HEADS, State.SSM),
        "granitehybrid": Recurrence(Split.NO_KV_HEADS, State.SSM),
        "lfm2": Recurrence(Split.NO_KV_HEADS, State.SHORT_CONV),
        "lfm2moe": Recurrence(Split.NO_KV_HEADS, State.SHORT_CONV),
        "kimi-linear": Recurrence(Split.NO_KV_HEADS, State.KDA),
        "nemotron_h": Recurrence(Split.NO_KV_HEADS_NO_FFN, State.SSM, drafts=True),
        "nemotron_h_moe": Recurrence(Split.NO_KV_HEADS_NO_FFN, State.SSM, drafts=True),
        "falcon-h1": Recurrence(Split.BOTH, State.SSM),
        "mamba": Recurrence(Split.ALL, State.SSM),
        "mamba2": Recurrence(Split.ALL, State.SSM),
        "rwkv6": Recurrence(Split.ALL, State.RWKV),
        "rwkv6qwen2": Recurrence(Split.ALL, State.RWKV),
        "rwkv7": Recurrence(Split.ALL, State.RWKV),
        "arwkv7": Recurrence(Split.ALL, State.RWKV),
    }
)

TRUNK_ONLY = frozenset({"qwen3next", "qwen35", "qwen35moe", "step35", "hy_v3", "mimo2", "glm-dsa", "deepseek32"})
"""Their multi-token-prediction layers get no cache in the main context; elsewhere they do, unused
(`src/llama-model.cpp:create_memory`, layer filters)."""

FIRST_LAYERS_WITH_CACHE = MappingProxyType({"gemma3n": 20})
"""Later layers reuse an earlier layer's cache, a number fixed in code (`src/models/gemma3n.cpp:load_arch_hparams`)."""

INDEXED = frozenset({"deepseek32", "glm-dsa"})
"""Sparse attention with a second small key cache for its indexer (`src/llama-model.cpp:create_memory`)."""

SINGLE_SLOT = frozenset(
    {
        "mllama",
        "qwen3vl",
        "qwen3vlmoe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "nemotron_h_omni",
    }
)
"""Ollama runs these with one slot whatever OLLAMA_NUM_PARALLEL says (`server/sched.go:load`), and embedders too."""

RENAMED = MappingProxyType(
    {
        "gptoss": "gpt-oss",
        "olmo3": "olmo2",
        "glm4moelite": "deepseek2",
        "qwen25vl": "qwen2vl",
        "glmocr": "glm4",
        "deepseekocr": "deepseek2-ocr",
        "nemotron_h_omni": "nemotron_h",
    }
)
"""Names in files that Ollama published itself -> llama.cpp's names. Metadata keys keep the file's own prefix."""

FULL_ATTENTION = frozenset({
    "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bitnet", "bloom", "chameleon", "chatglm",
    "codeshell", "cogvlm", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek2-ocr", "dots1", "ernie4_5",
    "ernie4_5-moe", "exaone", "falcon", "gemma", "glm4", "glm4moe", "gpt2", "gptj", "gptneox", "granite", "granitemoe",
    "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "hy_v3", "internlm2", "jais", "jais2", "llama",
    "llama-embed", "maincoder", "minicpm", "minicpm3", "minimax-m2", "mistral3", "mistral4", "mpt", "nemotron", "olmo",
    "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo", "plm", "qwen",
    "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "refact", "seed_oss", "smollm3",
    "stablelm", "starcoder", "starcoder2", "talkie", "xverse",
})  # fmt: skip
"""Plain caches in every layer (`src/llama-arch.cpp:LLM_ARCH_NAMES` less those with a rule here or none at all)."""

KNOWN = frozenset({*FULL_ATTENTION, *SLIDING, *RECURRENT, *ENCODERS, *DIFFUSION, *INDEXED})
"""Anything else is booked at the safe formula: every layer full attention, the widest number wherever two disagree."""

DEFAULT_HOST_CACHE = 8192 * 1024 * 1024
"""Bytes of host memory that each llama-server may fill with old prompts (`common/arg.cpp`, `--cache-ram`)."""

DEFAULT_CHECKPOINTS = 32
"""Most context checkpoints of a slot (`common/arg.cpp`, `--ctx-checkpoints`)."""

CHECKPOINT_SPACING = 8192
"""Tokens between two checkpoints, at least (`tools/server/server-context.cpp`)."""

MINIMUM_WINDOW = 4
"""Ollama raises any smaller num_ctx to this (`server/sched.go`)."""

MINIMUM_VISION_WINDOW = 2048
"""The same for models with the vision capability (`server/sched.go`)."""
