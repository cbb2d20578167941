"""Real vocabularies for tests, from the cache that `scripts/vocabularies` fills; and small ones made by hand."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.catalog import gguf
from ollama_gate.counting.tokenizer import Tokenizer, build
from ollama_gate.counting.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
ORACLE = ROOT / "tests" / "data" / "oracle" / "tokenizer"

_NAMES = (
    "qwen2 qwen35 llama-bpe gemma-4 gemma3-270m phi-3 llama-spm gpt-2 starcoder command-r deepseek-coder deepseek-llm "
    "falcon mpt gpt-neox refact aquila baichuan bert-bge nomic-bert-moe"
)
FAMILIES = tuple(_NAMES.split())
"""Every vocabulary with an oracle of its own."""

PRE_TOKENIZERS = sorted(path.stem.partition("~")[2] for path in ORACLE.glob("gpt-2~*.json"))
"""Pre-tokenizers whose oracle was made with GPT-2's vocabulary under another `tokenizer.ggml.pre`."""


def vocabulary_file(name: str) -> Path:
    """The GGUF of a real vocabulary; the test fails where it was not fetched."""
    path = Path(os.environ.get("OLLAMA_GATE_TEST_CACHE") or ROOT / ".cache" / "vocabularies") / f"{name}.gguf"
    if not path.exists():
        pytest.fail(f"{path} is missing: run scripts/vocabularies, which fetches it (scripts/test does so itself)")
    return path


@lru_cache(maxsize=2)
def metadata(name: str) -> Mapping[str, Any]:
    """The GGUF metadata of a real vocabulary; `gpt-2~NAME` is GPT-2's with pre-tokenizer NAME."""
    base, _, pre = name.partition("~")
    found = gguf.read(vocabulary_file(base)).metadata
    return {**found, "tokenizer.ggml.pre": pre} if pre else found


@lru_cache(maxsize=3)
def tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a real vocabulary, built once per process as long as few others are asked for in between."""
    return build(Vocabulary.from_metadata(metadata(name), name))


@cache
def oracle_texts() -> Mapping[str, str]:
    """Name → text, made to break tokenizers."""
    texts: dict[str, str] = json.loads((ORACLE / "texts.json").read_text("utf-8"))
    return texts


@dataclass(frozen=True, slots=True)
class Recorded:
    """What llama.cpp b10488 made of one text."""

    tokens: int
    with_specials: int
    digest: str
    """The first 16 hex digits of the SHA-256 of the comma-joined ids."""


def oracle(name: str) -> Mapping[str, Recorded]:
    """Text name → what llama.cpp made of it."""
    rows = json.loads((ORACLE / f"{name}.json").read_text("utf-8"))["texts"]
    return {key: Recorded(row["n"], row["n_add_special"], row["sha"]) for key, row in rows.items()}


def each(names: list[str] | tuple[str, ...]) -> list[Any]:
    """Test parameters, one vocabulary each; all tests of one vocabulary go to one worker."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(name.partition("~")[0]), id=name) for name in names]
