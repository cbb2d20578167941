"""A model's shape: what of it decides how much memory it takes, read from the answer of `/api/show`.

Scalars come from `model_info`. Values that differ by layer are arrays there; Ollama writes `null` for an array unless
it was asked with `verbose:true` (`server/routes.go:GetModelInfo`, v0.33), and then the shapes in `tensors`, which are
always sent, say the same. Defaults are llama.cpp's (`src/llama-model.cpp:load_hparams`, b10488).
"""

from collections import Counter
from dataclasses import dataclass

from ollama_gate.admission import memory_rules as rules
from ollama_gate.admission.memory_rules import Pattern, Split, State
from ollama_gate.admission.metadata import MOST_LAYERS, Metadata, UnknownShape
from ollama_gate.requests import Json

__all__ = ["CacheLayers", "Experts", "ModelShape", "Recurrent", "UnknownShape", "shape_from_show"]

_ASSUMED_VOCABULARY = 262144
"""Rows taken where nothing says how many: those of the largest common vocabulary."""


@dataclass(frozen=True, slots=True)
class CacheLayers:
    """Attention layers that keep the same: elements a token for keys and for values."""

    count: int
    key_width: int
    value_width: int
    sliding: bool = False


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Layers that keep a state of fixed size, in 32-bit floats."""

    layers: int
    conv_floats: int
    """The convolution's state, floats a layer and sequence."""
    state_floats: int
    """The recurrent state, floats a layer and sequence."""
    step_floats: int = 0
    """What a layer's computation needs for each token beside five embeddings."""
    drafts: bool = False
    """While drafting, the state is kept once more for each drafted token."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: how many work on a token, and how wide they and the shared one are."""

    used: int
    width: int
    shared_width: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model decides its memory. Lengths are in elements, `weights` in bytes; see `memory.footprint`."""

    architecture: str
    rule: str
    """llama.cpp's name of the architecture; the rules of `memory_rules` were looked up under it."""
    known: bool
    """False: no rule was found and the safe formula stands."""
    trained_window: int
    """Tokens, 0 when the metadata does not say."""
    blocks: int
    embedding: int
    feed_forward: int
    """The widest layer's; so are heads, kv_heads, key and value."""
    heads: int
    kv_heads: int
    key: int
    value: int
    vocabulary: int
    weights: int
    cache: tuple[CacheLayers, ...] = ()
    window: int = 0
    """Tokens a sliding layer looks back (n_swa); 0 without such layers."""
    recurrent: Recurrent | None = None
    experts: Experts | None = None
    mla_key: int = 0
    """Multi-head latent attention: the key length of one head, 0 without it."""
    mla_value: int = 0
    indexer_layers: int = 0
    indexer_heads: int = 0
    indexer_key: int = 0
    layer_input: int = 0
    """Floats a token for per-layer inputs (gemma3n, gemma4)."""
    parallel_state: bool = False
    """Attention and recurrence work side by side in a layer (falcon-h1)."""
    draft: CacheLayers | None = None
    """Layers that predict further tokens; they count only while drafting."""
    encoder: bool = False
    """Neither a cache nor a language-model head."""
    embedder: bool = False
    vision: bool = False
    single_slot: bool = False
    """Ollama runs it with one slot whatever OLLAMA_NUM_PARALLEL says."""
    notes: tuple[str, ...] = ()
    """What had to be assumed, for people."""


def shape_from_show(show: Json, file_bytes: int | None = None) -> ModelShape:
    """The shape of the model that `/api/show` describes, verbose or not.

    Args:
        show: The decoded answer.
        file_bytes: `size` of `/api/tags`, which counts a projector in; the tensors' sum when None.

    Raises:
        UnknownShape: a key without which nothing can be said is missing or absurd.
    """
    data = Metadata(show)
    blocks = data.needed("block_count", MOST_LAYERS)
    embedding = data.needed("embedding_length")
    rule = rules.RENAMED.get(data.architecture, data.architecture)
    embedder = data.has("pooling_type") or "embedding" in data.capabilities
    if rule == "gemma3" and data.has("pooling_type"):
        rule = "gemma-embedding"
    known = rule in rules.KNOWN
    if not known:
        data.assume(f"no memory rule for architecture {data.architecture[:40]}: every layer booked as full attention")

    heads = _heads(data, rule, blocks)
    some = next((n for n in heads if n), 0)
    default_length = embedding // some if some else 0
    key, value = (data.scalar(f"attention.{name}_length", default_length) for name in ("key", "value"))
    window, sliding = _sliding(data, rule, blocks, key)
    attends, recurs = _split(data, rule, blocks)
    keys, values = [key] * blocks, [value] * blocks
    if window:
        keys = [data.scalar("attention.key_length_swa", key) if slides else key for slides in sliding]
        values = [data.scalar("attention.value_length_swa", value) if slides else value for slides in sliding]
    latent = data.scalar("attention.key_length_mla"), data.scalar("attention.value_length_mla")
    if not all(latent):
        latent = 0, 0
    kv_heads = _kv_heads(data, rule, blocks, heads, keys)

    trunk = blocks - min(data.scalar("nextn_predict_layers"), blocks - 1)
    cached = trunk if rule in rules.TRUNK_ONLY else blocks
    cached = min(cached, rules.FIRST_LAYERS_WITH_CACHE.get(rule, cached))
    cached = (
        min(cached, blocks - min(data.scalar("attention.shared_kv_layers"), blocks)) if rule == "gemma4" else cached
    )
    encoder = rule in rules.ENCODERS
    layers: Counter[tuple[int, int, bool]] = Counter()
    draft: CacheLayers | None = None
    for i in range(blocks):
        widths = kv_heads[i] * keys[i], 0 if latent[0] else kv_heads[i] * values[i]
        if not known and (seen := data.widths(i)) is not None:
            widths = max(widths[0], seen[0]), max(widths[1], seen[1])
        if i >= trunk:
            draft = CacheLayers(blocks - trunk, *widths)
        if i < cached and attends[i] and any(widths):
            layers[*widths, bool(window and sliding[i])] += 1
    no_cache = encoder or rule in rules.DIFFUSION
    feed_forward = max(data.by_layer("feed_forward_length", blocks) or _feed_forward(data, blocks))
    return ModelShape(
        architecture=data.architecture,
        rule=rule,
        known=known,
        trained_window=data.scalar("context_length"),
        blocks=blocks,
        embedding=embedding,
        feed_forward=feed_forward,
        heads=max(heads),
        kv_heads=max(kv_heads),
        key=max(keys),
        value=max(values),
        vocabulary=_vocabulary(data),
        weights=data.weights if file_bytes is None else file_bytes,
        cache=() if no_cache else tuple(CacheLayers(count, *widths) for widths, count in layers.items()),
        window=window,
        recurrent=_recurrent(data, rule, sum(recurs[:trunk]), embedding, some),
        experts=_experts(data, feed_forward),
        mla_key=latent[0],
        mla_value=latent[1],
        indexer_layers=cached if rule in rules.INDEXED else 0,
        indexer_heads=data.scalar("attention.indexer.head_count"),
        indexer_key=data.scalar("attention.indexer.key_length"),
        layer_input=_layer_input(data, rule, blocks, embedding),
        parallel_state=rule == "falcon-h1",
        draft=draft,
        encoder=encoder,
        embedder=embedder,
        vision="vision" in data.capabilities,
        single_slot=embedder or data.architecture in rules.SINGLE_SLOT or rule in rules.SINGLE_SLOT,
        notes=tuple(data.notes),
    )


def _heads(data: Metadata, rule: str, blocks: int) -> list[int]:
    """Query heads of each layer."""
    if (heads := data.by_layer("attention.head_count", blocks)) is not None:
        return heads
    if not data.has("attention.head_count") and (how := rules.RECURRENT.get(rule)) and how.split is Split.ALL:
        return [0] * blocks
    if data.lists_all(blocks):
        key = data.scalar("attention.key_length") or data.scalar("rope.dimension_count") or 1
        queries = [data.length(i, "attn_q") or data.length(i, "attn_output", 0) or 0 for i in range(blocks)]
        if any(queries):
            return [width // key for width in queries]
    data.assume("attention.head_count not to be had: keys and values as wide as the embedding")
    return [1] * blocks


def _kv_heads(data: Metadata, rule: str, blocks: int, heads: list[int], keys: list[int]) -> list[int]:
    """Key and value heads of each layer; 0 where it has no attention."""
    if (kv_heads := data.by_layer("attention.head_count_kv", blocks)) is not None:
        # The loader of qwen3next takes an array's maximum.
        return [max(kv_heads)] * blocks if rule == "qwen3next" else kv_heads
    if data.has("attention.head_count_kv"):
        if data.lists_all(blocks):
            widths = [data.widths(i) or (0, 0) for i in range(blocks)]
            return [-(-width // key) if key else 0 for (width, _), key in zip(widths, keys, strict=True)]
        data.assume("attention.head_count_kv withheld and not to be had from the tensors: as many as query heads")
    return heads


def _sliding(data: Metadata, rule: str, blocks: int, key: int) -> tuple[int, list[bool]]:
    """The window in tokens (0: none) and which layers use it."""
    none = [False] * blocks
    how = rules.SLIDING.get(rule)
    if how is None or (how.only_blocks and how.only_blocks != blocks):
        return 0, none
    window = data.scalar("attention.sliding_window", how.fixed_window or how.default_window)
    if not window:
        return 0, none
    window = how.fixed_window or window
    if how.pattern is Pattern.EVERY:
        return window, [True] * blocks
    said = data.by_layer("attention.sliding_window_pattern", blocks)
    scalar = data.scalar("attention.sliding_window_pattern")
    if (how.reads_array or how.pattern is Pattern.ARRAY) and said is not None and not scalar:
        return window, [bool(flag) for flag in said]
    if how.pattern is Pattern.ARRAY:
        short = data.scalar("attention.key_length_swa", key)
        norms = [data.length(i, "attn_k_norm", 0) for i in range(blocks)]
        if short != key and any(norms):
            return window, [norm == short for norm in norms]
        data.assume(
            "attention.sliding_window_pattern withheld: every layer booked at the full window, ask with verbose"
        )
        return 0, none
    period = scalar or how.period
    if how.pattern is Pattern.LAST:
        return window, [i % period < period - 1 for i in range(blocks)]
    return window, [i % period != 0 for i in range(blocks)]


def _split(data: Metadata, rule: str, blocks: int) -> tuple[list[bool], list[bool]]:
    """Which layers attend, and which are recurrent."""
    yes, no = [True] * blocks, [False] * blocks
    how = rules.RECURRENT.get(rule)
    if how is None:
        by_tensors = [data.is_recurrent(i) for i in range(blocks)]
        return yes, no if rule in rules.KNOWN else by_tensors
    recurs = no
    match how.split:
        case Split.ALL:
            return no, yes
        case Split.BOTH:
            return yes, yes
        case Split.INTERVAL:
            said = data.by_layer("attention.recurrent_layers", blocks)
            interval = data.scalar("full_attention_interval") or 4
            recurs = [bool(flag) for flag in said] if said else [(i + 1) % interval != 0 for i in range(blocks)]
        case Split.NO_KV_HEADS | Split.NO_KV_HEADS_NO_FFN:
            kv_heads = data.by_layer("attention.head_count_kv", blocks)
            if kv_heads is None and not data.lists_all(blocks):
                data.assume("which layers are recurrent is withheld: every layer booked as both, ask with verbose")
                return yes, yes
            if kv_heads is None:
                attends = [data.widths(i) is not None for i in range(blocks)]
                return attends, [data.is_recurrent(i) for i in range(blocks)]
            wide = data.by_layer("feed_forward_length", blocks) or _feed_forward(data, blocks)
            plain = [how.split is Split.NO_KV_HEADS_NO_FFN and width > 0 for width in wide]
            recurs = [not n and not ffn for n, ffn in zip(kv_heads, plain, strict=True)]
            return [n > 0 and not ffn for n, ffn in zip(kv_heads, plain, strict=True)], recurs
    return [not flag for flag in recurs], recurs


def _recurrent(data: Metadata, rule: str, layers: int, embedding: int, heads: int) -> Recurrent | None:
    how = rules.RECURRENT.get(rule)
    if not layers:
        return None
    kernel = max(data.scalar("ssm.conv_kernel") - 1, 0)
    match how.state if how else State.SSM:
        case State.SHORT_CONV:
            return Recurrent(layers, embedding * max(data.scalar("shortconv.l_cache") - 1, 0), 0)
        case State.KDA:
            size = data.scalar("kda.head_dim")
            return Recurrent(layers, 3 * kernel * heads * size, heads * size * size, 6 * heads * size)
        case State.RWKV:
            return Recurrent(
                layers, data.scalar("token_shift_count", 2) * embedding, embedding * data.scalar("wkv.head_size")
            )
        case State.SSM:
            inner, state, group = (data.scalar(f"ssm.{name}") for name in ("inner_size", "state_size", "group_count"))
            return Recurrent(
                layers,
                kernel * (inner + 2 * group * state),
                state * inner,
                5 * inner + 4 * group * state,
                drafts=how is not None and how.drafts,
            )


def _feed_forward(data: Metadata, blocks: int) -> list[int]:
    """Widths of the feed-forward nets by their tensors; 0 where a layer has none."""
    return [data.length(i, "ffn_up") or 0 for i in range(blocks)]


def _experts(data: Metadata, feed_forward: int) -> Experts | None:
    if not (used := data.scalar("expert_used_count")):
        return None
    width = data.scalar("expert_feed_forward_length") or feed_forward
    shared = data.scalar("expert_shared_feed_forward_length") or width * data.scalar("expert_shared_count")
    return Experts(used, width, shared)


def _layer_input(data: Metadata, rule: str, blocks: int, embedding: int) -> int:
    if not (length := data.scalar("embedding_length_per_layer_input")):
        return 0
    return blocks * length + {"gemma3n": 8, "gemma4": 2}.get(rule, 0) * embedding


def _vocabulary(data: Metadata) -> int:
    rows = data.shapes.get("token_embd.weight", ())
    if len(rows) > 1:
        return rows[1]
    if size := data.scalar("vocab_size"):
        return size
    data.assume(f"vocabulary size not said: {_ASSUMED_VOCABULARY} rows")
    return _ASSUMED_VOCABULARY
