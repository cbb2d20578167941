"""WordPiece as llama.cpp does it, for BERT-like embedders.

`src/llama-vocab.cpp:llm_tokenizer_wpm_session` (b10488) is close to BERT's own tokenizer and equal to no published one:
of a decomposition it keeps the first code point (a Hangul syllable becomes its leading jamo), its character classes are
its own, and a word that is not in the vocabulary is one unknown token, however long.

Words are counted once each and remembered; white space separates them, and punctuation marks and Chinese characters
are words by themselves.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ollama_gate.counting.characters import CharacterMap
from ollama_gate.counting.letters import SPACE
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary

CHUNK = 1 << 14
"""Characters that are normalised in one go, so that no step holds the interpreter for long."""
REMEMBERED = 1 << 16
"""Words whose tokens are remembered."""
LONGEST_REMEMBERED = 64


@dataclass(frozen=True, slots=True, eq=False)
class WordPieceRecipe:
    """All that is needed to set up an engine."""

    pieces: list[str]
    """All tokens by id; a word's first piece begins with `▁`."""
    unknown: int
    """The id for words that cannot be made."""
    lowercase: bool
    """Whether letters are folded."""
    strip_accents: bool
    """Whether characters are decomposed and marks dropped."""

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "WordPieceRecipe":
        """Read what `to_json` gave."""
        return cls(**saved)


class WordPieceEngine:
    """Counts and lists the ids of texts that hold no special tokens."""

    cuts_specials = False

    def __init__(self, recipe: WordPieceRecipe) -> None:
        """Prepare for one vocabulary."""
        tokens = self._tokens = recipe.pieces
        self._unknown = recipe.unknown
        self._ids = {text: number for number, text in enumerate(tokens)}
        self._longest: dict[str, int] = {}  # by how a piece begins: the longest such
        for text in tokens:
            self._longest[text[:2]] = max(self._longest.get(text[:2], 0), len(text))
        self._characters = CharacterMap(lowercase=recipe.lowercase, strip_accents=recipe.strip_accents)
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._word)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        found: list[int] = []
        for text in texts:
            words: Counter[str] = Counter()
            for chunk in self._words(text):
                words.update(chunk)
            found.append(sum(len(self._pieces(word)) * times for word, times in words.items()))
        return found

    def ids(self, text: str) -> list[int]:
        """The ids of one text."""
        return [number for chunk in self._words(text) for word in chunk for number in self._pieces(word)]

    def token(self, number: int) -> str:
        """The text of a token as the vocabulary spells it."""
        return self._tokens[number]

    def _words(self, text: str) -> Iterator[list[str]]:
        """The words of a text, in order, some at a time."""
        rest = ""
        for start in range(0, len(text), CHUNK):
            words = (rest + text[start : start + CHUNK].translate(self._characters)).split(" ")
            rest = words.pop()  # it may go on in the next chunk
            yield [word for word in words if word]
        if rest:
            yield [rest]

    def _pieces(self, word: str) -> tuple[int, ...]:
        return self._remembered(word) if len(word) <= LONGEST_REMEMBERED else self._word(word)

    def _word(self, word: str) -> tuple[int, ...]:
        """The longest piece that fits, again and again; the whole word is unknown if none does."""
        spelled = SPACE + word
        found: list[int] = []
        start = 0
        while start < len(spelled):
            longest = self._longest.get(spelled[start : start + 2], 1)
            for end in range(min(len(spelled), start + longest), start, -1):
                number = self._ids.get(spelled[start:end])
                if number is not None:
                    found.append(number)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(found)


def recipe(vocabulary: Vocabulary) -> WordPieceRecipe:
    """What a vocabulary of model `bert` says.

    Raises:
        UnknownVocabulary: It names no unknown token.
    """
    if vocabulary.unknown_id is None:
        raise UnknownVocabulary("a WordPiece vocabulary without an unknown token")
    return WordPieceRecipe(
        pieces=list(vocabulary.tokens),
        unknown=vocabulary.unknown_id,
        lowercase=vocabulary.lowercase,
        strip_accents=vocabulary.strip_accents,
    )
