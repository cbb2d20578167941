"""A model's vocabulary as its own metadata gives it.

The same keys come from a GGUF file and from `model_info` of `POST /api/show {"verbose": true}`; without `verbose`
Ollama answers null for every array. Defaults are llama.cpp's (`src/llama-vocab.cpp:llama_vocab::impl::load`, b10488).
"""

import base64
import binascii
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from types import MappingProxyType
from typing import Any

from ollama_gate.counting.compat import Shapes, corrected
from ollama_gate.counting.pretokenizers import BOS_BY_DEFAULT, BOS_FORCED
from ollama_gate.counting.specials import FIM_NAMES, SPACES, SPECIAL, Special, Specials, TokenType, engine_types
from ollama_gate.errors import UnknownVocabulary

PREFIX = "tokenizer.ggml."

DEFAULT_IDS: Mapping[str, Mapping[str, int]] = {
    "gpt2": {"bos": 11, "eos": 11},
    "gemma4": {},
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "bert": {"bos": 101, "unknown": 100, "seperator": 102},
    "t5": {"eos": 1, "unknown": 2},
}
"""Ids that a tokenizer model has when the file names none. `seperator` is how the format spells it."""

FIM_KEYS: Mapping[str, tuple[str, ...]] = {
    part: (f"fim_{part}_token_id", *old)
    for part, old in zip(
        FIM_NAMES,
        (("prefix_token_id",), ("suffix_token_id",), ("middle_token_id",), (), (), ()),
        strict=True,
    )
}

MAX_TOKENS = 1 << 22
"""Four million; the largest vocabulary in use has 262 144."""


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """What a tokenizer is built from."""

    model: str
    """`gpt2` (byte-level BPE), `gemma4` (text BPE), `llama` (SentencePiece BPE), `bert` (WordPiece), `t5` (unigram)."""
    pre: str
    """Which of llama.cpp's pre-tokenizers cuts the text first; `default` where the file says nothing."""
    tokens: Sequence[str]
    ids: Mapping[str, int]
    """The tokens' places in `tokens`, in that order."""
    types: Sequence[int]
    """As the engine has them after loading (`specials.engine_types`)."""
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    bos_id: int | None = None
    eos_id: int | None = None
    """The closing token: EOS, for bert the separator."""
    unknown_id: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool = False
    remove_extra_whitespaces: bool = False
    lowercase: bool = True
    strip_accents: bool = True
    charsmap: bytes = b""
    """SentencePiece's precompiled normalisation (unigram only)."""
    specials: Specials = field(default_factory=lambda: Specials(()))

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], model_name: str, shapes: Shapes = MappingProxyType({})
    ) -> "Vocabulary":
        """Read a vocabulary from GGUF metadata or from `/api/show`'s `model_info`.

        Args:
            metadata: Keys as in the file, e.g. `tokenizer.ggml.tokens`.
            model_name: Ollama's name for the model. Phi-3's tokens strip white space, which the engine decides by
                `general.name`; `/api/show` leaves that key out, so this stands in for it.
            shapes: Dimensions of the file's tensors, for models whose metadata Ollama corrects (`compat.py`).

        Raises:
            UnknownVocabulary: Something is missing, contradictory, or not known to be exact here.
        """
        metadata = corrected(metadata, shapes)
        model = _text(metadata, "model")
        defaults = DEFAULT_IDS.get(model)
        if defaults is None:
            raise UnknownVocabulary(f"tokenizer model {model!r} is not one that can be counted exactly")
        pre = model if model == "gemma4" else _text(metadata, "pre", "") or "default"
        ids = _ids(metadata)
        tokens = list(ids)
        given = _numbers(metadata, "token_type", len(tokens))
        named = [part for part, keys in FIM_KEYS.items() if any(_id(metadata, key, len(tokens)) for key in keys)]
        types = engine_types(ids, list(map(int, given)) or [TokenType.NORMAL] * len(tokens), named)
        known = {
            name: _id(metadata, f"{name}_token_id", len(tokens), defaults.get(name))
            for name in ("bos", "eos", "unknown", "seperator")
        }
        if pre in {"glm4", "chatglm-bpe"} and f"{PREFIX}bos_token_id" not in metadata:
            known["bos"] = None
        # An encoder's two markers are added whatever the file says (llama_vocab::impl::tokenize, WPM).
        bert = model == "bert"
        add_bos = bert or _flag(
            metadata, "add_bos_token", model == "llama" or (model == "gpt2" and pre in BOS_BY_DEFAULT)
        )
        add_eos = bert or _flag(metadata, "add_eos_token", model == "t5")
        lowercase = _flag(metadata, "normalizer.lowercase", True)
        vocabulary = cls(
            model=model,
            pre=pre,
            tokens=tokens,
            ids=ids,
            types=types,
            merges=_strings(metadata, "merges") if model in {"gpt2", "gemma4"} else (),
            scores=_scores(metadata, len(tokens)),
            bos_id=known["bos"],
            eos_id=known["seperator" if bert else "eos"],
            unknown_id=known["unknown"],
            add_bos=add_bos or pre in BOS_FORCED,
            add_eos=add_eos,
            add_space_prefix=_flag(metadata, "add_space_prefix", model == "llama"),
            remove_extra_whitespaces=_flag(metadata, "remove_extra_whitespaces", False),
            lowercase=lowercase,
            strip_accents=_flag(metadata, "normalizer.strip_accents", lowercase),
            charsmap=_bytes(metadata, "precompiled_charsmap"),
            specials=_specials(metadata, model_name, pre, tokens, types),
        )
        if vocabulary.add_bos and vocabulary.bos_id is None:
            raise UnknownVocabulary("a BOS token is to be added, but the vocabulary does not name one")
        if vocabulary.add_eos and vocabulary.eos_id is None:
            raise UnknownVocabulary("an EOS token is to be added, but the vocabulary does not name one")
        return vocabulary


def _specials(
    metadata: Mapping[str, Any], model_name: str, pre: str, tokens: Sequence[str], types: Sequence[int]
) -> Specials:
    """Which tokens are special, and which of them swallow white space (the end of llama_vocab::impl::load)."""
    architecture = str(metadata.get("general.architecture", ""))
    name = str(metadata.get("general.name") or model_name).lower()
    # Only Phi-3 has this architecture with this kind of vocabulary; a model made from it may have any name in Ollama.
    nameless_phi = "general.name" not in metadata and architecture == "phi3" and _text(metadata, "model") == "llama"
    lstrip: frozenset[str] = frozenset()
    rstrip = False
    if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        part in architecture for part in ("nomic-bert-moe", "jina-bert-v3")
    ):
        lstrip = frozenset({"<mask>"})
    elif "phi-3" in name or "phi3" in name or nameless_phi:
        rstrip = True
    elif "modern-bert" in name:
        lstrip = frozenset({"[MASK]"})
    kept = {"<unk>", "<s>", "<|endoftext|>"}
    found = tuple(
        Special(number, text, TokenType(types[number]), lstrip=text in lstrip, rstrip=rstrip and text not in kept)
        for number in compress(range(len(tokens)), map(SPECIAL.__contains__, types))
        for text in (tokens[number],)
    )
    if (rstrip or lstrip) and any(special.text[0] in SPACES or special.text[-1] in SPACES for special in found):
        raise UnknownVocabulary("special tokens swallow white space, and some begin or end with it")
    return Specials(found)


def _ids(metadata: Mapping[str, Any]) -> dict[str, int]:
    tokens = _strings(metadata, "tokens")
    if not tokens:
        raise UnknownVocabulary("the vocabulary holds no tokens")
    if len(tokens) > MAX_TOKENS:
        raise UnknownVocabulary(f"the vocabulary holds {len(tokens)} tokens")
    if "" in tokens:  # the engine gives them names
        tokens = [text or f"[EMPTY_{number}]" for number, text in enumerate(tokens)]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) != len(tokens):
        raise UnknownVocabulary("two tokens of the vocabulary have the same text")
    return ids


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    value = metadata.get(PREFIX + key)
    if value is None:
        raise UnknownVocabulary(f"{PREFIX}{key} is missing; /api/show gives it only with verbose")
    if not isinstance(value, list) or not set(map(type, value)) <= {str}:
        raise UnknownVocabulary(f"{PREFIX}{key} is not a list of strings")
    return value


def _numbers(metadata: Mapping[str, Any], key: str, least: int) -> list[float]:
    """A list of numbers, one a token; empty where the file has none."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return []
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        raise UnknownVocabulary(f"{PREFIX}{key} is not a list of numbers")
    if len(value) < least:
        raise UnknownVocabulary(f"{PREFIX}{key} has {len(value)} entries for {least} tokens")
    return value[:least]


def _scores(metadata: Mapping[str, Any], least: int) -> list[float]:
    """Scores as the engine holds them: single precision, of which JSON shows only the digits that matter."""
    try:
        scores = array("f", _numbers(metadata, "scores", least)).tolist()
    except OverflowError as error:
        raise UnknownVocabulary(f"{PREFIX}scores holds what is no score") from error
    if not all(map(math.isfinite, scores)):
        raise UnknownVocabulary(f"{PREFIX}scores holds what is no score")
    return scores


def _id(metadata: Mapping[str, Any], key: str, count: int, default: int | None = None) -> int | None:
    """A token id; one outside the vocabulary is ignored, as the engine does."""
    value = metadata.get(PREFIX + key, default)
    if isinstance(value, int) and 0 <= value < count:
        return value
    return default if default is not None and default < count else None


def _flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:  # noqa: FBT001 - a default value, not a mode
    value = metadata.get(PREFIX + key, default)
    return value if isinstance(value, bool) else default


def _text(metadata: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, str):
        raise UnknownVocabulary(f"{PREFIX}{key} is missing: this model brings no tokenizer that can be read")
    return value


def _bytes(metadata: Mapping[str, Any], key: str) -> bytes:
    """A byte array: numbers in a GGUF file, base64 in JSON (Go's encoding of []uint8)."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return b""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
        return bytes(number & 0xFF for number in value)
    except (binascii.Error, TypeError, ValueError) as error:
        raise UnknownVocabulary(f"{PREFIX}{key} is not a list of bytes") from error
