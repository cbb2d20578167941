"""Real vocabularies: text to token ids and back, from the metadata that a GGUF file carries.

`Vocabulary` is built from GGUF key/values whatever their source: the rehearsal's own merges, or a file on disk.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Protocol

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type` values (llama.cpp `include/llama.h:llama_token_type`)."""

_ATOMS = {CONTROL, USER_DEFINED, UNKNOWN}
"""Kinds that are found in a text before anything else."""

_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS: Mapping[str, str] = {
    "qwen2": _CONTRACTIONS + _WORDS + r"\p{N}" + _REST,
    "llama-bpe": _CONTRACTIONS + _WORDS + r"\p{N}{1,3}" + _REST,
}
"""`tokenizer.ggml.pre` to the pattern that splits text before merging (llama.cpp `src/llama-vocab.cpp`, b10488)."""

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
FORCED_CONTROL = {
    "</s>", "<eos>", "<EOT>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>",
    "<end_of_turn>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>",
}  # fmt: skip
"""Texts that llama.cpp takes for control tokens whatever the file says (`llama_vocab::impl::load`); the usual ones."""
MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

Metadata = Mapping[str, Any]


class Encoder(Hashable, Protocol):
    """What the rest of the rehearsal needs of a vocabulary."""

    specials: tuple[int, int]
    """How many tokens llama-server puts before and after a text (BOS and EOS)."""

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`; control tokens written in it count as themselves; `special` adds BOS and EOS."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, control tokens included."""
        ...

    def text_of(self, name: str) -> str:
        """The text of the special token of that name (`bos`, `eos`); empty when there is none."""
        ...


class Vocabulary:
    """A byte-level BPE (`gpt2`) or SentencePiece BPE (`llama`) vocabulary."""

    def __init__(self, metadata: Metadata, engine: Tokenizer | None = None) -> None:
        """Take the engine of the same tokens where there is one; only what is added around a text may differ."""
        self.metadata = metadata
        self._tokenizer = engine or engine_of(metadata)
        kind = metadata["tokenizer.ggml.model"]
        self._bos = self._added("bos", default=kind == "llama" or metadata.get("tokenizer.ggml.pre") == "llama-bpe")
        self._eos = self._added("eos", default=False)
        self.specials = (len(self._bos), len(self._eos))

    def _added(self, name: str, *, default: bool) -> list[int]:
        wanted = bool(self.metadata.get(f"tokenizer.ggml.add_{name}_token", default))
        return [int(self.metadata[f"tokenizer.ggml.{name}_token_id"])] if wanted else []

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`; control tokens written in it count as themselves; `special` adds BOS and EOS."""
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return [*self._bos, *ids, *self._eos] if special else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, control tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def text_of(self, name: str) -> str:
        """The text of the special token of that name (`bos`, `eos`); empty when there is none."""
        at = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
        return "" if at is None else str(self.metadata["tokenizer.ggml.tokens"][at])


def engine_of(metadata: Metadata) -> Tokenizer:
    """Build what encodes and decodes; it takes seconds for a large SentencePiece vocabulary.

    Raises:
        ValueError: for a type or pre-tokenizer that is not known here.
    """
    tokens: list[str] = list(metadata["tokenizer.ggml.tokens"])
    types: list[int] = list(metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens))
    kind = metadata["tokenizer.ggml.model"]
    if kind not in {"gpt2", "llama"}:
        raise ValueError(f"vocabulary type {kind!r} is not one the rehearsal knows")
    engine = _byte_level(metadata, tokens) if kind == "gpt2" else _sentence_piece(metadata, tokens)
    engine.add_special_tokens(
        [
            AddedToken(text, normalized=False, special=True)
            for text, kind_of in zip(tokens, types, strict=True)
            if kind_of in _ATOMS or text in FORCED_CONTROL
        ]
    )
    return engine


def _byte_level(metadata: Metadata, tokens: Sequence[str]) -> Tokenizer:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        raise ValueError(f"pre-tokenizer {pre!r} is not one the rehearsal knows")
    # A merge is "left right"; left may itself begin with the byte that stands for a space, never with a space.
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in metadata["tokenizer.ggml.merges"])]
    vocab = {token: at for at, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZERS[pre]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(metadata: Metadata, tokens: Sequence[str]) -> Tokenizer:
    """SentencePiece BPE: the pair whose union scores highest merges first, so scores give the order of the merges."""
    vocab = {token: at for at, token in enumerate(tokens)}
    scores: Sequence[float] = metadata["tokenizer.ggml.scores"]
    ranked: list[tuple[float, int, int]] = []
    for at, token in enumerate(tokens):
        ranked.extend(
            (-scores[at], at, cut) for cut in range(1, len(token)) if token[:cut] in vocab and token[cut:] in vocab
        )
    ranked.sort()
    merges = [(tokens[at][:cut], tokens[at][cut:]) for _, at, cut in ranked]
    unknown = tokens[int(metadata.get("tokenizer.ggml.unknown_token_id", 0))]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=True, byte_fallback=True, unk_token=unknown))
    steps: list[Any] = [normalizers.Replace(" ", "\u2581")]
    undo: list[Any] = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("\u2581"))
        undo.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(undo)
    return tokenizer


@cache
def rehearsal_metadata(*, add_bos: bool = False) -> Metadata:
    """The `tokenizer.ggml.*` key/values of the rehearsal's own vocabulary, as a GGUF of the qwen2 family has them."""
    merges = resources.files(__package__).joinpath("data/merges.txt").read_text("utf-8").splitlines()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(merge.replace(" ", "", 1) for merge in merges)]
    types = [NORMAL] * len(tokens) + [CONTROL] * len(CONTROL_TOKENS) + [USER_DEFINED] * len(MARKUP_TOKENS)
    end = len(tokens)
    return {
        "tokenizer.ggml.add_bos_token": add_bos,
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end + 2,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.padding_token_id": end,
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.tokens": [*tokens, *CONTROL_TOKENS, *MARKUP_TOKENS],
    }
