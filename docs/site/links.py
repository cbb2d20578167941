"""Looks whether a built site is whole: every link inside it leads somewhere, and nothing is loaded from elsewhere.

usage: python links.py DIRECTORY; exits 1 and names each mistake.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LINKS: Final = {("a", "href"), ("area", "href"), ("form", "action")}
"""What is followed when somebody asks for it, so that it may lie elsewhere. All others are loaded with the page."""
_ADDRESSES: Final = {"href", "src", "action", "data", "poster", "srcset", "background", "formaction", "xlink:href"}
_META: Final = {"alternate", "author", "canonical", "help", "license", "next", "prev", "search", "index"}
"""The `rel` of a `<link>` that loads nothing."""
_STYLE: Final = re.compile(r"""url\(\s*(?P<url>'[^']*'|"[^"]*"|[^)]*?)\s*\)|@import\s+(?P<import>'[^']*'|"[^"]*")""")


@dataclass(slots=True)
class Page:
    """What a file of the site defines and refers to."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.page.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.page.loads += _of_style(values.get("style", ""))
        for name in _ADDRESSES & set(values):
            links = (tag, name) in _LINKS or (tag == "link" and set(values.get("rel", "").split()) <= _META)
            parts = values[name].split(",") if name == "srcset" else [values[name]]
            (self.page.links if links else self.page.loads).extend(part.split()[0] for part in parts if part.strip())

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.page.loads += _of_style(data)


def _of_style(text: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [(found["url"] or found["import"] or "").strip("'\" ") for found in _STYLE.finditer(text)]


def read(file: Path) -> Page:
    """What a page, a picture or a style sheet of the site defines and refers to."""
    text = file.read_text("utf-8")
    if file.suffix == ".css":
        return Page(loads=_of_style(text))
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def mistakes(site: Path) -> Iterator[str]:
    """Each dead link and each thing loaded from elsewhere, as a line that names the file."""
    pages = {file.resolve(): read(file) for file in site.rglob("*") if file.suffix in {".html", ".css", ".svg"}}
    for file, page in sorted(pages.items()):
        where = file.relative_to(site.resolve())
        for address in page.loads:
            if _elsewhere(address):
                yield f"{where}: loads {address}, which is not the site's own"
        for address in page.links + page.loads:
            if urlsplit(address).scheme or _elsewhere(address):
                continue
            path, anchor = unquote(urlsplit(address).path), unquote(urlsplit(address).fragment)
            target = (file.parent / path).resolve() if path else file
            if path.startswith("/") or not target.is_file() or not target.is_relative_to(site.resolve()):
                yield f"{where}: {address} leads nowhere"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{where}: {address} names a place that is not there"


def _elsewhere(address: str) -> bool:
    """Whether it names another host or another program; what stands in the page itself (`data:`) does not."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in {"", "data"}


def main() -> None:
    """Print what is wrong with the site in the directory that the command line names."""
    site = Path(sys.argv[1])
    found = list(mistakes(site))
    for line in found:
        print(line, file=sys.stderr)
    if found or not (site / "index.html").is_file():
        sys.exit(1)


if __name__ == "__main__":
    main()
