"""SentencePiece's normalisation: which stretches of text are replaced by what.

A GGUF carries it as SentencePiece compiled it: the size of an array, a double array of 32-bit units that spells the
stretches byte by byte, and their replacements, each ended by a zero byte. The layout is described in
`src/llama-vocab.cpp:llm_tokenizer_ugm_session` (b10488), whose rule is applied here: at each place the longest stretch
that is known is replaced, and what is not known stays.
"""

import re
import struct
from collections.abc import Mapping

from ollama_gate.errors import UnknownVocabulary

MAX_STRETCHES = 1 << 20
IS_VALUE = 1 << 31
HAS_VALUE = 1 << 8


class Replacements:
    """Replaces stretches of text, at each place the longest that is known."""

    def __init__(self, replacements: Mapping[str, str]) -> None:
        """Prepare for a set of stretches."""
        several = [stretch for stretch in replacements if len(stretch) > 1]
        self._all = replacements
        self._single = {ord(stretch): made for stretch, made in replacements.items() if len(stretch) == 1}
        self._longest: dict[str, int] = {}  # by first character
        for stretch in several:
            self._longest[stretch[0]] = max(self._longest.get(stretch[0], 0), len(stretch))
        second = "".join(sorted({stretch[1] for stretch in several}))
        self._joins = re.compile(f"[{re.escape(second)}]") if second else None

    def __call__(self, text: str) -> str:
        """The text with everything replaced."""
        if self._joins is None or self._joins.search(text) is None:
            return text.translate(self._single)
        made: list[str] = []
        at = 0
        while at < len(text):
            for length in range(min(self._longest.get(text[at], 1), len(text) - at), 0, -1):
                found = self._all.get(text[at : at + length])
                if found is not None:
                    made.append(found)
                    at += length
                    break
            else:
                made.append(text[at])
                at += 1
        return "".join(made)


def decoded(charsmap: bytes) -> dict[str, str]:
    """Stretch of text → what replaces it.

    Raises:
        UnknownVocabulary: The bytes are no such thing.
    """
    if not charsmap:
        return {}
    try:
        (size,) = struct.unpack_from("<I", charsmap)
        units = struct.unpack_from(f"<{size // 4}I", charsmap, 4)
        return {stretch.decode(): _text(charsmap, 4 + size + offset) for stretch, offset in _stretches(units)}
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnknownVocabulary(f"the vocabulary's normalisation cannot be read: {error}") from error


def _text(charsmap: bytes, start: int) -> str:
    end = charsmap.find(b"\0", start)
    if end < 0:
        raise IndexError("a replacement does not end")
    return charsmap[start:end].decode()


def _stretches(units: tuple[int, ...]) -> list[tuple[bytes, int]]:
    """Every stretch with the place of its replacement.

    A unit is the child of the node whose base is its own index xor its label; so all children can be found at once.
    """
    children: dict[int, list[int]] = {}
    for index, unit in enumerate(units):
        label = unit & (IS_VALUE | 0xFF)
        if 0 < label <= 0xFF:
            children.setdefault(index ^ label, []).append(index)
    found: list[tuple[bytes, int]] = []
    waiting = [(b"", _base(units[0]))]
    while waiting:
        spelled, base = waiting.pop()
        for index in children.get(base, ()):
            unit = units[index]
            longer = spelled + bytes([index ^ base])
            below = index ^ _base(unit)
            if unit & HAS_VALUE:
                found.append((longer, units[below] & (IS_VALUE - 1)))
            waiting.append((longer, below))
            if len(waiting) + len(found) > MAX_STRETCHES or len(longer) > 255:
                raise IndexError("it never ends")
    return found


def _base(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)
