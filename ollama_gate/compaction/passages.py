"""Messages taken apart into passages that can be quoted: whole short messages, and paragraphs or lines of long ones."""

import re
from collections.abc import Iterator
from typing import Final

LONG: Final = 600
"""Characters of a passage that is good to read. A text of up to twice as many is one passage."""
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")
_WORD: Final = re.compile(r"\s+|(?<=[,;])")


def passages(text: str, long: int = LONG) -> Iterator[tuple[int, int]]:
    """Start and end of each passage of a text, in order, of up to `long` characters; what is blank is left out."""
    if not text.strip():
        return
    if len(text) <= 2 * long:
        yield 0, len(text)
        return
    start = 0
    while start < len(text):
        end = _end(text, start, long)
        if text[start:end].strip():
            yield start, end
        start = end


def _end(text: str, start: int, long: int) -> int:
    """Where a passage that begins here ends: with a paragraph, line, sentence or word, the largest that fits."""
    most = start + long
    if most >= len(text):
        return len(text)
    for pattern in (_PARAGRAPH, re.compile("\n"), _SENTENCE, _WORD):
        found = max((match.end() for match in pattern.finditer(text, start + long // 4, most)), default=0)
        if found > start:
            return found
    return most
