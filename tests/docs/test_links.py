"""Every link of the pages leads somewhere."""

from pathlib import Path

import pytest

from support.pages import PAGES, ROOT, anchors, links, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_and_anchors_exist(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or ROOT not in target.parents or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_can_be_found_from_the_readme() -> None:
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in found:
            found.add(page)
            paths = (link.partition("#")[0] for link in links(page) if "://" not in link)
            todo += [(page.parent / path).resolve() for path in paths if path.endswith(".md")]
    assert {name_of(page) for page in PAGES} <= {name_of(page) for page in found}
