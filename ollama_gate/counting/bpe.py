"""Byte pair encoding by the `tokenizers` library, set up so that its ids are llama.cpp's.

Three vocabularies are BPE: byte-level ones (`gpt2`: GPT-2's alphabet of 256 letters for bytes, words cut by patterns),
text ones (`gemma4`: spaces as `▁`, unknown characters as `<0xNN>`), and SentencePiece ones (`llama`: as text ones, but
with scores instead of a list of merges). The library is given what makes it equal, and what it cannot be given is
either put right on the way out (`Phantoms`) or refused with `UnknownVocabulary`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ollama_gate.counting.letters import BYTE_LETTERS, BYTE_TEXTS, IMPOSSIBLE_BYTES, SPACE
from ollama_gate.counting.pretokenizers import IGNORE_MERGES, PATTERNS, RAW_TEXT
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary

Phantoms = Mapping[int, tuple[int, ...]]
"""Pieces the engine merges by text though they are no tokens: a made-up id → the ids it gives if nothing merged it."""

CHUNK = 1 << 15
"""Characters after which a long text is cut at the next safe place."""
BATCH = 1 << 18
"""Characters given to the library at once: it needs some 300 bytes of memory for each."""

SAFE_CUT = re.compile(r"(?<=\S\n)(?=[A-Za-z])")
"""A single line end and an ASCII letter: every pattern ends a word between them, whatever surrounds them."""


class BpeEngine:
    """Counts and lists the ids of texts; special tokens are found from the left, the longest first."""

    cuts_specials = True

    def __init__(self, library: tokenizers.Tokenizer, size: int, phantoms: Phantoms, *, cuttable: bool) -> None:
        """Wrap a tokenizer of the library.

        Args:
            library: It adds nothing to a text and finds specials by itself.
            size: Number of real tokens; phantoms have the ids from there on.
            phantoms: What to give instead of a phantom.
            cuttable: Whether no token reaches across a `SAFE_CUT`.
        """
        self.library = library
        self.size = size
        self.phantoms = phantoms
        self.cuttable = cuttable

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text. The GIL is free while the library works (in `encode_batch_fast`, and only there)."""
        found = [0] * len(texts)
        for batch in _batches(self._chunks(texts)):
            encodings = self.library.encode_batch_fast([chunk for _, chunk in batch], add_special_tokens=False)
            for (number, _), encoding in zip(batch, encodings, strict=True):
                found[number] += self._real(encoding.ids) if self.phantoms else len(encoding)
        return found

    def ids(self, text: str) -> list[int]:
        """The ids of one text."""
        found: list[int] = []
        for batch in _batches(self._chunks([text])):
            for encoding in self.library.encode_batch_fast([chunk for _, chunk in batch], add_special_tokens=False):
                found += encoding.ids
        if max(found, default=0) < self.size:
            return found
        return [real for number in found for real in self.phantoms.get(number, (number,))]

    def token(self, number: int) -> str:
        """The text of a token as the vocabulary spells it."""
        return str(self.library.id_to_token(number))

    def save(self, path: Path) -> dict[str, Any]:
        """Write the library's own JSON file; gives what it does not hold."""
        self.library.save(str(path), pretty=False)
        return {"size": self.size, "phantoms": list(self.phantoms.items()), "cuttable": self.cuttable}

    @classmethod
    def load(cls, path: Path, saved: Mapping[str, Any]) -> "BpeEngine":
        """Read what `save` wrote and gave."""
        phantoms = {number: tuple(gives) for number, gives in saved["phantoms"]}
        return cls(tokenizers.Tokenizer.from_file(str(path)), saved["size"], phantoms, cuttable=saved["cuttable"])

    def _real(self, ids: Sequence[int]) -> int:
        if max(ids, default=0) < self.size:
            return len(ids)
        return sum(len(self.phantoms.get(number, (number,))) for number in ids)

    def _chunks(self, texts: Sequence[str]) -> Iterator[tuple[int, str]]:
        for number, text in enumerate(texts):
            start = 0
            while self.cuttable and len(text) - start > CHUNK:
                place = SAFE_CUT.search(text, start + CHUNK)
                if place is None:
                    break
                yield number, text[start : place.start()]
                start = place.start()
            yield number, text[start:] if start else text


def _batches(chunks: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk[1])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def build(vocabulary: Vocabulary) -> BpeEngine:
    """Set up the library for a vocabulary of model `gpt2`, `gemma4` or `llama`.

    Raises:
        UnknownVocabulary: Its pre-tokenizer is not known, or it holds what the library cannot do.
    """
    if vocabulary.model == "llama":
        return _sentencepiece(vocabulary)
    if vocabulary.pre not in PATTERNS:
        raise UnknownVocabulary(f"pre-tokenizer {vocabulary.pre!r} is not one that can be counted exactly")
    return _text(vocabulary) if vocabulary.pre in RAW_TEXT else _byte_level(vocabulary)


def _byte_level(vocabulary: Vocabulary) -> BpeEngine:
    pieces = _Pieces(vocabulary.tokens)
    for byte, letter in enumerate(BYTE_LETTERS):
        if letter not in pieces.ids and byte not in IMPOSSIBLE_BYTES:
            pieces.phantom(letter, ())  # the engine drops a byte that it has no token for
    merges = _merges(vocabulary.merges, pieces, {})
    engine = tokenizers.Tokenizer(
        models.BPE(vocab=pieces.ids, merges=merges, ignore_merges=vocabulary.pre in IGNORE_MERGES)
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[vocabulary.pre]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    engine.decoder = decoders.ByteLevel()
    return _finished(engine, vocabulary, pieces)


def _text(vocabulary: Vocabulary) -> BpeEngine:
    pieces = _Pieces(vocabulary.tokens)
    merges = _merges(vocabulary.merges, pieces, _byte_ids(pieces))
    engine = tokenizers.Tokenizer(models.BPE(vocab=pieces.ids, merges=merges, byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Replace(" ", SPACE)
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERNS[vocabulary.pre][0]), "isolated")
    built = _finished(engine, vocabulary, pieces)
    # A run of line ends that is a token is taken whole by the engine; here the merges must lead to it.
    runs = [text for text in pieces.ids if text.strip("\n") == "" and text]
    if any(count != 1 for count in built.counts(runs)):
        raise UnknownVocabulary("the merges of this vocabulary do not lead to its runs of line ends")
    return built


def _sentencepiece(vocabulary: Vocabulary) -> BpeEngine:
    if not vocabulary.scores:
        raise UnknownVocabulary("a SentencePiece vocabulary without scores")
    pieces = _Pieces(vocabulary.tokens)
    merges = _ranked(vocabulary, pieces, _byte_ids(pieces))
    engine = tokenizers.Tokenizer(models.BPE(vocab=pieces.ids, merges=merges, byte_fallback=True, fuse_unk=True))
    replace = normalizers.Replace(" ", SPACE)
    engine.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if vocabulary.add_space_prefix else replace
    )
    return _finished(engine, vocabulary, pieces)


class _Pieces:
    """Texts that can stand alone while merging, with their ids: all tokens, and phantoms after them."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.size = len(tokens)
        self.ids = {text: number for number, text in enumerate(tokens)}
        self.phantoms: dict[int, tuple[int, ...]] = {}

    def phantom(self, text: str, gives: tuple[int, ...]) -> None:
        number = len(self.ids)
        self.ids[text] = number
        self.phantoms[number] = gives


def _byte_ids(pieces: _Pieces) -> Mapping[int, int]:
    """Byte → id of its `<0xNN>` token."""
    try:
        return {byte: pieces.ids[text] for byte, text in enumerate(BYTE_TEXTS)}
    except KeyError as error:
        raise UnknownVocabulary(f"the vocabulary has no token for the byte {error}") from error


def _single(text: str, pieces: _Pieces, byte_ids: Mapping[int, int]) -> bool:
    """Make sure that a character can take part in merges; True if it can."""
    if text in pieces.ids:
        return True
    if len(text) != 1 or not byte_ids or text == " ":  # spaces have become ▁ before
        return False
    pieces.phantom(text, tuple(byte_ids[byte] for byte in text.encode()))
    return True


def _merges(lines: Sequence[str], pieces: _Pieces, byte_ids: Mapping[int, int]) -> list[tuple[str, str]]:
    """The list of merges as pairs, in order; of two equal ones the first counts, as in the engine."""
    found: dict[tuple[str, str], None] = {}
    ids = pieces.ids
    for line in lines:
        cut = line.find(" ", 1)
        if cut < 0:
            continue
        left, right = line[:cut], line[cut + 1 :]
        if not (left in ids or _single(left, pieces, byte_ids)) or not (
            right in ids or _single(right, pieces, byte_ids)
        ):
            continue  # a part that nothing makes: this merge never happens
        if left + right not in ids:
            raise UnknownVocabulary(f"a merge makes {left + right!r}, which is no token")
        found[left, right] = None
    return list(found)


def _ranked(vocabulary: Vocabulary, pieces: _Pieces, byte_ids: Mapping[int, int]) -> list[tuple[str, str]]:
    """Merges from scores: the engine joins the neighbours that make the best-scored token, wherever it was split."""
    found: list[tuple[float, int, int, str, str]] = []
    ids = pieces.ids
    for number, (text, score) in enumerate(zip(vocabulary.tokens, vocabulary.scores, strict=True)):
        if not math.isfinite(score):
            raise UnknownVocabulary(f"the score of token {number} is {score}")
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if (left in ids or _single(left, pieces, byte_ids)) and (right in ids or _single(right, pieces, byte_ids)):
                found.append((-score, number, cut, left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]


def _finished(engine: tokenizers.Tokenizer, vocabulary: Vocabulary, pieces: _Pieces) -> BpeEngine:
    engine.add_special_tokens(
        [
            AddedToken(token.text, normalized=False, special=True)
            for token in sorted(vocabulary.specials.tokens, key=lambda token: token.id)
        ]
    )
    # A space prefix would be put in front of every chunk.
    cuttable = not (vocabulary.model == "llama" and vocabulary.add_space_prefix) and not any(
        SAFE_CUT.search(text) for text in _line_ends(vocabulary)
    )
    return BpeEngine(engine, pieces.size, pieces.phantoms, cuttable=cuttable)


def _line_ends(vocabulary: Vocabulary) -> Iterator[str]:
    """Token texts with a line end in them, as they stand in a text.

    Byte-level words end at a safe cut by their patterns, so that only specials count; SentencePiece has no words.
    """
    texts = vocabulary.tokens if vocabulary.model == "llama" else (token.text for token in vocabulary.specials.tokens)
    return (f"x{text}" for text in texts if "\n" in text)
