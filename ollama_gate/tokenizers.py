"""Where a card's tokenizer comes from: its blob on this host, else the vocabulary that Ollama reports."""

from collections.abc import Mapping
from typing import Any

from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.counting.store import TokenizerStore
from ollama_gate.counting.tokenizer import Tokenizer
from ollama_gate.errors import UnknownVocabulary, UpstreamError


class CardTokenizers:
    """Gives the tokenizer of a model, with the catalog behind the store."""

    def __init__(self, store: TokenizerStore, catalog: Catalog) -> None:
        """Join the two."""
        self._store = store
        self._catalog = catalog

    async def get(self, card: ModelCard) -> Tokenizer:
        """The tokenizer of a model; built or loaded when needed, which takes up to some seconds.

        Raises:
            UnknownVocabulary: this model's tokens cannot be counted here.
        """
        if card.format != "gguf":
            raise UnknownVocabulary(f"it is a {card.format} model, whose vocabulary Ollama does not tell")

        async def metadata() -> Mapping[str, Any]:
            try:
                show = await self._catalog.verbose(card)
            except UpstreamError as failure:
                raise UnknownVocabulary(f"Ollama did not tell its vocabulary: {failure}") from failure
            info = show.get("model_info") if show is not None else None
            if not isinstance(info, dict):
                raise UnknownVocabulary("Ollama did not tell its vocabulary")
            return info

        return await self._store.get(card.digest, card.name, blob=card.blob or None, metadata=metadata)
