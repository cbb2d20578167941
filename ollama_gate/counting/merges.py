"""What BPE needs, worked out from a vocabulary: pieces, merges, and what the engine does that no list of tokens says.

A recipe can be kept on disk (`cache.py`) and made into an engine again (`bpe.py:assemble`), which is quicker than
working it out anew.
"""

import base64
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

from ollama_gate.counting import scored
from ollama_gate.counting.letters import BYTE_LETTERS, BYTE_TEXTS, IMPOSSIBLE_BYTES
from ollama_gate.counting.pretokenizers import PATTERNS, RAW_TEXT
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary


class Style(StrEnum):
    """The three kinds of BPE."""

    BYTES = "bytes"
    """GPT-2's alphabet of 256 letters for bytes; words cut by patterns."""
    TEXT = "text"
    """Text with `▁` for a space and `<0xNN>` for what is no token; lines cut apart (Gemma 4)."""
    SENTENCEPIECE = "sentencepiece"
    """The same, with merges by score and nothing cut apart (Llama 2, Gemma 1 to 3)."""


@dataclass(frozen=True, slots=True, eq=False)
class BpeRecipe:
    """All that is needed to set up an engine, but for the special tokens."""

    style: Style
    pre: str
    space_prefix: bool
    ids: dict[str, int]
    """All tokens in order, then the phantoms: texts the engine merges though they are no tokens."""
    size: int
    """How many of them are tokens."""
    phantoms: list[list[int]]
    """What each phantom gives if nothing merged it, in ids."""
    merges: list[int]
    """Ids of left and right parts in turn, in order."""

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The merges as texts."""
        parts = map(list(self.ids).__getitem__, self.merges)
        return zip(parts, parts, strict=True)

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold."""
        saved = {name: getattr(self, name) for name in self.__slots__}
        # Half a million numbers take longer to read than all the texts.
        return saved | {"ids": list(self.ids), "merges": base64.b64encode(_swapped(array("I", self.merges))).decode()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "BpeRecipe":
        """Read what `to_json` gave."""
        pieces = saved["ids"]
        ids = dict(zip(pieces, range(len(pieces)), strict=True))
        merges = _swapped(array("I", base64.b64decode(saved["merges"]))).tolist()
        return cls(**{**saved, "style": Style(saved["style"]), "ids": ids, "merges": merges})


def _swapped(numbers: "array[int]") -> "array[int]":
    """From this machine's order of bytes to the little-endian one that is kept, and back."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def recipe(vocabulary: Vocabulary) -> BpeRecipe:
    """Work out the recipe of a vocabulary of model `gpt2`, `gemma4` or `llama`.

    Raises:
        UnknownVocabulary: Its pre-tokenizer is not known, or it asks for what no list of merges can say.
    """
    pieces = _Pieces(vocabulary.ids)
    if vocabulary.model == "llama":
        style = Style.SENTENCEPIECE
        merges = _ranked(vocabulary, pieces)
    elif vocabulary.pre not in PATTERNS:
        raise UnknownVocabulary(f"pre-tokenizer {vocabulary.pre!r} is not one that can be counted exactly")
    elif vocabulary.pre in RAW_TEXT:
        style = Style.TEXT
        pieces.fall_back()
        merges = _listed(vocabulary.merges, pieces)
    else:
        style = Style.BYTES
        for byte, letter in enumerate(BYTE_LETTERS):
            if letter not in pieces.ids and byte not in IMPOSSIBLE_BYTES:
                pieces.phantom(letter, [])  # the engine drops a byte that it has no token for
        merges = _listed(vocabulary.merges, pieces)
    return BpeRecipe(
        style=style,
        pre=vocabulary.pre,
        space_prefix=vocabulary.add_space_prefix and style is Style.SENTENCEPIECE,
        ids=pieces.ids,
        size=len(vocabulary.tokens),
        phantoms=pieces.phantoms,
        merges=merges,
    )


class _Pieces:
    """Texts that can stand alone while merging, with their ids."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = dict(ids)
        self.phantoms: list[list[int]] = []
        self.byte_ids: list[int] = []

    def fall_back(self) -> None:
        """Give characters that are no tokens as their bytes."""
        try:
            self.byte_ids = [self.ids[text] for text in BYTE_TEXTS]
        except KeyError as error:
            raise UnknownVocabulary(f"the vocabulary has no token for the byte {error}") from error

    def phantom(self, text: str, gives: list[int]) -> None:
        self.ids[text] = len(self.ids)
        self.phantoms.append(gives)

    def single(self, text: str) -> bool:
        """Let a character take part in merges although it is no token; False if that cannot be."""
        if len(text) != 1 or not self.byte_ids or text == " ":  # a space has become ▁ before
            return False
        self.phantom(text, [self.byte_ids[byte] for byte in text.encode()])
        return True


def _listed(lines: Sequence[str], pieces: _Pieces) -> list[int]:
    """The merges of a list, in order; of two equal ones the first counts, as in the engine."""
    found: list[int] = []
    ids = pieces.ids
    for line in dict.fromkeys(lines):
        left, _, right = line.partition(" ")
        if not left:  # it begins with a space of its own
            left, _, right = line[1:].partition(" ")
            left = f" {left}"
        if left not in ids or right not in ids:
            if not right or (left not in ids and not pieces.single(left)):
                continue  # a part that nothing makes: this merge never happens
            if right not in ids and not pieces.single(right):
                continue
        found += ids[left], ids[right]
    return found


def _ranked(vocabulary: Vocabulary, pieces: _Pieces) -> list[int]:
    """Merges from scores, and the characters that take part in them although they are no tokens."""
    tokens, scores = vocabulary.tokens, vocabulary.scores
    if not scores:
        raise UnknownVocabulary("a SentencePiece vocabulary without scores")
    pieces.fall_back()
    ids = pieces.ids
    missing = {*map(itemgetter(0), tokens), *map(itemgetter(-1), tokens)} - ids.keys()
    for text in tokens if missing else ():
        first, last = text[0], text[-1]
        if (first in missing or last in missing) and len(text) > 1:
            if first not in ids and (len(text) == 2 or text[1:] in ids):
                pieces.single(first)
            if last not in ids and (len(text) == 2 or text[:-1] in ids):
                pieces.single(last)
    return scored.merges(tokens, scores, ids)
