"""A tokenizer whose counts are the engine's: built from a model's own vocabulary, saved, and loaded again.

    vocabulary = Vocabulary.from_metadata(metadata, "gemma3:4b")
    tokenizer = build(vocabulary)
    prompt_tokens = tokenizer.count([rendered])[0] + tokenizer.facts.adds

Specials inside a text are parsed, as Ollama has them parsed; BOS and EOS are `facts.adds`, never part of a count.
"""

from collections.abc import Sequence
from typing import Protocol

import orjson

from ollama_gate.counting import bpe, merges, unigram, wordpiece
from ollama_gate.counting.facts import TokenizerFacts, facts_of
from ollama_gate.counting.letters import BYTE_TEXTS, LETTER_BYTES, SPACE
from ollama_gate.counting.merges import BpeRecipe
from ollama_gate.counting.specials import Partition
from ollama_gate.counting.unigram import UnigramEngine, UnigramRecipe
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.counting.wordpiece import WordPieceEngine, WordPieceRecipe

Recipe = BpeRecipe | UnigramRecipe | WordPieceRecipe


class Engine(Protocol):
    """What turns stretches of text into ids, for one kind of vocabulary."""

    cuts_specials: bool
    """Whether it finds special tokens itself, from the left and the longest first."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        ...

    def ids(self, text: str) -> list[int]:
        """Ids of one text."""
        ...

    def token(self, number: int) -> str:
        """The text of a token as the vocabulary spells it."""
        ...


class Tokenizer:
    """Counts texts as the engine does. Safe to use from several threads; the GIL is free while a BPE one works."""

    alive = True
    """Whether it can be asked: always, as it works in this process."""

    def __init__(self, facts: TokenizerFacts, engine: Engine) -> None:
        """Join the facts to the engine."""
        self.facts = facts
        self.engine = engine
        self._partition = Partition(facts.specials)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, specials in it parsed, without BOS and EOS."""
        counts: list[int] = []
        stretches: list[str] = []
        belongs: list[int] = []
        for number, text in enumerate(texts):
            special, plain = self._stretches(whole(text))
            counts.append(special)
            stretches += plain
            belongs += [number] * len(plain)
        for number, found in zip(belongs, self.engine.counts(stretches), strict=True):
            counts[number] += found
        return counts

    def ids(self, text: str) -> list[int]:
        """The ids of one text, specials in it parsed, without BOS and EOS."""
        text = whole(text)
        if self._scans(text):
            return self.engine.ids(text)
        found: list[int] = []
        for part in self._partition.cut(text):
            if isinstance(part, str):
                found += self.engine.ids(part)
            else:
                found.append(part.id)
        return found

    def pieces(self, text: str) -> bytes:
        """The text of each token in order, as a JSON array; a token that ends inside a character shows U+FFFD."""
        special = {token.id: token.text for token in self.facts.specials.tokens}
        return orjson.dumps(
            [
                special[number] if number in special else self._shown(self.engine.token(number))
                for number in self.ids(text)
            ]
        )

    def _scans(self, text: str) -> bool:
        return self.engine.cuts_specials and self._partition.plain(text)

    def _stretches(self, text: str) -> tuple[int, list[str]]:
        """How many specials were cut out of a text, and what is left for the engine."""
        if self._scans(text):
            return 0, [text]
        parts = self._partition.cut(text)
        plain = [part for part in parts if isinstance(part, str)]
        return len(parts) - len(plain), plain

    def _shown(self, token: str) -> str:
        if self.facts.model == "gpt2":
            return bytes(LETTER_BYTES.get(letter, 0x3F) for letter in token).decode("utf-8", "replace")
        if token in BYTE_TEXTS:
            return bytes([int(token[3:5], 16)]).decode("utf-8", "replace")
        return token.replace(SPACE, " ")


def plan(vocabulary: Vocabulary) -> tuple[TokenizerFacts, Recipe]:
    """What a tokenizer is made of; it can be kept on disk (`cache.py`).

    Raises:
        UnknownVocabulary: This vocabulary is not one whose counts are known to be exact here.
    """
    recipe: Recipe
    if vocabulary.model == "bert":
        recipe = wordpiece.recipe(vocabulary)
    elif vocabulary.model == "t5":
        recipe = unigram.recipe(vocabulary)
    else:
        recipe = merges.recipe(vocabulary)
    return facts_of(vocabulary), recipe


def assemble(facts: TokenizerFacts, recipe: Recipe) -> Tokenizer:
    """Make the tokenizer of a plan.

    Raises:
        UnknownVocabulary: This vocabulary turned out not to be one whose counts are known to be exact here.
    """
    if isinstance(recipe, WordPieceRecipe):
        return Tokenizer(facts, WordPieceEngine(recipe))
    if isinstance(recipe, UnigramRecipe):
        return Tokenizer(facts, UnigramEngine(recipe))
    return Tokenizer(facts, bpe.assemble(recipe, facts.specials))


def build(vocabulary: Vocabulary) -> Tokenizer:
    """Build the tokenizer of a vocabulary.

    It takes 0.1 s for 32 000 tokens and some 2 s for 262 000, and holds the GIL all that time: build in a process of
    its own (`worker.py`), never on an event loop's.

    Raises:
        UnknownVocabulary: This vocabulary is not one whose counts are known to be exact here.
    """
    return assemble(*plan(vocabulary))


def whole(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, as Go does; they cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
