"""The project's pages for users, taken apart: text without code, headings as GitHub links them, console blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCE: Final = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[(?:[^\]`]|`[^`]*`)+\]\((?P<target>[^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(?P<text>.+?)\s*$", re.MULTILINE)


def name_of(page: Path) -> str:
    """A page's path from the project's root."""
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """The targets of a page's links."""
    return [found["target"] for found in _LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of this page may say behind its `#`, as GitHub makes it."""
    out: set[str] = set()
    for found in _HEADING.finditer(prose(page)):
        words = re.sub(r"[^\w\- ]", "", found["text"].lower()).replace(" ", "-")
        number = 1
        anchor = words
        while anchor in out:
            anchor = f"{words}-{number}"
            number += 1
        out.add(anchor)
    return out


@dataclass(frozen=True, slots=True)
class Shown:
    """A command and what a page says that it prints."""

    command: str
    output: str


def shown(page: Path) -> Iterator[Shown]:
    """Each command of a page's console blocks."""
    for block in _FENCE.finditer(page.read_text("utf-8")):
        if block["kind"] != "console":
            continue
        for command, output in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block["body"], re.MULTILINE):
            yield Shown(command, output)


def column(page: Path, heading: str, number: int = 0) -> list[str]:
    """The words in code style in one column of the first table below a heading."""
    section = page.read_text("utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", row)[1 + number] for row in rows]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]
