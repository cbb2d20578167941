"""The embedder's vocabulary: WordPiece as llama.cpp does it (`src/llama-vocab.cpp:llm_tokenizer_wpm`, b10488)."""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ollama_gate.rehearsal.vocabulary import CONTROL, NORMAL, UNKNOWN, rehearsal_metadata

START = "\u2581"
"""Marks the pieces that begin a word, as in a GGUF file."""
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNKNOWN, _BEGIN, _END = 1, 2, 3
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # not from 0x2B820, as the standard has it: what everybody copied had it so
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""Ideographs that are words by themselves."""


class WordPiece:
    """Greedy longest match, word by word; every text is wrapped in [CLS] and [SEP]."""

    specials = (1, 1)

    def __init__(self, metadata: dict[str, Any]) -> None:
        """Build from GGUF metadata."""
        self.metadata = metadata
        self.tokens: Sequence[str] = metadata["tokenizer.ggml.tokens"]
        self._ids = {token: at for at, token in enumerate(self.tokens)}
        self._longest = max(map(len, self.tokens))
        self._unknown = int(metadata.get("tokenizer.ggml.unknown_token_id", 100))
        self._begin = int(metadata.get("tokenizer.ggml.bos_token_id", metadata.get("tokenizer.ggml.cls_token_id", 101)))
        self._end = int(metadata.get("tokenizer.ggml.seperator_token_id", 102))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`; `special` adds [CLS] and [SEP]."""
        ids = [piece for word in _words(text) for piece in self._pieces(START + word)]
        return [self._begin, *ids, self._end] if special else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The words of `ids`; case and accents are gone."""
        pieces = (self.tokens[at] for at in ids)
        return "".join(p.replace(START, " ") if p[0] == START else p for p in pieces).strip()

    def text_of(self, name: str) -> str:
        """The text of the special token of that name (`bos`, `eos`)."""
        return self.tokens[self._begin if name == "bos" else self._end]

    def _pieces(self, word: str) -> list[int]:
        out: list[int] = []
        at = 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest), at, -1):
                if (found := self._ids.get(word[at:end])) is not None:
                    out.append(found)
                    at = end
                    break
            else:
                return [self._unknown]
        return out


def _words(text: str) -> Iterator[str]:
    word = ""
    for char in text:
        # The first code point of the decomposed form: accents go, a Hangul syllable leaves its leading jamo.
        base = unicodedata.normalize("NFD", char)[0]
        kind = unicodedata.category(base)
        if base.isspace() and not "\x1c" <= base <= "\x1f":  # Python alone takes the separators for white space
            if word:
                yield word
            word = ""
        elif base in "\0\ufffd" or kind in {"Cc", "Cf", "Co", "Cs"} or kind[0] == "M":
            continue
        elif kind[0] == "P" or (base.isascii() and kind[0] == "S") or _ideograph(base):
            if word:
                yield word
            word = ""
            yield base
        else:
            lower = base.lower()
            word += lower if len(lower) == 1 else base
    if word:
        yield word


def _ideograph(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in _CJK)


@cache
def wordpiece_metadata() -> dict[str, Any]:
    """The embedder's `tokenizer.ggml.*` key/values: the words that the rehearsal's chat vocabulary knows."""
    words = {token[1:] for token in rehearsal_metadata()["tokenizer.ggml.tokens"] if _plain_word(token[1:])}
    chars = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isupper()]
    starts = [START + char for char in chars] + sorted(START + word for word in words if len(word) > 1)
    inside = [char for char in chars if char.isalnum()] + sorted({word[-3:] for word in words if len(word) > 3})
    tokens = [*_SPECIALS, *starts, *inside]
    types = [CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL] + [NORMAL] * (len(tokens) - len(_SPECIALS))
    return {
        "tokenizer.ggml.bos_token_id": _BEGIN,
        "tokenizer.ggml.cls_token_id": _BEGIN,
        "tokenizer.ggml.eos_token_id": _END,
        "tokenizer.ggml.mask_token_id": 4,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.seperator_token_id": _END,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.unknown_token_id": _UNKNOWN,
    }


def _plain_word(word: str) -> bool:
    return word.isascii() and word.isalpha() and word.islower()
