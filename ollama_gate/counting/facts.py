"""What is known about a tokenizer without running it: what it adds, and how many tokens bytes can cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ollama_gate.counting.letters import BYTE_LETTERS, IMPOSSIBLE_BYTES, SPACE
from ollama_gate.counting.pretokenizers import RAW_TEXT
from ollama_gate.counting.specials import Special, Specials, TokenType
from ollama_gate.counting.vocabulary import Vocabulary

PUBLISHED = "published"
"""The `model` of a tokenizer that was published as a file (`published.py`)."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenizerFacts:
    """What is known about a tokenizer without running it; small enough to keep for every model."""

    model: str
    """`gpt2`, `gemma4`, `llama`, `bert` or `t5`; `published` for one that is not built from the model's own."""
    size: int
    """Number of tokens."""
    adds_bos: bool
    adds_eos: bool
    bos_text: str
    """The text of the BOS token, empty when there is none. A prompt must not begin with it if `adds_bos`."""
    eos_text: str
    """The text of the EOS token, empty when there is none."""
    specials: Specials
    tokens_per_byte: int
    """The most tokens one byte of text can cost; 0 where no bound is proven."""
    tokens_more: int
    """What may come on top of that, once per text."""
    bytes_per_token: int
    """The most bytes of text one token can hold; 0 where text may vanish, so that there is no lower bound."""

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "TokenizerFacts":
        """Read what `to_json` wrote."""
        specials = tuple(
            Special(number, text, TokenType(kind), lstrip=lstrip, rstrip=rstrip)
            for number, text, kind, lstrip, rstrip in saved["specials"]
        )
        return cls(**{**saved, "specials": Specials(specials)})

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold."""
        saved = {name: getattr(self, name) for name in self.__slots__}
        saved["specials"] = [
            (token.id, token.text, int(token.type), token.lstrip, token.rstrip) for token in self.specials.tokens
        ]
        return saved

    @property
    def adds(self) -> int:
        """Tokens that are added around a prompt: BOS and EOS."""
        return self.adds_bos + self.adds_eos

    def byte_bound(self, byte_length: int) -> int | None:
        """The most tokens that a rendered prompt of `byte_length` UTF-8 bytes can cost, `adds` included.

        It holds for every text, specials and all. None where nothing is proven: a unigram vocabulary normalises with
        NFKC, which makes up to 18 characters out of one.
        """
        if not self.tokens_per_byte:
            return None
        return (
            self.tokens_per_byte * byte_length
            + (self.tokens_more if byte_length else 0)
            + self.adds_bos
            + self.adds_eos
        )

    def split_set(self, template_text: str) -> tuple[Special, ...]:
        """Specials of a template at which a rendered prompt can be cut (`Specials.split_set`)."""
        return self.specials.split_set(template_text)


def facts_of(vocabulary: Vocabulary) -> TokenizerFacts:
    """What a vocabulary says about its tokenizer."""
    per_byte, more = _most(vocabulary)
    return TokenizerFacts(
        model=vocabulary.model,
        size=len(vocabulary.tokens),
        adds_bos=vocabulary.add_bos,
        adds_eos=vocabulary.add_eos,
        bos_text="" if vocabulary.bos_id is None else vocabulary.tokens[vocabulary.bos_id],
        eos_text="" if vocabulary.eos_id is None else vocabulary.tokens[vocabulary.eos_id],
        specials=vocabulary.specials,
        tokens_per_byte=per_byte,
        tokens_more=more,
        bytes_per_token=_fewest(vocabulary),
    )


def _most(vocabulary: Vocabulary) -> tuple[int, int]:
    """The most tokens a byte can cost, and a text beyond that.

    Every token of a BPE or WordPiece vocabulary stands for at least one byte of the text, but for the spaces that the
    engine puts in itself: one before each stretch between specials, where there is a space prefix. A special token of
    two bytes or more pays for the stretch after it, so only the first stretch costs more than its bytes. A `▁` that is
    no token falls apart into its three bytes, though it stands for one.
    """
    if vocabulary.model == "t5":
        return 0, 0
    if vocabulary.model == "bert":
        # Each word begins with a ▁ of the engine's; where that is a token it can cost one of its own.
        return (2, 0) if SPACE in vocabulary.ids else (1, 0)
    if vocabulary.model == "gpt2" and vocabulary.pre not in RAW_TEXT:
        return 1, 0
    space = 1 if SPACE in vocabulary.ids else 3
    if not vocabulary.add_space_prefix:
        return space, 0
    shortest = min((len(token.text.encode()) for token in vocabulary.specials.tokens), default=2)
    return max(space, math.ceil((1 + space) / shortest)), space


def _fewest(vocabulary: Vocabulary) -> int:
    """The most bytes of text that one token holds; 0 where some text costs nothing."""
    vanishes = vocabulary.model in {"bert", "t5"} or any(
        token.lstrip or token.rstrip for token in vocabulary.specials.tokens
    )
    if vocabulary.model == "gpt2":
        missing = any(
            letter not in vocabulary.ids for byte, letter in enumerate(BYTE_LETTERS) if byte not in IMPOSSIBLE_BYTES
        )
        longest = max(map(len, vocabulary.tokens))
        vanishes = vanishes or missing
    else:
        longest = max(map(len, map(str.encode, vocabulary.tokens)))  # a user may type ▁ itself
    special = max((len(token.text.encode()) for token in vocabulary.specials.tokens), default=0)
    return 0 if vanishes else max(longest, special)
