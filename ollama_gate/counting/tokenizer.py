"""A tokenizer whose counts are the engine's: built from a model's own vocabulary, saved, and loaded again.

    vocabulary = Vocabulary.from_metadata(metadata, "gemma3:4b")
    tokenizer = build(vocabulary)
    prompt_tokens = tokenizer.count([rendered])[0] + tokenizer.adds

Specials inside a text are parsed, as Ollama has them parsed; BOS and EOS are `adds`, never part of a count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ollama_gate.counting import bpe
from ollama_gate.counting.specials import Special, Specials
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary


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


@dataclass(frozen=True, slots=True, eq=False)
class TokenizerFacts:
    """What is known about a tokenizer without running it; small enough to keep for every model."""

    model: str
    """`gpt2`, `gemma4`, `llama`, `bert` or `t5`."""
    size: int
    """Number of tokens."""
    adds_bos: bool
    adds_eos: bool
    bos_text: str
    """The text of the BOS token, empty when there is none. A prompt must not begin with it if `adds_bos`."""
    specials: Specials
    tokens_per_byte: int
    """The most tokens one byte of text can cost; 0 where no bound is proven."""
    tokens_more: int
    """What may come on top of that, once per text."""
    bytes_per_token: int
    """The most bytes of text one token can hold; 0 where text may vanish, so that there is no lower bound."""

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
        return self.tokens_per_byte * byte_length + (self.tokens_more if byte_length else 0) + self.adds

    def lower_bound(self, byte_length: int) -> int:
        """The fewest tokens that a rendered prompt of `byte_length` UTF-8 bytes can cost, `adds` included."""
        if not self.bytes_per_token:
            return self.adds
        return -(-byte_length // self.bytes_per_token) + self.adds

    def split_set(self, template_text: str) -> tuple[Special, ...]:
        """Specials of a template at which a rendered prompt can be cut (`Specials.split_set`)."""
        return self.specials.split_set(template_text)


class Tokenizer:
    """Counts texts as the engine does. Safe to use from several threads; the GIL is free while a BPE one works."""

    def __init__(self, facts: TokenizerFacts, engine: Engine, tokens: Sequence[str]) -> None:
        """Join the facts to the engine; `tokens` are all texts by id."""
        self.facts = facts
        self._engine = engine
        self._tokens = tokens

    @property
    def adds(self) -> int:
        """Tokens that are added around a prompt: BOS and EOS."""
        return self.facts.adds

    @property
    def adds_bos(self) -> bool:
        """Whether BOS is one of them."""
        return self.facts.adds_bos

    @property
    def bos_text(self) -> str:
        """The text of the BOS token, empty when there is none."""
        return self.facts.bos_text

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
        for number, found in zip(belongs, self._engine.counts(stretches), strict=True):
            counts[number] += found
        return counts

    def ids(self, text: str) -> list[int]:
        """The ids of one text, specials in it parsed, without BOS and EOS."""
        text = whole(text)
        if self._scans(text):
            return self._engine.ids(text)
        found: list[int] = []
        for part in self.facts.specials.partition(text):
            if isinstance(part, str):
                found += self._engine.ids(part)
            else:
                found.append(part.id)
        return found

    def pieces(self, text: str) -> list[str]:
        """The text of each token, in order; a token that ends inside a character shows U+FFFD."""
        special = {token.id: token.text for token in self.facts.specials.tokens}
        return [
            special[number] if number in special else self._shown(self._tokens[number]) for number in self.ids(text)
        ]

    def byte_bound(self, byte_length: int) -> int | None:
        """See `TokenizerFacts.byte_bound`."""
        return self.facts.byte_bound(byte_length)

    def lower_bound(self, byte_length: int) -> int:
        """See `TokenizerFacts.lower_bound`."""
        return self.facts.lower_bound(byte_length)

    def split_set(self, template_text: str) -> tuple[Special, ...]:
        """See `TokenizerFacts.split_set`."""
        return self.facts.split_set(template_text)

    def _scans(self, text: str) -> bool:
        return self._engine.cuts_specials and self.facts.specials.plain(text)

    def _stretches(self, text: str) -> tuple[int, list[str]]:
        """How many specials were cut out of a text, and what is left for the engine."""
        if self._scans(text):
            return 0, [text]
        parts = self.facts.specials.partition(text)
        plain = [part for part in parts if isinstance(part, str)]
        return len(parts) - len(plain), plain

    def _shown(self, token: str) -> str:
        if self.facts.model == "gpt2":
            return bytes(bpe.LETTER_BYTES.get(letter, 0x3F) for letter in token).decode("utf-8", "replace")
        if token in bpe.BYTE_TEXTS:
            return bytes([int(token[3:5], 16)]).decode("utf-8", "replace")
        return token.replace(bpe.SPACE, " ")


def build(vocabulary: Vocabulary) -> Tokenizer:
    """Build the tokenizer of a vocabulary.

    It takes 0.1 s for 32 000 tokens and some 2 s for 262 000, and holds the GIL all that time: build in a process of
    its own (`worker.py`), never on an event loop's.

    Raises:
        UnknownVocabulary: This vocabulary is not one whose counts are known to be exact here.
    """
    if vocabulary.model not in {"gpt2", "gemma4", "llama"}:
        raise UnknownVocabulary(f"tokenizer model {vocabulary.model!r} is not one that can be counted exactly")
    return Tokenizer(_facts(vocabulary), bpe.build(vocabulary), vocabulary.tokens)


def whole(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, as Go does; they cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text


def _facts(vocabulary: Vocabulary) -> TokenizerFacts:
    per_byte, more = _most(vocabulary)
    return TokenizerFacts(
        model=vocabulary.model,
        size=len(vocabulary.tokens),
        adds_bos=vocabulary.add_bos,
        adds_eos=vocabulary.add_eos,
        bos_text="" if vocabulary.bos_id is None else vocabulary.tokens[vocabulary.bos_id],
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
    tokens = frozenset(vocabulary.tokens)
    if vocabulary.model == "bert":
        # Each word begins with a ▁ of the engine's; where that is a token it can cost one of its own.
        return (2, 0) if bpe.SPACE in tokens else (1, 0)
    if vocabulary.model == "gpt2":
        return 1, 0
    space = 1 if bpe.SPACE in tokens else 3
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
        letters = frozenset(vocabulary.tokens)
        missing = any(
            letter not in letters for byte, letter in enumerate(bpe.BYTE_LETTERS) if byte not in bpe.IMPOSSIBLE_BYTES
        )
        longest = max(map(len, vocabulary.tokens))
        vanishes = vanishes or missing
    else:
        longest = max(len(token.encode()) for token in vocabulary.tokens)  # a user may type ▁ itself
    special = max((len(token.text.encode()) for token in vocabulary.specials.tokens), default=0)
    return 0 if vanishes else max(longest, special)
