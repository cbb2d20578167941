"""Where a text may be cut: at the end of a line where one is near, else of a word, and never inside a character.

What a reader sees as one character may be many code points: accents, joined emoji, flags.
"""

import re
import unicodedata
from typing import Final

_JOINER: Final = "\u200d"
_FEW: Final = 120
_WHITE: Final = re.compile(r"\s")
_BREAK: Final = re.compile(r"[^\w\s]")


def spans(text: str, characters: int) -> tuple[int, int]:
    """How many characters of a text's head and tail stay where so many may stay: about two thirds and one third.

    Together they are never more than `characters`, and less by a quarter at most (a half where they are few), so that
    lines or words stay whole.
    """
    if characters >= len(text):
        return len(text), 0
    tail = characters // 3
    head = _before(text, characters - tail)
    return head, len(text) - _after(text, len(text) - tail)


def _before(text: str, at: int) -> int:
    """The last good place at or before `at` to end."""
    least = at - _reach(at)
    line = text.rfind("\n", least, at)
    if line >= 0:
        return line + 1
    for place in range(at, least, -1):
        if _WHITE.match(text, place) or _WHITE.match(text, place - 1):
            return place
    for place in range(at, max(least, at - 64), -1):
        if _BREAK.match(text, place - 1) and not _inside(text, place):
            return place
    while at > 0 and _inside(text, at):
        at -= 1
    return at


def _after(text: str, at: int) -> int:
    """The first good place at or after `at` to begin."""
    most = at + _reach(len(text) - at)
    line = text.find("\n", at - 1 if at else 0, most)
    if line >= 0:
        return line + 1
    for place in range(at, most):
        if _WHITE.match(text, place - 1) or _WHITE.match(text, place):
            return place
    for place in range(at, min(most, at + 64)):
        if _BREAK.match(text, place - 1) and not _inside(text, place):
            return place
    while at < len(text) and _inside(text, at):
        at += 1
    return at


def _reach(characters: int) -> int:
    """How many of these characters may be given up: a quarter, or half of few."""
    return max(characters // 4, min(characters // 2, _FEW))


def _inside(text: str, at: int) -> bool:
    """Whether the code point at this place belongs to the character before it."""
    if not 0 < at < len(text):
        return False
    here, before = text[at], text[at - 1]
    if _JOINER in (here, before) or unicodedata.category(here) in ("Mn", "Mc", "Me"):
        return True
    if "\U0001f3fb" <= here <= "\U0001f3ff" or "\U000e0020" <= here <= "\U000e007f":
        return True
    if "\U0001f1e6" <= here <= "\U0001f1ff":
        letters = 0
        while at - letters > 0 and "\U0001f1e6" <= text[at - letters - 1] <= "\U0001f1ff":
            letters += 1
        return letters % 2 == 1
    return before == "\r" and here == "\n"
