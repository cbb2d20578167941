"""Vocabularies made by hand, as GGUF metadata, and the bytes of GGUF files that hold them."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ollama_gate.counting.letters import BYTE_LETTERS, BYTE_TEXTS

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

STRING, ARRAY = 8, 9
CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def byte_level(
    merges: Sequence[str] = ("h e", "l l", "he ll", "hell o", "Ġ w"),
    specials: Mapping[str, int] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A `gpt2` vocabulary: all bytes, what the merges make, and special tokens (text → type)."""
    specials = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL} if specials is None else specials
    tokens = [*BYTE_LETTERS, *(merge.replace(" ", "") for merge in merges), *specials]
    types = [NORMAL] * (len(tokens) - len(specials)) + list(specials.values())
    return metadata("gpt2", tokens, types, merges=list(merges), pre="gpt-2", **more)


def sentencepiece(
    pieces: Mapping[str, float] | None = None, specials: Mapping[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    """A `llama` vocabulary: `<unk> <s> </s>`, all bytes, pieces with scores, and special tokens."""
    pieces = {"▁": -9.0, "a": -10.0, "b": -11.0, "ab": -1.0, "▁a": -2.0, "▁ab": -0.5} if pieces is None else pieces
    first = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    specials = {"<start_of_turn>": CONTROL, "<end_of_turn>": CONTROL} if specials is None else specials
    tokens = [*first, *BYTE_TEXTS, *pieces, *specials]
    types = [*first.values(), *[BYTE] * 256, *[NORMAL] * len(pieces), *specials.values()]
    scores = [0.0] * 259 + list(pieces.values()) + [0.0] * len(specials)
    return metadata("llama", tokens, types, scores=scores, **more)


def wordpiece(
    words: Sequence[str] = ("▁hello", "▁world", "▁un", "known", "s", "▁.", "▁世"), **more: Any
) -> dict[str, Any]:
    """A `bert` vocabulary: `[PAD] [UNK] [CLS] [SEP]` and words."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    ids = {"unknown_token_id": 1, "bos_token_id": 2, "seperator_token_id": 3}
    return metadata("bert", tokens, [CONTROL] * 4 + [NORMAL] * len(words), **{**ids, **more})


def unigram(pieces: Mapping[str, float] | None = None, **more: Any) -> dict[str, Any]:
    """A `t5` vocabulary: `<pad> </s> <unk>` and pieces with scores; NFKC-like normalising of a few characters."""
    pieces = {"▁": -3.0, "▁ab": -4.0, "a": -5.0, "b": -5.0, "ab": -6.0, "▁a": -7.0} if pieces is None else pieces
    tokens, types = ["<pad>", "</s>", "<unk>", *pieces], [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * len(pieces)]
    charsmap = list(compiled({"ａ": "a", "\n": " ", "\u3000": " ", "b\u0300": "b", "ﷺ": "a b", "\x01": ""}))
    values = {"scores": [0.0] * 3 + list(pieces.values()), "precompiled_charsmap": charsmap, "add_space_prefix": True}
    return metadata("t5", tokens, types, **{**values, **more})


def compiled(replacements: Mapping[str, str]) -> bytes:
    """A SentencePiece charsmap, laid out wastefully: 256 units for every node."""
    units = [0] * 256
    texts = b""
    nodes = {b"": 0}
    for stretch, made in replacements.items():
        encoded = stretch.encode()
        for length in range(1, len(encoded) + 1):
            spelled = encoded[:length]
            if spelled not in nodes:
                nodes[spelled] = len(units)
                parent = nodes[spelled[:-1]]
                index = parent ^ spelled[-1]
                units[index] = spelled[-1] | (index ^ len(units)) << 10
                units += [0] * 256
        units[nodes[encoded[:-1]] ^ encoded[-1]] |= 1 << 8
        units[nodes[encoded]] = 1 << 31 | len(texts)
        texts += made.encode() + b"\0"
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


def metadata(model: str, tokens: Sequence[str], types: Sequence[int], **more: Any) -> dict[str, Any]:
    """Metadata with these keys; those in `more` are of the tokenizer too, unless they hold a dot."""
    found: dict[str, Any] = {"general.architecture": "test", f"{PREFIX}model": model, f"{PREFIX}tokens": list(tokens)}
    found[f"{PREFIX}token_type"] = list(types)
    for key, value in more.items():
        found[key if "." in key else PREFIX + key] = value
    return found


def gguf_bytes(
    values: Mapping[str, Any], tensors: Sequence[tuple[str, Sequence[int], int, int]] = (), version: int = 3
) -> bytes:
    """A GGUF file; each tensor is a name, dimensions, a type and an offset."""
    pairs = b"".join(_string(key) + struct.pack("<I", _kind(value)) + _value(value) for key, value in values.items())
    infos = b"".join(
        _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        for name, shape, kind, offset in tensors
    )
    return b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + pairs + infos


def _kind(value: Any) -> int:
    if isinstance(value, bool):
        return 7
    if isinstance(value, str):
        return STRING
    if isinstance(value, list):
        return ARRAY
    return 5 if isinstance(value, int) else 6


def _value(value: Any) -> bytes:
    kind = _kind(value)
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        item = _kind(value[0]) if value else 4
        return struct.pack("<IQ", item, len(value)) + b"".join(map(_value, value))
    return struct.pack("<" + CODES[kind], value)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
