"""What a rehearsal model is: its GGUF metadata, its Modelfile, and how its prompts are written."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ollama_gate.rehearsal.gguf import read_metadata
from ollama_gate.rehearsal.vocabulary import Encoder, Vocabulary, engine_of, rehearsal_metadata
from ollama_gate.rehearsal.wordpiece import WordPiece, wordpiece_metadata

Json = Mapping[str, Any]


class Mode(StrEnum):
    """Who writes a chat prompt (`server/routes.go:chatModeForModel`, v0.33)."""

    JINJA = "jinja"
    """llama-server, with the GGUF's chat template ("native")."""
    GO = "go"
    """Ollama, with the Modelfile's Go template."""
    RENDERER = "renderer"
    """Ollama, with a built-in renderer."""
    EMBEDDING = "embedding"
    """No one: the model only embeds."""


@dataclass(frozen=True)
class Model:
    """One installed name. Two names with the same `blob` are one GGUF file and share one runner."""

    name: str
    mode: Mode = Mode.JINJA
    text: str = "chatml"
    """Which of `rendering.STYLES` writes its prompts, or the text of a jinja template."""
    renderer: str = ""
    parser: str = ""
    capabilities: tuple[str, ...] = ("completion",)
    context_length: int = 8192
    """Trained length, in tokens."""
    parameters: Json = field(default_factory=dict)
    system: str = ""
    messages: tuple[Json, ...] = ()
    family: str = "llama"
    blob: str = ""
    """Name of the GGUF blob; empty for one of its own."""
    add_bos: bool = False
    projector: bool = False
    """It has a vision projector in a file of its own."""
    image_tokens: int = 256
    """What llama-server really spends on an image."""
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    width: int = 64
    """Embedding length."""
    gguf: str = ""
    """A GGUF file whose metadata is served in place of the rehearsal's own vocabulary."""
    info: Json = field(default_factory=dict)
    """More GGUF key/values, or others in their place."""
    size: int = 2_000_000
    """Bytes of weights that it claims."""
    shift: bool = True
    """Whether context shift is on when nobody says (`false` for the family deepseek2)."""
    can_shift: bool = True
    """Whether llama-server can shift at all (sliding-window and vision models cannot)."""
    modified_at: str = "2026-11-30T08:00:16.049324747Z"

    @cached_property
    def embeds(self) -> bool:
        """Whether it is an embedder: `<arch>.pooling_type` is present."""
        return self.mode is Mode.EMBEDDING

    @cached_property
    def blob_digest(self) -> str:
        """sha256 of the GGUF file it pretends to be."""
        return _sha256("blob", self.blob or self.name)

    @cached_property
    def digest(self) -> str:
        """sha256 of the manifest it pretends to have; changes with everything that the Modelfile says."""
        return _sha256("manifest", repr(self))

    @cached_property
    def tokenizer_metadata(self) -> Json:
        """The `tokenizer.ggml.*` key/values; those of `info` come last."""
        if self.gguf:
            values = _metadata_of_file(self.gguf)
        else:
            values = wordpiece_metadata() if self.embeds else rehearsal_metadata(add_bos=self.add_bos)
        return {**values, **self.info} if self.info else values

    @cached_property
    def vocabulary(self) -> Encoder:
        """The tokenizer; all over one file, or over the rehearsal's own tokens, share one engine."""
        metadata = {k: v for k, v in self.tokenizer_metadata.items() if k.startswith("tokenizer.ggml.")}
        if metadata["tokenizer.ggml.model"] == "bert":
            return WordPiece(metadata)
        return Vocabulary(metadata, _engine(self.gguf))

    @cached_property
    def model_info(self) -> Json:
        """GGUF key/values as `/api/show` lists them with `verbose`, sorted (a Go map)."""
        arch = "bert" if self.embeds else self.family
        head = self.width // self.heads
        values: dict[str, Any] = {
            "general.architecture": arch,
            "general.file_type": 1,
            "general.parameter_count": self.parameter_count,
            "general.quantization_version": 2,
            "general.tags": ["rehearsal", "text-generation"],
            "general.type": "model",
            f"{arch}.attention.head_count": self.heads,
            f"{arch}.block_count": self.layers,
            f"{arch}.context_length": self.context_length,
            f"{arch}.embedding_length": self.width,
            f"{arch}.feed_forward_length": 4 * self.width,
        }
        if self.embeds:
            values |= {f"{arch}.attention.causal": False, f"{arch}.pooling_type": 1}
        else:
            values |= {
                f"{arch}.attention.head_count_kv": self.kv_heads,
                f"{arch}.attention.key_length": head,
                f"{arch}.attention.value_length": head,
                f"{arch}.rope.freq_base": 10000,
                f"{arch}.vocab_size": len(self.tokenizer_metadata["tokenizer.ggml.tokens"]),
            }
        values |= self.tokenizer_metadata
        values |= self.info
        return {key: values[key] for key in sorted(values)}

    @cached_property
    def parameter_count(self) -> int:
        """Weights it would have: embeddings, attention and feed-forward of each layer."""
        return self.width * (len(self.tokenizer_metadata["tokenizer.ggml.tokens"]) + self.layers * 12 * self.width)

    @cached_property
    def details(self) -> Json:
        """The `details` object of show, tags and ps."""
        family = "bert" if self.embeds else self.family
        return {
            "parent_model": "",
            "format": "gguf",
            "family": family,
            "families": [family],
            "parameter_size": f"{self.parameter_count / 1000:.2f}K",
            "quantization_level": "F16",
        }

    @cached_property
    def tensors(self) -> Sequence[Json]:
        """Names, types and shapes of the weights it does not have."""
        vocabulary = len(self.tokenizer_metadata["tokenizer.ggml.tokens"])
        kv = self.kv_heads * (self.width // self.heads)
        out: list[Json] = [
            _tensor("token_embd.weight", self.width, vocabulary),
            _tensor("output_norm.weight", self.width),
        ]
        for layer in range(self.layers):
            out += [
                _tensor(f"blk.{layer}.attn_q.weight", self.width, self.width),
                _tensor(f"blk.{layer}.attn_k.weight", self.width, kv),
                _tensor(f"blk.{layer}.attn_v.weight", self.width, kv),
                _tensor(f"blk.{layer}.attn_output.weight", self.width, self.width),
                _tensor(f"blk.{layer}.ffn_up.weight", self.width, 4 * self.width),
                _tensor(f"blk.{layer}.ffn_down.weight", 4 * self.width, self.width),
            ]
        return out

    def kv_bytes(self, num_ctx: int, parallel: int) -> int:
        """Bytes of an f16 cache for `parallel` slots of `num_ctx` tokens."""
        return 2 * 2 * self.layers * self.kv_heads * (self.width // self.heads) * num_ctx * parallel

    def buffer_bytes(self, batch: int, cells: int, parallel: int) -> int:
        """Bytes of the buffers beside the cache, as measured of dense models with flash attention (b10488).

        A batch's activations, its 16-bit mask over the cells that it attends to, and logits for each slot, twice.
        """
        activations = 3 * 4 * self.width + 4 * self.width + 6
        logits = 4 * len(self.tokenizer_metadata["tokenizer.ggml.tokens"]) * parallel
        return 4 * batch * activations + 2 * batch * cells + 2 * logits


def _tensor(name: str, *shape: int) -> Json:
    return {"name": name, "type": "F16" if len(shape) > 1 else "F32", "shape": list(shape)}


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(("rehearsal", *parts)).encode()).hexdigest()


@cache
def _metadata_of_file(path: str) -> Json:
    values = read_metadata(Path(path))
    return {key: value for key, value in values.items() if key.startswith("tokenizer.ggml.")}


@cache
def _engine(path: str) -> Tokenizer:
    """The engine of a file's tokens, or of the rehearsal's own where `path` is empty."""
    return engine_of(_metadata_of_file(path) if path else rehearsal_metadata())


def full_name(name: str) -> str:
    """`model` as Ollama lists it: with a tag, without the default host and namespace."""
    short = name.removeprefix("registry.ollama.ai/").removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] else f"{short}:latest"
