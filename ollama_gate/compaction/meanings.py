"""Likeness in meaning: vectors of an embedding model, kept by what they were made of, and compared.

Whatever goes wrong, or takes too long, leaves the keywords alone to decide.
"""

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Final

from ollama_gate.errors import GateError

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]] | None]]
"""A vector for each text, from Ollama; None where it gave none. Raises GateError."""

_AT_ONCE: Final = 16
"""Texts of one request, so that what was done is kept when time runs out."""
_MOST_CHARACTERS: Final = 1500
"""What a question is cut to: an embedding model takes little."""


class Meanings:
    """Compares texts with a question. It lives on one event loop."""

    def __init__(self, embed: Embed, *, patience: float, most: int = 8192, most_bytes: int = 64 << 20) -> None:
        """Begin with no vectors.

        Args:
            embed: asks for vectors.
            patience: seconds that one comparison may take.
            most: vectors to remember; the least recently used go first.
            most_bytes: bytes that they take together.
        """
        self._embed = embed
        self._patience = patience
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[bytes, array[float]] = OrderedDict()

    def __len__(self) -> int:
        """How many vectors are remembered."""
        return len(self._known)

    async def __call__(self, question: str, texts: Sequence[str]) -> list[float | None] | None:
        """The cosine between the question's vector and each text's; None for a text without one.

        None for all where the question has none, or time ran out before there were any.
        """
        question = question[:_MOST_CHARACTERS]
        keys = [_key(text) for text in (question, *texts)]
        vectors = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: text for key, text in zip(keys, (question, *texts), strict=True) if key not in vectors}
        try:
            async with asyncio.timeout(self._patience):
                waiting = list(missing.items())
                for at in range(0, len(waiting), _AT_ONCE):
                    some = waiting[at : at + _AT_ONCE]
                    told = await self._embed([text for _, text in some])
                    if told is None or len(told) != len(some):
                        break
                    for (key, _), vector in zip(some, told, strict=True):
                        vectors[key] = self._keep(key, vector)
        except (TimeoutError, GateError):
            pass  # with what there is
        for key in keys:
            if key in self._known:
                self._known.move_to_end(key)
        asked = vectors.get(keys[0])
        if asked is None or len(vectors) < 2:
            return None
        return await asyncio.to_thread(_compared, asked, [vectors.get(key) for key in keys[1:]])

    def _keep(self, key: bytes, vector: Sequence[float]) -> "array[float]":
        """Remember a vector, scaled to length one."""
        length = math.sqrt(sum(number * number for number in vector)) or 1.0
        kept = self._known[key] = array("f", [number / length for number in vector])
        self._bytes += kept.itemsize * len(kept)
        while len(self._known) > self._most or self._bytes > self._most_bytes:
            _, gone = self._known.popitem(last=False)
            self._bytes -= gone.itemsize * len(gone)
        return kept


def _compared(asked: "array[float]", vectors: Sequence["array[float] | None"]) -> list[float | None]:
    return [
        None if vector is None or len(vector) != len(asked) else sum(map(float.__mul__, asked, vector))
        for vector in vectors
    ]


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
