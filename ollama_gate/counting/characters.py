"""What llama.cpp's WordPiece makes of one character: dropped, a blank, a word by itself, or a folded letter.

After `llm_tokenizer_wpm_session::preprocess` and the tables in `src/unicode-data.cpp` (b10488, Unicode 15.1). The
classes are Oniguruma's with what is newer taken out, so that they do not depend on the Python they run on.
"""

import unicodedata

from tokenizers import Regex, pre_tokenizers

from ollama_gate.counting.pretokenizers import MARK, NEWER, PUNCTUATION

MAX_REMEMBERED = 1 << 16
DOTTED_CAPITAL_I = "İ"
"""Python lower-cases it to two characters, the engine to `i`."""

ASCII_SYMBOLS = frozenset("$+<=>^`|~")
CHINESE = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # from 2B820 by rights; so in the engine
    (0x2F800, 0x2FA1F),
)


class _Class:
    """A character class of Oniguruma's, asked for 256 characters at a time."""

    def __init__(self, pattern: str) -> None:
        self._others = pre_tokenizers.Split(Regex(pattern), "removed")
        self._blocks: dict[int, frozenset[str]] = {}

    def __contains__(self, character: str) -> bool:
        number = ord(character) >> 8
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = self._members(number)
        return character in block

    def _members(self, number: int) -> frozenset[str]:
        if 0xD8 <= number <= 0xDF:  # surrogates are no characters
            return frozenset()
        every = "".join(map(chr, range(number << 8, (number + 1) << 8)))
        return frozenset(every).difference(*(piece for piece, _ in self._others.pre_tokenize_str(every)))


SPACES = _Class(r"\s")
CONTROLS = _Class(r"[\p{Cc}\p{Cf}\p{Co}]")
MARKS = _Class(MARK)
PUNCTUATIONS = _Class(PUNCTUATION)
NEWER_ONES = _Class(f"[{NEWER}]")


class CharacterMap(dict[int, str]):
    """A table for `str.translate` that works itself out, a character at a time."""

    def __init__(self, *, lowercase: bool, strip_accents: bool) -> None:
        """Start empty.

        Args:
            lowercase: Whether letters are folded.
            strip_accents: Whether a character is replaced by the first of its decomposition, and marks are dropped.
        """
        super().__init__()
        self.lowercase = lowercase
        self.strip_accents = strip_accents

    def __missing__(self, code: int) -> str:
        """What stands for a character: nothing, a blank, the character itself, or that between blanks."""
        made = self._made(chr(code))
        if len(self) < MAX_REMEMBERED:
            self[code] = made
        return made

    def _made(self, character: str) -> str:
        known = character not in NEWER_ONES
        if self.strip_accents and known:
            character = unicodedata.normalize("NFD", character)[0]
        if character in SPACES:
            return " "
        if character in "\0\ufffd" or character in CONTROLS or (self.strip_accents and character in MARKS):
            return ""
        folded = _lower(character) if self.lowercase and known else character
        code = ord(character)
        alone = (
            character in PUNCTUATIONS
            or character in ASCII_SYMBOLS
            or any(first <= code <= last for first, last in CHINESE)
        )
        return f" {folded} " if alone else folded


def _lower(character: str) -> str:
    if character == DOTTED_CAPITAL_I:
        return "i"
    lower = character.lower()
    return lower if len(lower) == 1 else character
