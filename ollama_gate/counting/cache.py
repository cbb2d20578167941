"""What tokenizers are made of, on disk, so that a model met before is ready in a second.

One file a model appears whole or not at all. A file that another version of the builder wrote, or that was damaged,
is as good as none.
"""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import orjson

from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.merges import BpeRecipe
from ollama_gate.counting.tokenizer import Recipe
from ollama_gate.counting.unigram import UnigramRecipe
from ollama_gate.counting.wordpiece import WordPieceRecipe
from ollama_gate.files import appearing

MAKER = 5
"""To be raised with every change of what is kept, or of what it leads to."""

SUM_SIZE = 16

KINDS: Mapping[str, type[BpeRecipe | UnigramRecipe | WordPieceRecipe]] = {"bert": WordPieceRecipe, "t5": UnigramRecipe}


def save(path: Path, facts: TokenizerFacts, recipe: Recipe) -> None:
    """Keep what a tokenizer is made of (`tokenizer.plan`).

    Args:
        path: The file to write; an older one is replaced.
        facts: What is known about the tokenizer.
        recipe: What its engine is set up from.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    content = orjson.dumps({"made_by": MAKER, "facts": facts.to_json(), "recipe": recipe.to_json()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        file.write(_sum(content) + content)


def load(path: Path) -> tuple[TokenizerFacts, Recipe] | None:
    """What `save` kept; None where there is nothing that can be used."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:
        return None
    if bytes(content[:SUM_SIZE]) != _sum(content[SUM_SIZE:]):
        return None
    saved = orjson.loads(content[SUM_SIZE:])
    if saved["made_by"] != MAKER:
        return None
    facts = TokenizerFacts.from_json(saved["facts"])
    kind = KINDS.get(facts.model, BpeRecipe)
    return facts, kind.from_json(saved["recipe"])


def _sum(content: bytes | memoryview) -> bytes:
    return blake2b(content, digest_size=SUM_SIZE).digest()
