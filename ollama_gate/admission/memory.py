"""How much memory a loaded model takes: exact for caches and states, an upper bound for the rest.

The formulas are llama.cpp's own allocations written down (b10488: `src/llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp`,
`llama-memory-recurrent.cpp`), as Ollama v0.33 launches it (`llm/llama_server.go`): one stream a sequence, sliding
layers with a cache of their own. The bound for compute buffers was fitted to measured ones and lies above them.
"""

from dataclasses import dataclass, replace
from operator import attrgetter

from ollama_gate.admission import memory_rules as rules
from ollama_gate.admission.shapes import ModelShape
from ollama_gate.values import frozen

_MIB = 1024 * 1024

PROJECTOR_HEADROOM = 1024 * _MIB
"""Ollama's own guess for the buffers of a vision projector (`llm/llama_server.go`); not measured."""

DEVICE_OVERHEAD = 256 * _MIB
"""Context and driver of one GPU; an assumption that stands until somebody measures it."""

_PROCESS_BYTES = 24 * _MIB
_PROCESS_BYTES_PER_TOKEN = 180
"""Resident memory of an idle llama-server: libraries, heap, and the vocabulary's strings and maps."""

_LARGEST_UNKNOWN_WINDOW = 1 << 20
"""Where metadata names no trained window, none larger than this is looked for."""

_ENTRY_BYTES_PER_TOKEN = 12
"""What a saved prompt keeps for each token beside its cache cells (`tools/server/server-context.cpp`)."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How Ollama will start the model: what the operator configured, here and on the Ollama service."""

    num_ctx: int
    """The window asked for; `settle` says what becomes of it."""
    num_parallel: int = 1
    kv_cache_type: str = "f16"
    num_batch: int | None = None
    """None: as Ollama chooses."""
    flash_attention: bool = True
    host_cache: int = rules.DEFAULT_HOST_CACHE
    """Bytes llama-server may fill with old prompts (LLAMA_ARG_CACHE_RAM on the Ollama service, in MiB there)."""
    checkpoints: int = rules.DEFAULT_CHECKPOINTS
    """Most checkpoints of a slot (LLAMA_ARG_CTX_CHECKPOINTS)."""
    swa_full: bool = False
    """Sliding layers keep the full window (LLAMA_ARG_SWA_FULL)."""
    draft_tokens: int = 0
    """`draft_num_predict`: tokens drafted ahead by the model's own prediction layers; 0 without."""
    gpus: int = 0
    """Devices the model is spread over; 0 on a machine that computes on its CPU."""


@frozen
class Launch:
    """What llama-server is really started with."""

    num_ctx: int
    """Tokens of one slot, as `/api/ps` reports them."""
    num_parallel: int
    num_batch: int
    cells: int
    """Cache cells of one sequence in a full layer."""
    sliding_cells: int
    """The same in a sliding layer; 0 without such layers."""


@frozen
class Footprint:
    """Bytes by what they are for."""

    launch: Launch
    weights: int
    kv_full: int
    kv_sliding: int
    kv_indexer: int
    recurrent: int
    output: int
    compute_bound: int
    headroom: int
    """Margin over the compute bound, GPU contexts, a projector's buffers: assumptions, not formulas."""
    draft: int
    """Cache and compute of the second context that drafts."""
    process: int
    host_cache_bound: int
    """Old prompts that llama-server may keep in host memory, at most."""
    checkpoints: int
    embed_output: int
    """Logits of every token of an embedding input; grows with the first long input and stays."""
    notes: tuple[str, ...] = ()

    @property
    def loaded(self) -> int:
        """Bytes taken by the load itself, on the device as far as it goes there."""
        return (
            self.weights
            + self.kv_full
            + self.kv_sliding
            + self.kv_indexer
            + self.recurrent
            + self.output
            + self.compute_bound
            + self.headroom
            + self.draft
        )

    @property
    def host(self) -> int:
        """Bytes of host memory beside the load: the process, and what grows while the model serves."""
        return self.process + self.host_cache_bound + self.checkpoints + self.embed_output

    @property
    def total(self) -> int:
        """Everything, in bytes."""
        return self.loaded + self.host

    @property
    def unreported(self) -> int:
        """Bytes of the load that `/api/ps` leaves out of `size`.

        Ollama keeps one number per kind of buffer, so where llama-server logs two caches the first, full one is lost
        (`llm/llama_server.go`, parsing of "KV buffer size"), and so is the main compute buffer while drafting.
        """
        if self.draft:
            return self.kv_full + self.compute_bound
        return self.kv_full if self.kv_sliding or self.kv_indexer else 0

    def parts(self, *, with_host: bool = True) -> dict[str, int]:
        """Bytes by part, those that are not 0; their sum is the total, or without host memory what is loaded."""
        names, sizes = (PARTS, _PARTS(self)) if with_host else (LOADED_PARTS, _LOADED_PARTS(self))
        return {name: size for name, size in zip(names, sizes, strict=True) if size}


LOADED_PARTS = (
    "weights",
    "kv_full",
    "kv_sliding",
    "kv_indexer",
    "recurrent",
    "output",
    "compute_bound",
    "headroom",
    "draft",
)
PARTS = (*LOADED_PARTS, "process", "host_cache_bound", "checkpoints", "embed_output")
"""The parts of a footprint."""
_LOADED_PARTS, _PARTS = attrgetter(*LOADED_PARTS), attrgetter(*PARTS)


def settle(shape: ModelShape, plan: LaunchPlan) -> Launch:
    """What Ollama makes of a plan: window clamped, slots forced to 1 where it must be, batch chosen.

    `server/sched.go:load` and `llm/llama_server.go`, v0.33. Where Ollama would choose a smaller batch for want of
    video memory, the larger one is taken: the result is a bound.
    """
    window = max(plan.num_ctx, rules.MINIMUM_VISION_WINDOW if shape.vision else rules.MINIMUM_WINDOW)
    if shape.trained_window:
        window = min(window, shape.trained_window)
    slots = 1 if shape.single_slot else max(plan.num_parallel, 1)
    batch = plan.num_batch
    if batch is None:
        batch = min(2048, window) if shape.embedder else _automatic_batch(window * slots)
    batch = min(batch, window * slots)
    cells = _pad(window)
    sliding = 0
    if shape.window:
        sliding = cells if plan.swa_full else _pad(min(cells, shape.window + batch))
    return Launch(window, slots, batch, cells, sliding)


def _automatic_batch(tokens: int) -> int:
    return 2048 if tokens > 32768 else 1024 if tokens > 4096 else 512


def _pad(tokens: int) -> int:
    return -(-tokens // rules.CELL_PADDING) * rules.CELL_PADDING


def launch_faults(shape: ModelShape, plan: LaunchPlan) -> tuple[str, ...]:
    """Why llama-server would refuse to start with this plan; empty when it would not.

    An unknown cache type is one; a quantized cache also needs flash attention and whole blocks in a head.
    """
    if plan.kv_cache_type not in rules.CACHE_TYPES:
        return (f"kv_cache_type {plan.kv_cache_type!r} is none of {', '.join(rules.CACHE_TYPES)}",)
    faults = []
    if plan.kv_cache_type not in rules.UNQUANTIZED and shape.cache:
        if not plan.flash_attention:
            faults.append(f"a {plan.kv_cache_type} cache needs flash attention")
        faults += [
            f"a {plan.kv_cache_type} cache needs a {name} length that 32 divides, this model's is {length}"
            for name, length in (("key", shape.key), ("value", shape.value))
            if length % 32
        ]
    return tuple(faults)


def footprint(shape: ModelShape, plan: LaunchPlan) -> Footprint:
    """The memory of one model launched by one plan.

    Raises:
        KeyError: `plan.kv_cache_type` is no type llama.cpp knows (`launch_faults` says so kindly).
    """
    launch = settle(shape, plan)
    slots, states = launch.num_parallel, _state_bytes(shape, plan)
    full, sliding = (slots * n for n in _cache_bytes(shape, plan, launch))
    indexer = slots * shape.indexer_layers * launch.cells * _row(plan.kv_cache_type, shape.indexer_key)
    rows = slots if not shape.embedder else launch.num_batch
    compute = _compute_bound(shape, plan, launch, 0 if shape.encoder else rows)
    draft = 0
    notes = shape.notes
    if plan.draft_tokens and shape.draft is not None:
        keys, values = _row("f16", shape.draft.key_width), _row("f16", shape.draft.value_width)
        # A second context with an f16 cache whatever the type; its compute, and what the main one grows by, are
        # taken as one and a half times the main bound.
        draft = slots * launch.cells * shape.draft.count * (keys + values) + compute * 3 // 2
        notes = (*notes, "drafting: its compute buffers are an estimate")
    return Footprint(
        launch=launch,
        weights=shape.weights,
        kv_full=full,
        kv_sliding=sliding,
        kv_indexer=indexer,
        recurrent=slots * states,
        output=4 * shape.vocabulary * slots,
        compute_bound=compute,
        headroom=_headroom(shape, plan, compute),
        draft=draft,
        process=_PROCESS_BYTES + _PROCESS_BYTES_PER_TOKEN * shape.vocabulary,
        host_cache_bound=0 if shape.embedder else plan.host_cache,
        checkpoints=slots * _checkpoint_bytes(shape, plan, launch, states),
        embed_output=4 * shape.vocabulary * launch.num_batch if shape.embedder else 0,
        notes=notes,
    )


def _row(kind: str, elements: int) -> int:
    """Bytes of one token's row; llama.cpp lays out whole blocks."""
    size, block = rules.CACHE_TYPES[kind]
    return -(-elements // block) * size


def _cache_bytes(shape: ModelShape, plan: LaunchPlan, launch: Launch) -> tuple[int, int]:
    """Bytes of one sequence in full and in sliding layers."""
    full = sliding = 0
    # Without flash attention the value cache is transposed, and then every row is as wide as the widest.
    widest = 0 if plan.flash_attention else max((layers.value_width for layers in shape.cache), default=0)
    for layers in shape.cache:
        values = layers.value_width and max(layers.value_width, widest)
        row = _row(plan.kv_cache_type, layers.key_width) + _row(plan.kv_cache_type, values)
        if layers.sliding:
            sliding += layers.count * launch.sliding_cells * row
        else:
            full += layers.count * launch.cells * row
    return full, sliding


def _state_bytes(shape: ModelShape, plan: LaunchPlan) -> int:
    """Bytes of one sequence's recurrent state: 32-bit floats whatever the cache type."""
    if (state := shape.recurrent) is None:
        return 0
    copies = 1 + (plan.draft_tokens if state.drafts else 0)
    return copies * 4 * (state.conv_floats + state.state_floats) * state.layers


def _compute_bound(shape: ModelShape, plan: LaunchPlan, launch: Launch, logits: int) -> int:
    """The scratch buffer of one batch: the widest step's activations, masks or scores, and the logits."""
    batch, slots = launch.num_batch, launch.num_parallel
    # An encoder attends within its batch.
    cells, sliding = (batch, 0) if shape.encoder else (launch.cells, launch.sliding_cells)
    step, attention = _step_floats(shape), _attention_floats(shape, cells)
    extra = shape.layer_input
    if plan.flash_attention:
        bound = 4 * batch * (max(step, attention) + extra) + 2 * batch * (cells + sliding)
    else:
        idle = step + 2 * shape.embedding + extra + cells + sliding
        scores = attention + extra + (shape.heads + 1) * cells + sliding
        bound = 4 * batch * max(idle, scores)
        bound += 1024 * cells * slots if shape.mla_key else 0
        bound = -(-bound * 23 // 20)
    if (state := shape.recurrent) is not None:
        bound += 8 * slots * (state.conv_floats + state.state_floats)
    bound += 4 * shape.vocabulary * logits
    if plan.kv_cache_type not in rules.UNQUANTIZED and shape.key % 64 == 0:
        side = 64
        while side <= max(shape.key, shape.value):  # rotation matrices of a quantized cache
            bound += 4 * side * side
            side *= 2
    return bound + _MIB


def _step_floats(shape: ModelShape) -> int:
    """Floats a token that a feed-forward, expert or recurrent step holds at once."""
    step = 3 * shape.feed_forward + 5 * shape.embedding
    if (experts := shape.experts) is not None:
        each = 3 * experts.width + shape.embedding
        step = max(step, experts.used * each + 5 * shape.embedding + 3 * experts.shared_width)
    if shape.recurrent is not None:
        step = max(step, 5 * shape.embedding + shape.recurrent.step_floats)
    return step + (3 * shape.embedding if shape.parallel_state else 0)


def _attention_floats(shape: ModelShape, cells: int) -> int:
    """Floats a token that attention holds at once, scores left out."""
    if shape.mla_key:
        floats = 4 * shape.embedding + shape.heads * (shape.key + shape.value + shape.mla_key + shape.mla_value)
    else:
        both = shape.key + shape.value
        floats = 4 * shape.embedding + shape.heads * (shape.key + both) + shape.kv_heads * both
    if shape.indexer_layers:
        floats += 4 * cells + 14 * shape.indexer_heads * shape.indexer_key
    return floats


def _headroom(shape: ModelShape, plan: LaunchPlan, compute: int) -> int:
    # The bound is tight for some models: a twentieth more on a CPU, a fifth more where nobody has measured.
    margin = compute // 5 + plan.gpus * DEVICE_OVERHEAD if plan.gpus else compute // 20
    return margin + (PROJECTOR_HEADROOM if shape.vision else 0)


def _checkpoint_bytes(shape: ModelShape, plan: LaunchPlan, launch: Launch, states: int) -> int:
    """Bytes of the checkpoints of one slot; only models whose cache cannot be rewound make them."""
    if shape.embedder or not (shape.window or shape.recurrent):
        return 0
    count = min(plan.checkpoints, launch.num_ctx // rules.CHECKPOINT_SPACING + 3)
    rows = sum(
        layers.count * (_row(plan.kv_cache_type, layers.key_width) + _row(plan.kv_cache_type, layers.value_width))
        for layers in shape.cache
        if layers.sliding
    )
    tokens = min(launch.num_ctx, shape.window)
    return count * (tokens * (_ENTRY_BYTES_PER_TOKEN + rows) + states)


def largest_window(shape: ModelShape, plan: LaunchPlan, limit: int, *, with_host: bool = True) -> int:
    """The largest num_ctx whose footprint stays within `limit` bytes; 0 when none does.

    A multiple of 256, or the trained window itself. `with_host` counts `Footprint.total`, else `Footprint.loaded`.
    The footprint never shrinks as the window grows, and grows evenly over long stretches: so the range is divided where
    the limit lies between the sizes at its ends, and every other time in the middle, which ends it whatever happens.
    """

    def size(window: int) -> int:
        found = footprint(shape, replace(plan, num_ctx=window))
        return found.total if with_host else found.loaded

    most = shape.trained_window or max(plan.num_ctx, _LARGEST_UNKNOWN_WINDOW)
    if (too_much := size(most)) <= limit:
        return most
    low, high = 1, -(-most // rules.CELL_PADDING)  # in steps of the padding: low fits, high does not
    if high == 1 or (fits := size(rules.CELL_PADDING)) > limit:
        return 0
    turn = 0
    while high - low > 1:
        turn += 1
        share = (limit - fits) / (too_much - fits) if turn % 2 else 0.5
        between = min(max(low + int((high - low) * share), low + 1), high - 1)
        found = size(between * rules.CELL_PADDING)
        if found <= limit:
            low, fits = between, found
        else:
            high, too_much = between, found
    return low * rules.CELL_PADDING
