"""Counting a growing conversation at the price of its new text.

A rendered prompt is cut at control tokens that cannot overlap any other (`Specials.split_set`). The engine cuts there
too, before it does anything else, and treats each piece by itself; so the sum of the pieces' counts is the count, and a
piece that was counted once need not be counted again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from threading import Lock
from typing import Protocol

from ollama_gate.counting.specials import Special, stripped

KEPT_WHOLE = 64
"""A piece up to this many characters is its own key; a longer one is known by its hash."""


class Counts(Protocol):
    """Anything that counts texts; see `Tokenizer.count`."""

    def count(self, texts: Sequence[str], /) -> list[int]:
        """Tokens of each text, without BOS and EOS."""
        ...


class MemoCounter:
    """Counts rendered prompts of one model and template, and remembers their pieces. Safe in several threads."""

    def __init__(self, tokenizer: Counts, split_set: Sequence[Special], capacity: int = 16_384) -> None:
        """Start with nothing remembered.

        Args:
            tokenizer: What counts a piece.
            split_set: Where to cut; nothing is cut, and only whole prompts are remembered, when it is empty.
            capacity: Pieces to remember, the least recently used go first. One takes at most some 500 bytes.
        """
        self._tokenizer = tokenizer
        self._split_set = tuple(split_set)
        self._capacity = capacity
        self._known: OrderedDict[str | bytes, int] = OrderedDict()
        self._lock = Lock()

    def count(self, text: str) -> int:
        """Tokens of a rendered prompt, without BOS and EOS; the same number that counting it whole gives."""
        pieces = [text]
        for token in self._split_set:
            cut = [piece.split(token.text) for piece in pieces]
            if token.lstrip or token.rstrip:
                cut = [stripped(each, token) for each in cut]
            pieces = list(chain.from_iterable(cut))
        separators = len(pieces) - 1
        keys = [(piece if len(piece) <= KEPT_WHOLE else _hash(piece)) for piece in pieces]
        wanted: dict[str | bytes, str] = {}
        total = separators
        with self._lock:
            for key, piece in zip(keys, pieces, strict=True):
                tokens = self._known.get(key) if piece else 0
                if tokens is None:
                    wanted[key] = piece
                elif piece:
                    self._known.move_to_end(key)
                    total += tokens
        if not wanted:
            return total
        found = dict(zip(wanted, self._tokenizer.count(list(wanted.values())), strict=True))
        total += sum(found[key] for key in keys if key in found)
        with self._lock:
            self._known.update(found)
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return total

    def __len__(self) -> int:
        """Pieces remembered."""
        return len(self._known)


def _hash(piece: str) -> bytes:
    # Of the hashes that nobody can make collide it is the one that processors have instructions for.
    return sha256(piece.encode("utf-8", "surrogatepass")).digest()
