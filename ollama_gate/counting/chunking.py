"""Cutting a text into chunks that are within a number of tokens, by count and not by guess.

A chunk ends at the last paragraph end within reach, else at the last sentence end, else between two words, else between
two characters, as close to the limit as it gets. Nothing is trimmed: the chunks without what they repeat, one after the
other, are the text. Every chunk was counted as a whole, because the tokens of parts do not add up to those of a text.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ollama_gate.errors import GateError

Count = Callable[[Sequence[str]], list[int]]
"""Tokens of each text, without BOS and EOS."""

_PARAGRAPH: Final = re.compile(r"\n[^\S\n]*+\n\s*+")
# A look behind each run keeps the search linear: a run of a million full stops is looked at once, from its beginning.
_SENTENCE: Final = re.compile(r"(?<![.!?…])[.!?…]++[\"')\]»”’]*+\s++|(?<![。！？｡])[。！？｡]++[”’」』）]*+\s*+|\n\s*+")
_WORD: Final = re.compile(r"\s++")
_NEAR: Final = 8
"""Times of what the last chunk took of a word, within which the rest of it may fit."""
_SCANNED: Final = 1 << 16
"""Characters that are searched for places to cut at a time, and places sorted: meanwhile no other thread runs."""
_AHEAD: Final = 2048
"""Words that are counted at once, to foresee where a chunk will end."""


class TooTight(GateError):
    """A single character takes more tokens than a chunk may have."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of the text; positions are characters of it."""

    start: int
    fresh: int
    """Where it goes on from the chunk before: what lies between `start` and here is repeated."""
    end: int
    tokens: int
    """Without BOS and EOS."""


def chunks(text: str, count: Count, *, most: int, overlap: int = 0) -> Iterator[Chunk]:
    """Cut a text; the chunks are made one by one, as they are asked for.

    Args:
        text: what is cut.
        count: counts texts.
        most: tokens that a chunk may have, without BOS and EOS; at least 1.
        overlap: the most tokens that a chunk repeats from the end of the one before; less than `most`.

    Yields:
        Chunks in order: the first `fresh` is 0, each further one is the `end` before it, and the last `end` is the
        text's. None for an empty text. A chunk repeats less than `overlap`, or nothing, where more would leave no room
        for anything new.

    Raises:
        TooTight: one character alone takes more than `most` tokens.
    """
    cutter = _Cutter(text, count, most, overlap)
    start = fresh = 0
    while fresh < len(text):
        found = next(filter(None, (search(begin, fresh) for search, begin in cutter.ways(start, fresh))), None)
        if found is None:
            raise TooTight(f"the character at position {fresh} ({text[fresh]!r}) alone takes more than {most} tokens")
        yield found
        start, fresh = cutter.repeat(fresh, found.end), found.end


class _Cutter:
    """The places at which one text may be cut, and the search among them."""

    def __init__(self, text: str, count: Count, most: int, overlap: int) -> None:
        self._text = text
        self._count = count
        self._most = most
        self._overlap = overlap
        self._paragraphs = _ends(text, _PARAGRAPH)
        self._sentences = _ends(text, _PARAGRAPH, _SENTENCE)
        self._words = _ends(text, _PARAGRAPH, _SENTENCE, _WORD)
        self._sums = array("Q", [0])
        """Tokens of the first words, each counted alone: a foresight, no count."""
        self._pace = 4 * most
        """Characters that the last chunk took which was cut inside a word."""
        self._broken = -1
        """The number of the word that it was cut inside."""

    def ways(self, start: int, fresh: int) -> Iterator[tuple[Callable[[int, int], Chunk | None], int]]:
        """How the next chunk may be made, and from where, the best way first.

        What a chunk repeats gives way before a word is broken; but the rest of a broken word is broken as it may be.
        """
        at_word = fresh == 0 or self._words[bisect_left(self._words, fresh)] == fresh
        yield self.by_words, start
        if start < fresh and at_word:
            yield self.by_words, fresh
        yield self.by_characters, start
        if start < fresh:
            yield self.by_words, fresh
            yield self.by_characters, fresh

    def by_words(self, start: int, fresh: int) -> Chunk | None:
        """The chunk that begins at `start`, holds more than `fresh` and ends where a paragraph, sentence or word does.

        None where not even one word fits. Of a word that is being broken the rest is not counted before it is near to
        what a chunk takes: counted each time, a text without a break would take time by the square of its length.
        """
        first = bisect_right(self._words, fresh)
        if first == self._broken and self._words[first] - start > _NEAR * self._pace:
            return None
        found = self._last(start, self._words, first, self._foresee(start))
        if found is None:
            return None
        end, tokens = found
        if end == len(self._text):
            return Chunk(start, fresh, end, tokens)
        for level in (self._paragraphs, self._sentences):
            at = bisect_right(level, end) - 1
            while at >= 0 and level[at] > fresh:
                # Nearly always the first that is tried: a shorter text seldom has more tokens.
                tokens_there = self._tokens(start, level[at])
                if tokens_there <= self._most:
                    return Chunk(start, fresh, level[at], tokens_there)
                at -= 1
        return Chunk(start, fresh, end, tokens)

    def by_characters(self, start: int, fresh: int) -> Chunk | None:
        """The chunk that begins at `start` and holds what fits of the word at `fresh`; None where nothing does."""
        word = bisect_right(self._words, fresh)
        places = range(fresh + 1, self._words[word])
        found = self._last(start, places, 0, self._pace)
        if found is None:
            return None
        self._pace, self._broken = found[0] - fresh, word
        return Chunk(start, fresh, *found)

    def repeat(self, fresh: int, end: int) -> int:
        """Where the chunk after one that ended at `end` begins: it repeats the last sentences, words or characters."""
        if not self._overlap or end == len(self._text):
            return end
        for level in (self._sentences, self._words):
            start = self._earliest(level, bisect_left(level, fresh), bisect_left(level, end), end)
            if start is not None:
                return start
        if bisect_left(self._words, fresh) < bisect_left(self._words, end):
            return end  # words do not fit, and are not broken only to be repeated
        characters = range(max(fresh, end - 64 * self._overlap), end)
        start = self._earliest(characters, 0, len(characters), end)
        return end if start is None else start

    def _earliest(self, places: Sequence[int], low: int, high: int, end: int) -> int | None:
        """The first place from which the text up to `end` is within the overlap, by bisection."""
        found = None
        while low < high:
            middle = (low + high) // 2
            if self._tokens(places[middle], end) <= self._overlap:
                found, high = places[middle], middle
            else:
                low = middle + 1
        return found

    def _last(self, start: int, places: Sequence[int], low: int, guess: int) -> tuple[int, int] | None:
        """The last place from number `low` on at which a chunk can end, and its tokens; it is looked for near `guess`.

        More text has more tokens but for oddities at a seam, so that what is found is the last one or very near to it.
        It was counted, so that it fits for certain.
        """
        found, high = None, len(places)
        at, step = max(low, min(guess, high - 1)), 1
        while low <= at < high:
            tokens = self._tokens(start, places[at])
            if tokens <= self._most:
                found, low = (places[at], tokens), at + 1
            else:
                high = at
            if low < high and found is not None and high < len(places):
                at = (low + high) // 2  # fits below, does not above: halve what is between
            else:
                at = min(at + step, high - 1) if found is not None else max(at - step, low)
                step *= 2
        return found

    def _tokens(self, start: int, end: int) -> int:
        return self._count([self._text[start:end]])[0]

    def _foresee(self, start: int) -> int:
        """The number of the word that a chunk from `start` should end with."""
        first = bisect_right(self._words, start)
        while len(self._sums) <= len(self._words) and (
            len(self._sums) <= first or self._sums[-1] - self._sums[first] <= self._most
        ):
            done = len(self._sums) - 1
            ends = self._words[done : done + _AHEAD]
            starts = [self._words[done - 1] if done else 0, *ends[:-1]]
            for added in self._count([self._text[one:two] for one, two in zip(starts, ends, strict=True)]):
                self._sums.append(self._sums[-1] + added)
        return bisect_right(self._sums, self._sums[min(first, len(self._sums) - 1)] + self._most) - 2


def _ends(text: str, *patterns: re.Pattern[str]) -> "array[int]":
    """Where matches end, and where the text does; in four bytes each, for there may be millions."""
    ends = array("I")
    for start, end in _stretches(text):
        ends.extend(sorted({found.end() for pattern in patterns for found in pattern.finditer(text, start, end)}))
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    return ends


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """The text in parts that can be searched one by one: each ends behind a letter or digit, which no match holds."""
    start = 0
    while start < len(text):
        end = start + _SCANNED
        while end < len(text) and not text[end - 1].isalnum():
            end += 1
        yield start, min(end, len(text))
        start = end
