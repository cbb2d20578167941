"""The configuration: one frozen value whose fields are the file's keys, with their defaults and meanings.

Sizes are bytes and times are seconds, whatever the file says them in. What a model gets is `Config.model_policy`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ollama_gate.config.address import Address, upstream_address
from ollama_gate.config.archive import Archive
from ollama_gate.config.compaction import Compaction
from ollama_gate.config.keys import Budget, Duration, FilePath, LogSource, Section, Size, UpstreamUrl, key
from ollama_gate.config.server import Access, Server, Shared
from ollama_gate.config.signals import Signals
from ollama_gate.errors import GateError

MIB, GIB = 1024**2, 1024**3


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """Where tokenizers are kept: systemd's cache directory, else the user's (XDG base directories), else /var/cache."""
    if systemd := environ.get("CACHE_DIRECTORY"):
        return Path(systemd.split(":")[0])
    if (xdg := environ.get("XDG_CACHE_HOME")) and Path(xdg).is_absolute():
        return Path(xdg) / "ollama-gate"
    if home := environ.get("HOME"):
        return Path(home) / ".cache" / "ollama-gate"
    return Path("/var/cache/ollama-gate")


class Upstream(Section):
    """The Ollama that the gate stands in front of."""

    url: UpstreamUrl = key(
        "http://127.0.0.1:11434",
        "Where Ollama is, written as OLLAMA_HOST is: `host`, `host:port` or `http(s)://host[:port][/path]`.",
    )
    connect_timeout: Duration = key(
        5.0, "Time to make a connection; then the answer is 503.", unit="time", gt=0.0, le=300.0
    )
    idle_timeout: Duration = key(
        600.0,
        "Longest silence between two reads from Ollama; then the answer is 504, or a running stream is aborted. "
        "Loading a model is silent, so this is longer than the slowest load.",
        unit="time",
        gt=0.0,
    )
    num_parallel: int = key(1, "What OLLAMA_NUM_PARALLEL is there: slots of each model.", unit="slots", ge=1, le=256)
    kv_cache_type: Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"] = key(
        "f16", "What OLLAMA_KV_CACHE_TYPE is there; memory is planned with it."
    )
    flash_attention: bool = key(
        True,
        "Whether models run with flash attention there: yes where Ollama decides by itself (OLLAMA_FLASH_ATTENTION "
        "unset) on a CPU or a GPU that can. Without it buffers are many times larger, and a quantized cache cannot be.",
    )
    swa_full: bool = key(
        False, "Whether LLAMA_ARG_SWA_FULL is set there: sliding-window layers then keep the whole window."
    )
    forward_authorization: bool = key(
        False,
        "Pass the client's Authorization header on. Ollama checks none; a proxy between the gate and Ollama may.",
    )
    log: LogSource | None = key(
        None,
        "Where Ollama's own log is: `journald:` and the name of its unit, or a file. It is followed for prompts that "
        "were cut, which can only happen past the gate. The gate has to be allowed to read it.",
        example="journald:ollama",
    )
    max_connections: int = key(
        0, "Most connections to Ollama at one time; 0 is no limit (the queue is the limit).", unit="connections", ge=0
    )

    @property
    def address(self) -> Address:
        """Host and port of `url`."""
        return upstream_address(self.url)


class Memory(Section):
    """What models may take together."""

    limit: Size | Literal["auto"] | None = key(
        None,
        'Most memory that loaded models may take together; "auto" is the memory of this machine (or its control group) '
        "less `reserve`; with GPUs of their own memory name what they have. Absent: no limit is kept.",
        unit="size",
        example="24GiB",
    )
    reserve: Size = key(2 * GIB, 'What `limit = "auto"` leaves to the rest of the machine.', unit="size")
    on_full: Literal["evict", "wait", "refuse"] = key(
        "evict",
        "When a model does not fit beside those loaded: unload the least recently used idle one, wait until one goes "
        "by itself, or refuse.",
    )
    host_cache_per_model: Size = key(
        8 * GIB,
        "Prompt cache that llama-server may build up in host memory for each model (8 GiB unless LLAMA_ARG_CACHE_RAM "
        "is set for Ollama).",
        unit="size",
    )
    checkpoints: int = key(
        32,
        "Most checkpoints that llama-server keeps in host memory for each slot of a model with sliding-window or "
        "recurrent layers (32 unless LLAMA_ARG_CTX_CHECKPOINTS is set for Ollama).",
        unit="checkpoints",
        ge=0,
        le=4096,
    )
    gpus: Annotated[int, Field(ge=0, le=64)] | Literal["auto"] = key(
        "auto",
        "GPUs that a model is spread over: 256 MiB each are booked for driver and context, and a wider margin, because "
        'neither could be measured. "auto": one from the moment that Ollama reports video memory in use, none before.',
        unit="GPUs",
    )
    counts_host: bool | Literal["auto"] = key(
        "auto",
        "Whether `limit` is one for host memory too, so that prompt caches and processes count against it. "
        '"auto": yes without a GPU, no with one. Say true on machines whose GPU shares the memory of the CPU (Apple '
        "silicon, NVIDIA Jetson and DGX Spark, AMD Strix Halo, integrated graphics).",
    )


class Queue(Section):
    """How requests wait for one of a model's slots."""

    depth: int = key(
        64,
        "Most requests that wait for one model; the next is answered 503. One place in eight is kept for clients of "
        "whom no request waits, so that a busy one cannot fill them all.",
        unit="requests",
        ge=0,
    )
    deadline: Duration = key(
        240.0,
        "Longest wait for a slot; then the answer is 503. Agents give up at 300 s and send everything again, "
        "so stay below that.",
        unit="time",
        gt=0.0,
    )


class Counting(Section):
    """How prompts are counted."""

    cache_dir: FilePath = key(
        meaning="Directory for tokenizers built from models, by digest. It can be deleted at any time. Absent: "
        "$CACHE_DIRECTORY (systemd), else $XDG_CACHE_HOME/ollama-gate, else ~/.cache/ollama-gate.",
        example="/var/cache/ollama-gate",
        default_factory=lambda: default_cache_dir(os.environ),
    )
    tokenizer_memory: Size = key(
        400 * MIB,
        "Memory for loaded tokenizers; the least recently used goes first. One that is in use is never dropped.",
        unit="size",
    )
    ask_upstream: bool = key(
        True,
        "Ask Ollama for the rendered prompt (`_debug_render_only`, no inference) where it cannot be rendered here "
        "exactly and the answer matters. Off: such prompts are estimated.",
    )
    count_timeout: Duration = key(
        30.0, "Longest time for one count, building a tokenizer included; then the bound is used.", unit="time", gt=0.0
    )
    unknown_vocabulary: Literal["bound", "refuse"] = key(
        "bound",
        "For a model whose vocabulary is not known to be exact here: judge prompts by a proven bound (bytes of text), "
        "or refuse them.",
    )
    threads: int = key(1, "Threads that count.", unit="threads", ge=1, le=64)
    estimate_margin: float = key(
        0.25,
        "Added to an estimate until the model's own error has been measured (0.25 is 25 %).",
        unit="share",
        ge=0.0,
        le=10.0,
    )


class Refusals(Section):
    """How the gate says no."""

    grace: bool = key(
        True,
        "After a refusal, let the same conversation pass once with a prompt over the budget that still fits the window "
        "whole: agents compact that way.",
    )
    remember: Duration = key(
        10.0, "How long a refused body is answered from memory when it is sent again unchanged; 0 is off.", unit="time"
    )


class Dialects(Section):
    """How the translated APIs below /v1 are spoken."""

    server_tools: Literal["drop", "refuse", "pass"] = key(
        "drop",
        "Tools that Ollama would run by itself (web search): left out with a header that says so, or the request is "
        "refused, or passed to Ollama's own layer for /v1. Ollama's follow-up requests never pass the gate, so that "
        "only the first prompt is guarded then, and that layer loads the model with a window of its own: the "
        "Modelfile's num_ctx, which should be the one declared here, or Ollama's default.",
    )
    bare_names: bool = key(
        False,
        "List `x:latest` a second time as `x` in /api/tags. Clients that look for the bare name there, as Codex does "
        "with --oss, otherwise pull a model that is there.",
    )


class Log(Section):
    """What is logged. Prompt text never is."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "Least level that is written.")
    format: Literal["json", "console"] = key("json", "One JSON object a line, or lines for people.")


class Metrics(Section):
    """Prometheus metrics."""

    enabled: bool = key(True, "Serve /gate/metrics.")


class ModelKeys(Section):
    """What can be said for one model, or for all in [defaults]."""

    num_ctx: int = key(
        8192,
        "The window: tokens that one slot holds, sent with every request so that no client changes it and nothing "
        "reloads the model. A multiple of 256 is best: llama-server rounds up to one.",
        unit="tokens",
        ge=4,
        le=2**31 - 1,
    )
    budget: Budget | None = key(
        None,
        "Largest prompt that is let through, in tokens or as a share of the window; the rest is room for the answer. "
        "At most the window less one. Absent: 80 % of the window.",
        unit="tokens or share",
        example="80%",
    )
    shift: bool = key(
        False,
        "Let Ollama drop the start of the conversation when an answer reaches the end of the window. "
        "The system prompt is kept.",
    )
    on_long_reply: Literal["clamp", "refuse"] = key(
        "clamp",
        "When a client asks for more output than there is room for: shorten what it asked for, or refuse.",
    )
    num_batch: int | None = key(
        None,
        "Tokens that Ollama evaluates at a time. This and the next four decide how a model is loaded: what is declared "
        "is sent with every request, and where nothing is, the Modelfile's or Ollama's own value holds.",
        unit="tokens",
        example=512,
        ge=1,
        le=2**20,
    )
    num_gpu: int | None = key(None, "Layers that lie on the GPU; 0 is none.", unit="layers", example=20, ge=0, le=2**16)
    main_gpu: int | None = key(None, "The GPU that small tensors lie on.", unit="number", example=0, ge=0, le=1024)
    num_thread: int | None = key(None, "Threads of the CPU.", unit="threads", example=8, ge=1, le=4096)
    use_mmap: bool | None = key(None, "Whether the weights are mapped rather than read.", example=True)
    on_load_option: Literal["drop", "refuse"] = key(
        "drop",
        "When a client sends one of the five, or draft_num_predict, which would load the model again: leave it out and "
        "say so in a header, or refuse.",
    )
    compaction: bool = key(
        False,
        "Shorten a chat that is over the budget instead of refusing it, as [compaction] says. System messages, the "
        "question, the last messages and tool calls with their results stay; of what is older, excerpts do.",
    )
    image_tokens: int | None = key(
        None,
        "What one image costs. Absent: learned from Ollama's counts, 768 until then.",
        unit="tokens",
        example=768,
        ge=1,
    )
    tokenizer: FilePath | None = key(
        None,
        "A tokenizer.json, or a directory of Hugging Face's, to count with instead of the model's own vocabulary. "
        "Its counts are estimates until Ollama's have agreed with five of them. A directory without a tokenizer.json "
        "takes the extra `ollama-gate[transformers]`. A relative path starts at this file's directory.",
        example="tokenizers/my-model/tokenizer.json",
    )


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """What the operator wants for one model, with [defaults] filled in."""

    key: str
    """The model's canonical name."""
    num_ctx: int
    """The window asked for, in tokens. A model trained on less gets less."""
    own_num_ctx: int | None
    """The same where it stands in the model's own section; None where it comes from [defaults]."""
    budget: int | float | None
    """The budget as declared: tokens, a share of the window (a float in (0, 1]), or None for the default share."""
    shift: bool
    own_shift: bool | None
    """The same where it stands in the model's own section."""
    on_long_reply: Literal["clamp", "refuse"]
    load_options: Mapping[str, int | bool]
    """Options that decide how the model is loaded, as declared."""
    on_load_option: Literal["drop", "refuse"]
    compaction: bool
    image_tokens: int | None
    """Tokens of one image; None means learned."""
    tokenizer: Path | None
    num_ctx_declared: bool
    """Whether the operator declared the window, for this model or in [defaults]."""

    @property
    def budget_declared(self) -> bool:
        """Whether the operator declared the budget, for this model or in [defaults]."""
        return self.budget is not None


class Config(Section):
    """Everything the operator decides."""

    server: Server = Field(default_factory=Server, description="Where the gate listens, and what it takes.")
    access: Access = Field(default_factory=Access, description="Who gets in.")
    shared: Shared = Field(
        default_factory=Shared,
        description="What several gates have in common, each in front of an Ollama of its own.",
    )
    upstream: Upstream = Field(default_factory=Upstream, description="The Ollama that the gate stands in front of.")
    memory: Memory = Field(default_factory=Memory, description="What models may take together.")
    queue: Queue = Field(default_factory=Queue, description="How requests wait for one of a model's slots.")
    counting: Counting = Field(default_factory=Counting, description="How prompts are counted.")
    refusals: Refusals = Field(default_factory=Refusals, description="How the gate says no.")
    compaction: Compaction = Field(
        default_factory=Compaction,
        description="How conversations are compacted, for the models that have `compaction = true`.",
    )
    dialects: Dialects = Field(default_factory=Dialects, description="How the translated APIs below /v1 are spoken.")
    archive: Archive = Field(
        default_factory=Archive,
        description="The messages of compacted conversations, kept. The one place where the gate stores prompt text.",
    )
    signals: Signals = Field(
        default_factory=Signals, description="Symptoms of a full or broken context, looked for in conversations."
    )
    log: Log = Field(default_factory=Log, description="What is logged. Prompt text never is.")
    metrics: Metrics = Field(default_factory=Metrics, description="Prometheus metrics.")
    defaults: ModelKeys = Field(default_factory=ModelKeys, description="What every model gets that says nothing else.")
    models: dict[str, ModelKeys] = Field(
        default_factory=dict,
        description='What single models get: [models."name"], with the keys of [defaults], each optional.',
    )

    def for_models(self, canonical: Callable[[str], str]) -> tuple["Config", list[tuple[str, str]]]:
        """The same configuration with its models under their canonical names, and the names that it has twice.

        Args:
            canonical: the catalog's rule for names; a GateError of it means that a name is none.

        Returns:
            The configuration, and (name as spelled, what is wrong) for each name that cannot be used.
        """
        spelled: dict[str, str] = {}
        models: dict[str, ModelKeys] = {}
        wrong: list[tuple[str, str]] = []
        for name, keys in self.models.items():
            try:
                full = canonical(name)
            except GateError as error:
                wrong.append((name, f"is not a model name: {error}"))
                continue
            if full in models:
                wrong.append((name, f'is the same model as [models."{spelled[full]}"]: keep one of them'))
                continue
            spelled[full] = name
            models[full] = keys
        return self.model_copy(update={"models": models}), wrong

    def model_policy(self, key: str) -> ModelPolicy:
        """What the model with this canonical name gets."""
        own = self.models.get(key)
        keys = self.defaults
        if own is not None:
            keys = keys.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})
        budget = keys.budget
        return ModelPolicy(
            key=key,
            num_ctx=keys.num_ctx,
            own_num_ctx=own.num_ctx if own is not None and "num_ctx" in own.model_fields_set else None,
            budget=float(budget.removesuffix("%")) / 100 if isinstance(budget, str) else budget,
            shift=keys.shift,
            own_shift=own.shift if own is not None and "shift" in own.model_fields_set else None,
            on_long_reply=keys.on_long_reply,
            load_options=_said(
                num_batch=keys.num_batch,
                num_gpu=keys.num_gpu,
                main_gpu=keys.main_gpu,
                num_thread=keys.num_thread,
                use_mmap=keys.use_mmap,
            ),
            on_load_option=keys.on_load_option,
            compaction=keys.compaction,
            image_tokens=keys.image_tokens,
            tokenizer=keys.tokenizer,
            num_ctx_declared="num_ctx" in keys.model_fields_set,
        )


def _said(**options: int | bool | None) -> dict[str, int | bool]:
    return {name: value for name, value in options.items() if value is not None}
