"""Where a card's tokenizer comes from: its blob on this host, else the vocabulary that Ollama reports."""

import re
from pathlib import Path
from typing import Final

from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.counting.remote import RemoteTokenizer
from ollama_gate.counting.store import TokenizerSource, TokenizerStore
from ollama_gate.errors import CountingError, UnknownVocabulary, UpstreamError

_BLOB: Final = re.compile(r"sha256-([0-9a-f]{64})$")


class CardTokenizers:
    """Gives the tokenizer of a model, with the catalog behind the store."""

    def __init__(self, store: TokenizerStore, catalog: Catalog) -> None:
        """Join the two."""
        self._store = store
        self._catalog = catalog

    async def get(self, card: ModelCard) -> RemoteTokenizer:
        """The tokenizer of a model; built or loaded when needed, which takes up to some seconds.

        Raises:
            UnknownVocabulary: this model's tokens cannot be counted here.
        """
        if card.format != "gguf":
            raise UnknownVocabulary(f"it is a {card.format} model, whose vocabulary Ollama does not tell")

        async def show() -> bytes:
            try:
                return await self._catalog.verbose(card)
            except UpstreamError as failure:
                raise CountingError(f"Ollama did not tell its vocabulary: {failure}") from failure

        source = TokenizerSource(vocabulary_key(card), card.name, Path(card.blob) if card.blob else None, show)
        return await self._store.get(source)


def vocabulary_key(card: ModelCard) -> str:
    """What models with one vocabulary have in common: the digest of their weights' file, else their own.

    Many names stand for one file, and each tokenizer takes a hundred megabytes.
    """
    found = _BLOB.search(card.blob)
    return found[1] if found is not None else card.digest
