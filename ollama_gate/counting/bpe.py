"""Byte pair encoding by the `tokenizers` library, set up so that its ids are llama.cpp's.

The library is given what makes it equal (`merges.py`, `pretokenizers.py`). What it cannot be given is put right on the
way out, or was refused before.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from ollama_gate.counting.letters import SPACE
from ollama_gate.counting.merges import BpeRecipe, Style
from ollama_gate.counting.pretokenizers import IGNORE_MERGES, PATTERNS
from ollama_gate.counting.specials import Specials
from ollama_gate.errors import UnknownVocabulary

Phantoms = Mapping[int, Sequence[int]]
"""The id of a phantom (`BpeRecipe.ids`) → the ids it gives if nothing merged it."""

CHUNK = 1 << 15
"""Characters after which a long text is cut at the next safe place."""
BATCH = 1 << 18
"""Characters given to the library at once: it needs some 300 bytes of memory for each."""

LINES = re.compile(r"(?<=\S\n)(?=[A-Za-z])")
"""A single line end and an ASCII letter: every pattern ends a word between them, whatever surrounds them."""
WORDS = re.compile(rf"{LINES.pattern}|(?<=[A-Za-z])(?= [A-Za-z])")
"""A letter, a blank and a letter: every pattern of byte-level vocabularies ends a word before the blank, too."""


class BpeEngine:
    """Counts and lists the ids of texts; special tokens are found from the left, the longest first."""

    cuts_specials = True

    def __init__(
        self, library: tokenizers.Tokenizer, size: int, phantoms: Phantoms, cut: re.Pattern[str] | None
    ) -> None:
        """Wrap a tokenizer of the library.

        Args:
            library: It adds nothing to a text and finds specials by itself.
            size: Number of real tokens; phantoms have the ids from there on.
            phantoms: What to give instead of a phantom.
            cut: Where no token reaches across, so that a text may be counted in parts; None where that may be anywhere.
        """
        self.library = library
        self.size = size
        self.phantoms = phantoms
        self.cut = cut

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

    def _real(self, ids: Sequence[int]) -> int:
        if max(ids, default=0) < self.size:
            return len(ids)
        return sum(len(self.phantoms.get(number, (number,))) for number in ids)

    def _chunks(self, texts: Sequence[str]) -> Iterator[tuple[int, str]]:
        for number, text in enumerate(texts):
            start = 0
            while self.cut is not None and len(text) - start > CHUNK:
                place = self.cut.search(text, start + CHUNK)
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


def assemble(recipe: BpeRecipe, specials: Specials) -> BpeEngine:
    """Set up the library.

    Raises:
        UnknownVocabulary: The merges do not do what the engine does.
    """
    if recipe.style is Style.BYTES:
        library = _library(recipe, ignore_merges=recipe.pre in IGNORE_MERGES)
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[recipe.pre]),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        library = _library(recipe, byte_fallback=True)
        prefix = [normalizers.Prepend(SPACE)] if recipe.space_prefix else []
        library.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
        if recipe.style is Style.TEXT:
            library.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERNS[recipe.pre][0]), "isolated")
    library.add_special_tokens(
        [
            AddedToken(token.text, normalized=False, special=True)
            for token in sorted(specials.tokens, key=lambda token: token.id)
        ]
    )
    phantoms = dict(enumerate(recipe.phantoms, recipe.size))
    engine = BpeEngine(library, recipe.size, phantoms, _cut(recipe, specials))
    if recipe.style is Style.TEXT:
        # A run of line ends that is a token is taken whole by the engine; here the merges must lead to it.
        runs = [text for text in recipe.ids if text and not text.strip("\n")]
        if any(count != 1 for count in engine.counts(runs)):
            raise UnknownVocabulary("the merges of this vocabulary do not lead to its runs of line ends")
    return engine


def _library(recipe: BpeRecipe, *, byte_fallback: bool = False, ignore_merges: bool = False) -> tokenizers.Tokenizer:
    try:
        model = models.BPE(
            vocab=recipe.ids,
            merges=list(recipe.pairs()),
            byte_fallback=byte_fallback,
            fuse_unk=byte_fallback,
            ignore_merges=ignore_merges,
        )
    except Exception as error:  # the library has no class of its own for a merge that makes what is no token
        made = next((left + right for left, right in recipe.pairs() if left + right not in recipe.ids), None)
        if made is None:
            raise
        raise UnknownVocabulary(f"a merge makes {made!r}, which is no token") from error
    return tokenizers.Tokenizer(model)


def _cut(recipe: BpeRecipe, specials: Specials) -> re.Pattern[str] | None:
    """Where a text of this vocabulary may be cut.

    Byte-level words end there by their patterns, so that only specials can reach across; SentencePiece has no words,
    and a space prefix would be put in front of every part.
    """
    if recipe.space_prefix:
        return None
    texts: Iterable[str] = (
        recipe.ids if recipe.style is Style.SENTENCEPIECE else [token.text for token in specials.tokens]
    )
    for pattern in (WORDS, LINES) if recipe.style is Style.BYTES else (LINES,):
        if pattern is LINES:
            texts = [text for text in texts if "\n" in text]  # a few of a quarter million
        # A token may begin with the line end itself.
        if not any(pattern.search(text) or pattern.search(f"x{text}") for text in texts):
            return pattern
    return None
