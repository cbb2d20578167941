"""Unigram vocabularies (T5's and XLM-RoBERTa's) as llama.cpp does them.

`src/llama-vocab.cpp:llm_tokenizer_ugm_session` (b10488): the text is normalised, spaces become `▁`, and the pieces with
the best sum of scores are taken. The `tokenizers` library searches alike; normalising is done here, because the library
normalises grapheme by grapheme and the engine does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import models

from ollama_gate.counting.charsmap import Replacements, decoded
from ollama_gate.counting.letters import SPACE
from ollama_gate.counting.specials import TokenType
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary

MATCHED = frozenset({TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED})
"""Types of tokens that can be found in a text."""
UNKNOWN_PENALTY = 10.0
"""How much worse an unknown character is than the least likely piece."""
NEVER = "\uffff"
"""A noncharacter: with it are spelled the tokens that no text can match."""


@dataclass(frozen=True, slots=True, eq=False)
class UnigramRecipe:
    """All that is needed to set up an engine."""

    pieces: list[str]
    """All tokens by id."""
    scores: list[float]
    matched: list[bool]
    """Which of them can be found in a text."""
    unknown: int
    space_prefix: bool
    merge_spaces: bool
    replacements: dict[str, str]
    """What normalising replaces."""

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "UnigramRecipe":
        """Read what `to_json` gave."""
        return cls(**saved)


class UnigramEngine:
    """Counts and lists the ids of texts that hold no special tokens."""

    cuts_specials = False

    def __init__(self, recipe: UnigramRecipe) -> None:
        """Set up the library."""
        self._recipe = recipe
        self._replace = Replacements(recipe.replacements)
        # What cannot match gets the score of something that can, for the library takes the least of all scores as the
        # measure of an unknown character, and the engine the least of those that can match.
        rows = zip(recipe.pieces, recipe.scores, recipe.matched, strict=True)
        vocabulary = [
            (text, score) if matched else (f"{NEVER * 8}{number}", max(recipe.scores))
            for number, (text, score, matched) in enumerate(rows)
        ]
        self._library = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=recipe.unknown, byte_fallback=False))

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        normalised = [self.normalised(text) for text in texts]
        return [len(found) for found in self._library.encode_batch_fast(normalised, add_special_tokens=False)]

    def ids(self, text: str) -> list[int]:
        """The ids of one text."""
        (found,) = self._library.encode_batch_fast([self.normalised(text)], add_special_tokens=False)
        ids: list[int] = found.ids
        return ids

    def token(self, number: int) -> str:
        """The text of a token as the vocabulary spells it."""
        return self._recipe.pieces[number]

    def normalised(self, text: str) -> str:
        """What the pieces are looked for in."""
        replaced = self._replace(text)
        if self._recipe.merge_spaces:
            return "".join(SPACE + word for word in replaced.split(" ") if word)
        words = replaced.lstrip(" ")
        prefix = " " if words and self._recipe.space_prefix else ""
        return f"{replaced[: len(replaced) - len(words)]}{prefix}{words}".replace(" ", SPACE)


def recipe(vocabulary: Vocabulary) -> UnigramRecipe:
    """What a vocabulary of model `t5` says.

    Raises:
        UnknownVocabulary: It has no scores or no unknown token, or an unused token is less likely than all others.
    """
    if not vocabulary.scores or vocabulary.unknown_id is None:
        raise UnknownVocabulary("a unigram vocabulary without scores or an unknown token")
    rows = list(zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True))
    least = min((score for _, score, kind in rows if kind == TokenType.NORMAL), default=0.0)
    matched = [kind in MATCHED for _, _, kind in rows]
    for number, (text, score, kind) in enumerate(rows):
        if kind == TokenType.UNUSED and score < least:
            # Taking each of its characters for unknown is better than taking it, so it is as if it were not there.
            if score >= len(text) * (least - UNKNOWN_PENALTY):
                raise UnknownVocabulary("a unigram vocabulary whose unused tokens are less likely than all others")
            matched[number] = False
    return UnigramRecipe(
        pieces=list(vocabulary.tokens),
        scores=[0.0 if kind == TokenType.USER_DEFINED else score for _, score, kind in rows],
        matched=matched,
        unknown=vocabulary.unknown_id,
        space_prefix=vocabulary.add_space_prefix,
        merge_spaces=vocabulary.remove_extra_whitespaces,
        replacements=decoded(vocabulary.charsmap),
    )
