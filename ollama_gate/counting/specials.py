"""Special tokens: which texts are cut out of a prompt before anything else, and how.

llama.cpp looks for control, user-defined and unknown tokens in the raw text first, the longest first, and gives each
stretch between them to the tokenizer by itself (`src/llama-vocab.cpp:tokenizer_st_partition`, b10488). Ollama parses
specials in user text too, so a `<|im_end|>` that a user types is that token. Which tokens these are is decided when a
model is loaded (`llama_vocab::impl::load`): about fifty texts are control tokens whatever the file says.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ollama_gate.errors import UnknownVocabulary

SPACES = " \t\n\v\f\r"
"""What C's isspace knows in the C locale; the engine strips these, not Unicode's."""


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` (ggml's `docs/gguf.md`)."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED})

END_NAMES = frozenset(
    [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "[e~[",
    ]
)
"""Texts that end a generation and are control tokens wherever they appear in a vocabulary."""

FIM_NAMES: Mapping[str, frozenset[str]] = {
    "pre": frozenset(
        [
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ]
    ),
    "suf": frozenset(
        [
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ]
    ),
    "mid": frozenset(
        [
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ]
    ),
    "pad": frozenset(["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    "rep": frozenset(["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]),
    "sep": frozenset({"<|file_sep|>"}),
}
"""Fill-in-the-middle texts by the part they play; one of each becomes a control token unless the file names its id."""

HARMONY_NAMES = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})
"""Texts that are always user-defined (gpt-oss prints them)."""

_NAMED = END_NAMES.union(HARMONY_NAMES, *FIM_NAMES.values(), ["</s>"])


def engine_types(tokens: Mapping[str, int], types: Sequence[int], named: Collection[str]) -> list[int]:
    """The types as the engine has them after loading.

    Args:
        tokens: All texts and their ids.
        types: `tokenizer.ggml.token_type`, as long as `tokens`.
        named: Parts of fill-in-the-middle (keys of `FIM_NAMES`) for which the file itself names a token.

    Raises:
        UnknownVocabulary: Two texts compete for one part; the engine takes whichever its hash table shows first.
    """
    ids = {text: tokens[text] for text in _NAMED if text in tokens}
    known = list(types)
    for text in END_NAMES & ids.keys():
        known[ids[text]] = TokenType.CONTROL
    for part, names in FIM_NAMES.items():
        candidates = names & ids.keys()
        ordinary = [text for text in candidates if known[ids[text]] not in SPECIAL]
        if part in named or not ordinary:
            continue
        if len(candidates) > 1:
            raise UnknownVocabulary(f"several tokens could be the {part} of fill-in-the-middle: {sorted(candidates)}")
        known[ids[ordinary[0]]] = TokenType.CONTROL
    for text in HARMONY_NAMES & ids.keys():
        known[ids[text]] = TokenType.USER_DEFINED
    calls = "<|call|>" in ids or "<|calls|>" in ids
    if "<|end|>" in ids and calls and ("<|return|>" in ids or "<|flush|>" in ids):
        known[ids["<|end|>"]] = TokenType.USER_DEFINED
    if "<|tool_response>" in ids and "</s>" in ids:
        known[ids["</s>"]] = TokenType.NORMAL
    return known


@dataclass(frozen=True, slots=True)
class Special:
    """One text that is cut out of a prompt."""

    id: int
    text: str
    type: TokenType
    lstrip: bool = False
    """White space before it vanishes."""
    rstrip: bool = False
    """White space after it vanishes."""


@dataclass(frozen=True, slots=True)
class Specials:
    """All special tokens of one vocabulary."""

    tokens: tuple[Special, ...]
    """In any order."""

    def split_set(self, template_text: str, *, least: int = 4) -> tuple[Special, ...]:
        """Specials at which a rendered prompt may be cut without changing what the engine finds.

        They occur literally in the template (or are otherwise emitted by the renderer), are at least `least`
        characters long, and can neither contain, nor be contained in, nor overlap any special token.

        Args:
            template_text: The template, or any text that holds the markers a renderer emits.
            least: Shorter tokens are left out; they are as likely to be words.
        """
        found = [token for token in self.tokens if len(token.text) >= least and token.text in template_text]
        return tuple(token for token in found if not self._touches(token.text))

    def _touches(self, text: str) -> bool:
        heads = tuple(text[:length] for length in range(1, len(text)))
        tails = tuple(text[-length:] for length in range(1, len(text)))
        if not frozenset(heads).isdisjoint(tails):  # it can overlap itself
            return True
        for other in self.tokens:
            rival = other.text
            if rival != text and (rival in text or text in rival or rival.endswith(heads) or rival.startswith(tails)):
                return True
        return False


class Partition:
    """Cuts texts at their special tokens exactly as the engine does."""

    def __init__(self, specials: Specials) -> None:
        """Order the tokens, and find out where scanning from the left is not what the engine does."""
        # Longest first, in UTF-8 bytes. Which of two that are equally long comes first is chance in the engine (it
        # sorts with std::sort); no known vocabulary has two such that overlap.
        self.tokens = sorted(specials.tokens, key=lambda token: -len(token.text.encode()))
        self.clashes = _clashes([token.text for token in self.tokens])
        doubts = [re.escape(text) for text in self.clashes]
        doubts += [f"[{SPACES}]{re.escape(token.text)}" for token in self.tokens if token.lstrip]
        doubts += [f"{re.escape(token.text)}[{SPACES}]" for token in self.tokens if token.rstrip]
        self._doubt = re.compile("|".join(doubts)) if doubts else None

    def plain(self, text: str) -> bool:
        """Whether scanning `text` from the left, longest match first, finds what the engine finds."""
        return self._doubt is None or self._doubt.search(text) is None

    def cut(self, text: str) -> list[str | Special]:
        """The special tokens of `text` and the stretches between them, which are never empty."""
        parts: list[str | Special] = [text] if text else []
        for token in self.tokens:
            if token.text not in text:
                continue
            found: list[str | Special] = []
            for part in parts:
                if isinstance(part, str):
                    found += _cut(part, token)
                else:
                    found.append(part)
            parts = found
        return parts


def stripped(pieces: list[str], token: Special) -> list[str]:
    """The pieces that cutting at `token` gives, without the white space it swallows."""
    if not (token.lstrip or token.rstrip):
        return pieces
    last = len(pieces) - 1
    kept = [piece.lstrip(SPACES) if token.rstrip and number else piece for number, piece in enumerate(pieces)]
    return [piece.rstrip(SPACES) if token.lstrip and number < last else piece for number, piece in enumerate(kept)]


def _cut(text: str, token: Special) -> list[str | Special]:
    first, *others = stripped(text.split(token.text), token)
    found: list[str | Special] = [first] if first else []
    for piece in others:
        found.append(token)
        if piece:
            found.append(piece)
    return found


def _clashes(texts: Sequence[str]) -> tuple[str, ...]:
    """Overlaps in which the token that starts later is as long or longer: the engine may take it, a scanner not."""
    begins = {text[0] for text in texts}
    # Most begin with a bracket, and have none inside.
    tails = [(first, first[start:]) for first in texts for start in range(1, len(first)) if first[start] in begins]
    begins = {tail[0] for _, tail in tails}
    by_head: dict[str, list[str]] = {}
    for text in texts:
        for length in range(1, len(text) if text[0] in begins else 1):
            by_head.setdefault(text[:length], []).append(text)
    found: dict[str, None] = {}
    for first, tail in tails:
        for second in by_head.get(tail, ()):
            joined = first + second[len(tail) :]
            if len(second.encode()) >= len(first.encode()) and not joined.startswith(second):
                found[joined] = None
    return tuple(found)
