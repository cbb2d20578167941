"""Where a card's tokenizer comes from: the file that the operator named, else the model's own vocabulary.

That is its blob on this host, else what Ollama reports; a safetensors model's is a file of Ollama's store.
"""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.catalog.modelstore import places, tokenizer_file
from ollama_gate.counting.remote import RemoteTokenizer
from ollama_gate.counting.store import TokenizerSource, TokenizerStore
from ollama_gate.errors import CountingError, UnknownVocabulary, UpstreamError

_BLOB: Final = re.compile(r"sha256-([0-9a-f]{64})$")


class CardTokenizers:
    """Gives the tokenizer of a model, with the catalog behind the store."""

    def __init__(
        self, store: TokenizerStore, catalog: Catalog, named: Callable[[ModelCard], Path | None] = lambda _: None
    ) -> None:
        """Join the two; `named` is the file that the operator wants for a model."""
        self._store = store
        self._catalog = catalog
        self._named = named

    def mark(self, card: ModelCard) -> str:
        """What tells this tokenizer from the model's own; empty for that."""
        named = self._named(card)
        return "" if named is None else str(named)

    async def get(self, card: ModelCard) -> RemoteTokenizer:
        """The tokenizer of a model; built or loaded when needed, which takes up to some seconds.

        Raises:
            UnknownVocabulary: this model's tokens cannot be counted here.
        """
        named = self._named(card)
        if named is not None:
            return await self._store.get(await asyncio.to_thread(_of_file, card, named))
        if card.format != "gguf":
            return await self._store.get(await asyncio.to_thread(_of_store, card))

        async def show() -> bytes:
            try:
                return await self._catalog.verbose(card)
            except UpstreamError as failure:
                raise CountingError(f"Ollama did not tell its vocabulary: {failure}") from failure

        source = TokenizerSource(vocabulary_key(card), card.name, Path(card.blob) if card.blob else None, show)
        return await self._store.get(source)


def _of_file(card: ModelCard, file: Path) -> TokenizerSource:
    """A file may be written anew: then it is another tokenizer."""
    try:
        state = (file / "tokenizer.json" if file.is_dir() else file).stat()
        at = f"{state.st_mtime_ns} {state.st_size}"
    except OSError:
        at = ""
    return TokenizerSource(f"{file} {at}", card.name, file=file)


def _of_store(card: ModelCard) -> TokenizerSource:
    file = tokenizer_file(card.name, card.digest, places(os.environ))
    if file is None:
        raise UnknownVocabulary(
            f"it is a {card.format} model, whose vocabulary Ollama does not tell, and no model store that can be read "
            "here has its tokenizer.json (OLLAMA_MODELS)"
        )
    return TokenizerSource(file.name, card.name, file=file)


def vocabulary_key(card: ModelCard) -> str:
    """What models with one vocabulary have in common: the digest of their weights' file, else their own.

    Many names stand for one file, and each tokenizer takes a hundred megabytes.
    """
    found = _BLOB.search(card.blob)
    return found[1] if found is not None else card.digest
