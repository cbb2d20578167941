"""Built tokenizers on disk, so that a model met before is ready in a second.

One directory per model holds what the engine saves and `facts.json`. A directory appears whole or not at all; one that
was written by another version of the builder or of the library, or was damaged, is as good as none.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from ollama_gate.counting.bpe import BpeEngine
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.tokenizer import Engine, Tokenizer
from ollama_gate.counting.wordpiece import WordPieceEngine

BUILDER = 1
"""To be raised with every change that gives other ids."""

FACTS, ENGINE = "facts.json", "engine.json"


def directory(cache: Path, digest: str) -> Path:
    """Where the tokenizer of a model is kept, whatever characters its digest is made of."""
    return cache / blake2b(digest.encode(), digest_size=20).hexdigest()


def save(tokenizer: Tokenizer, path: Path) -> None:
    """Write a tokenizer.

    Args:
        tokenizer: What `tokenizer.build` made.
        path: The directory to make; an older one is replaced.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=path.parent))
    try:
        saved = tokenizer.engine.save(partial / ENGINE)
        facts = {
            "made_by": _maker(),
            "engine": saved,
            "sum": _sum(partial / ENGINE),
            "facts": tokenizer.facts.to_json(),
        }
        (partial / FACTS).write_bytes(orjson.dumps(facts))
        shutil.rmtree(path, ignore_errors=True)
        os.rename(partial, path)  # noqa: PTH104 - Path.rename says the same, less plainly for directories
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def load(path: Path) -> Tokenizer | None:
    """Read a tokenizer; None where there is none that can be used."""
    try:
        saved = orjson.loads((path / FACTS).read_bytes())
        if saved["made_by"] != _maker() or saved["sum"] != _sum(path / ENGINE):
            return None
        facts = TokenizerFacts.from_json(saved["facts"])
        return Tokenizer(facts, _engine(path / ENGINE, facts, saved["engine"]))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _engine(path: Path, facts: TokenizerFacts, saved: Mapping[str, Any]) -> Engine:
    if facts.model == "bert":
        return WordPieceEngine.load(path, saved)
    return BpeEngine.load(path, saved)


def _maker() -> str:
    return f"{BUILDER}, tokenizers {version('tokenizers')}"


def _sum(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()
