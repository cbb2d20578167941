"""Vocabularies of models that Ollama published for its own engine, as llama-server gets to see them.

Since 0.30 Ollama runs such GGUFs with llama.cpp and puts their metadata right while they are loaded
(`llama/compat/llama-ollama-compat.cpp`, v0.33). What that changes about the tokenizer is done here too: both a blob and
`/api/show` still hold the metadata as it was published.
"""

from collections.abc import Mapping
from typing import Any

from ollama_gate.counting.specials import TokenType

MODEL, PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
TOKENS, SCORES, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"
CHARSMAP = "tokenizer.ggml.precompiled_charsmap"

LLAMA_3_TOKENS: Mapping[int, str] = {128006: "<|start_header_id|>", 128009: "<|eot_id|>"}

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor name → dimensions, the row length first."""


def corrected(metadata: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Any]:
    """The metadata with the tokenizer that llama-server will use.

    Args:
        metadata: As the file has it; it is not changed.
        shapes: The tensors of the file. Without them (an empty mapping) nothing that depends on them is corrected.
    """
    changes: dict[str, Any] = {}
    match metadata.get("general.architecture"):
        case "gptoss":
            changes[PRE] = "gpt-4o"
        case "glmocr":
            if PRE in metadata:
                changes[PRE] = "chatglm-bpe"
        case "lfm2":
            if "output_norm.weight" in shapes and "token_embd_norm.weight" not in shapes:
                changes[PRE] = "lfm2"
        case "llama":
            if metadata.get(PRE) in (None, "", "default") and _is_llama_3(metadata):
                changes[PRE] = "llama-bpe"
        case "gemma4":
            if metadata.get(MODEL) == "llama":
                changes[MODEL] = "gemma4"
        case "gemma3":
            changes |= _cut(metadata, _rows(shapes, "token_embd.weight"))
        case "gemma3n":
            rows = _rows(shapes, "per_layer_token_embd.weight")
            if rows not in {None, _rows(shapes, "token_embd.weight")}:
                changes |= _gemma3n(metadata, rows)
        case "bert":
            # snowflake-arctic-embed2: base64, one letter an entry.
            charsmap = metadata.get(CHARSMAP)
            if isinstance(charsmap, list) and charsmap and all(isinstance(item, str) for item in charsmap):
                changes[CHARSMAP] = "".join(charsmap)
        case _:
            pass
    return {**metadata, **changes} if changes else metadata


def _is_llama_3(metadata: Mapping[str, Any]) -> bool:
    tokens = metadata.get(TOKENS)
    return isinstance(tokens, list) and all(
        number < len(tokens) and tokens[number] == text for number, text in LLAMA_3_TOKENS.items()
    )


def _rows(shapes: Shapes, name: str) -> int | None:
    shape = shapes.get(name, ())
    return shape[1] if len(shape) > 1 else None


def _cut(metadata: Mapping[str, Any], rows: int | None) -> dict[str, Any]:
    """Tokens that the embedding has no row for are dropped (`<image_soft_token>` and such)."""
    lists = {key: metadata.get(key) for key in (TOKENS, SCORES, TYPES)}
    return {key: value[:rows] for key, value in lists.items() if rows and isinstance(value, list) and len(value) > rows}


def _gemma3n(metadata: Mapping[str, Any], rows: int | None) -> dict[str, Any]:
    changes: dict[str, Any] = {MODEL: "llama", **_cut(metadata, rows)}
    tokens, types = changes.get(TOKENS, metadata.get(TOKENS)), changes.get(TYPES, metadata.get(TYPES))
    if isinstance(tokens, list) and isinstance(types, list):
        changes[TYPES] = [_gemma3n_type(text, kind) for text, kind in zip(tokens, types, strict=False)]
    return changes


def _gemma3n_type(text: str, kind: int) -> int:
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return TokenType.BYTE
    return TokenType.NORMAL if text.startswith("<unused") else kind
