"""A long prompt taken apart: its sections by headings, passages that stand in it twice, and units to split it into.

Pure: text in, values out. Nothing of a text is lost: sections and units, put together, are the text.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

CORE: Final = 2_000
"""Tokens that every session can bear: who one is, the rules that always hold, where to find the rest."""
UNIT: Final = 4_000
"""Tokens of the largest unit that is read for one task."""
_LEAST_UNIT: Final = 2_000
_SHINGLE: Final = 12
"""Words in a row that do not come twice by chance."""
_HEADING: Final = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_UNDERLINE: Final = re.compile(r"^ {0,3}(=+|-{3,})[ \t]*$")
"""Below a line of text of its own it makes that line a heading of the first or second level."""
_PLAIN: Final = re.compile(r"^ {0,3}(?![-+*>|#=]|\d+[.)])\S")
_FENCE: Final = re.compile(r"^[ ]{0,3}(```+|~~~+)")
_CHANGING: Final = re.compile(
    r"\{\{.*?\}\}|\$\{\w+\}|\b20\d\d-\d\d-\d\d\b|\b\d{1,2}:\d\d\b|"
    r"\b(?:today is|current (?:date|time|branch|directory)|right now|as of)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands below it, up to the next heading of any level."""

    level: int
    """1 to 6; 0 for what stands before the first heading."""
    title: str
    text: str
    """With its heading line, as it stood."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Words that stand in a text more than once."""

    words: int
    excerpt: str
    sections: tuple[int, ...]
    """Where, by number of the section."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Sections that are read together."""

    title: str
    text: str
    tokens: int


def sections(text: str) -> list[Section]:
    """A Markdown text by its headings; a heading inside of a code block is none. Put together, they are the text."""
    out: list[Section] = []
    lines: list[str] = []
    level, title, fence = 0, "", ""
    stands_alone = False  # whether the last line is one of text behind an empty one
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        under = None if fence or not stands_alone else _UNDERLINE.match(bare)
        if under is not None:
            heading = lines.pop()
            if lines:
                out.append(Section(level, title, "".join(lines)))
            level, title, lines = 1 if under[1][0] == "=" else 2, heading.strip(), [heading, line]
            stands_alone = False
            continue
        stands_alone = _PLAIN.match(bare) is not None and (not lines or not lines[-1].strip())
        mark = _FENCE.match(line)
        if mark is not None and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        found = None if fence or mark is not None else _HEADING.match(bare)
        if found is not None:
            if lines:
                out.append(Section(level, title, "".join(lines)))
            level, title, lines = len(found[1]), found[2], []
        lines.append(line)
    if lines:
        out.append(Section(level, title, "".join(lines)))
    return out


def repeated(parts: Sequence[Section]) -> list[Repeated]:
    """Passages of a dozen words and more that stand in the text at least twice, the longest first."""
    words = [(word, number) for number, part in enumerate(parts) for word in part.text.split()]
    folded = [word.casefold().strip(".,;:!?*_`\"'()") for word, _ in words]
    # Nearly all stand there once: only of the others a list is made.
    seen: dict[int, int] = {}
    again: dict[int, list[int]] = defaultdict(list)
    for at, shape in enumerate(map(hash, zip(*(islice(folded, late, None) for late in range(_SHINGLE)), strict=False))):
        if (first := seen.setdefault(shape, at)) != at:
            again[shape].append(at)
    out: list[Repeated] = []
    taken = bytearray(len(folded))
    for shape in sorted(again, key=seen.__getitem__):
        first = seen[shape]
        shingle = folded[first : first + _SHINGLE]
        others = [at for at in again[shape] if at >= first + _SHINGLE and folded[at : at + _SHINGLE] == shingle]
        if not others or taken[first] or taken[others[0]]:
            continue
        length = _SHINGLE
        limit = min(others[0] - first, *(later - one for one, later in pairwise(others)), len(folded))
        while length < limit and others[-1] + length < len(folded):
            if any(folded[at + length] != folded[first + length] for at in others):
                break
            length += 1
        for at in (first, *others):
            taken[at : at + length] = b"\1" * length
        excerpt = " ".join(word for word, _ in words[first : first + _SHINGLE])
        where = tuple(dict.fromkeys(words[at][1] for at in (first, *others)))
        out += [Repeated(length, excerpt, where)] * len(others)
    return sorted(out, key=lambda one: -one.words)


def changing(parts: Sequence[Section]) -> list[tuple[int, str]]:
    """Sections that hold what differs from session to session (dates, placeholders): number, and what was seen."""
    return [(number, found[0]) for number, part in enumerate(parts) if (found := _CHANGING.search(part.text))]


def split(parts: Sequence[Section], count: Callable[[str], int]) -> list[Unit]:
    """The core, then units of two to four thousand tokens, in the order of the text.

    Args:
        parts: the text's sections.
        count: tokens of a text.
    """
    # A first section that is larger than a core begins it all the same.
    most = (CORE, *[UNIT] * len(parts))
    pieces = [piece for part, size in zip(parts, most, strict=False) for piece in _pieces(part, count, size)]
    core: list[tuple[str, str, int]] = []
    while pieces and sum(tokens for *_, tokens in core) + pieces[0][2] <= CORE:
        core.append(pieces.pop(0))
    units = [_unit(core or [("", "", 0)])]
    held: list[tuple[str, str, int]] = []
    for piece in pieces:
        size = sum(tokens for *_, tokens in held)
        if held and (size + piece[2] > UNIT or size >= _LEAST_UNIT):
            units.append(_unit(held))
            held = []
        held.append(piece)
    if held:
        units.append(_unit(held))
    return units


def _unit(pieces: Sequence[tuple[str, str, int]]) -> Unit:
    title = next((title for title, *_ in pieces if title), "")
    return Unit(title, "".join(text for _, text, _ in pieces), sum(tokens for *_, tokens in pieces))


def _pieces(part: Section, count: Callable[[str], int], most: int) -> Iterator[tuple[str, str, int]]:
    """A section as it is, or by paragraphs where it is larger than that."""
    tokens = count(part.text)
    if tokens <= most:
        yield part.title, part.text, tokens
        return
    held, size = "", 0
    for paragraph in re.split(r"(?<=\n)(?=[ \t]*\n)", part.text):
        cost = count(paragraph)
        if held and size + cost > most:
            yield part.title, held, size
            held, size = "", 0
        held, size = held + paragraph, size + cost
    yield part.title, held, size


def slug(title: str) -> str:
    """A title as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-") or "untitled"
