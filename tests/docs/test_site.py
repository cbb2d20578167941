"""The site that scripts/docs makes: every page can be reached, and what is wrong with a link does not get past."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from support.pages import PAGES, ROOT


def part(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs/site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_stands_in_the_navigation_once() -> None:
    told = [page for pages in part("conf").NAVIGATION.values() for page in pages]
    assert sorted(told) == sorted(page.stem for page in PAGES if page.parent.name == "docs")


def test_the_first_page_carries_the_navigation_and_no_other_does() -> None:
    conf = part("conf")
    first, other = ["# The first\n"], ["# Another\n"]
    conf.add_navigation(None, "index", first)
    conf.add_navigation(None, "docs/start", other)
    assert first[0].startswith("# The first\n")
    assert "\ndocs/start\n" in first[0]
    assert "\nCHANGELOG\n" in first[0]
    assert other == ["# Another\n"]


def test_ci_makes_the_site() -> None:
    assert "\nscripts/docs\n" in (ROOT / ".ci/run").read_text("utf-8")


WHOLE = {
    "index.html": """<html><head><link rel="stylesheet" href="static/a.css"><link rel="next" href="docs/b.html">
        <script src="static/a.js?v=1"></script><style>p { background: url(plot.svg) }</style></head>
        <body><h1 id="top">A</h1><a href="#top">here</a> <a href="docs/b.html#caf%C3%A9">there</a>
        <a href="https://elsewhere.example/">elsewhere</a> <a href="mailto:a@b.example">mail</a> <img src="plot.svg">
        </body></html>""",
    "docs/b.html": """<html><body><a href="../index.html">back</a><h2 id="café">B</h2>
        <form action="../index.html"></form>
        <img srcset="../plot.svg 1x, ../plot.svg 2x" src="data:image/svg+xml,%3Csvg/%3E"></body></html>""",
    "static/a.css": """/* url(https://elsewhere.example/comment) */ p { background: url("../plot.svg") }
        a { background: url('data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg"/>') }""",
    "static/a.js": "",
    "plot.svg": '<svg xmlns="http://www.w3.org/2000/svg"><title>A plot</title></svg>',
}


def written(site: Path, **more: str) -> Path:
    """A site with more in some of its files."""
    for name, text in WHOLE.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text + more.get(name, ""), "utf-8")
    return site


def test_a_whole_site_has_no_mistakes(tmp_path: Path) -> None:
    assert list(part("links").mistakes(written(tmp_path))) == []


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("index.html", '<a href="missing.html">x</a>', "missing.html leads nowhere"),
        ("index.html", '<a href="docs">x</a>', "docs leads nowhere"),
        ("index.html", '<a href="/docs/b.html">x</a>', "/docs/b.html leads nowhere"),
        ("docs/b.html", '<a href="../../outside.html">x</a>', "../../outside.html leads nowhere"),
        ("docs/b.html", '<a href="../index.html#nothing">x</a>', "../index.html#nothing names a place"),
        ("docs/b.html", '<a href="#nothing">x</a>', "#nothing names a place"),
        ("index.html", '<img src="missing.png">', "missing.png leads nowhere"),
        ("index.html", '<img src="https://e.example/a.png">', "loads https://e.example/a.png"),
        ("index.html", '<img srcset="plot.svg 1x, https://e.example/a.png 2x">', "loads https://e.example/a.png"),
        ("index.html", '<script src="//e.example/a.js"></script>', "loads //e.example/a.js"),
        ("index.html", '<link rel="stylesheet" href="https://e.example/a.css">', "loads https://e.example/a.css"),
        ("index.html", '<link rel="preconnect" href="https://e.example">', "loads https://e.example"),
        ("index.html", '<p style="background: url(https://e.example/a.png)">', "loads https://e.example/a.png"),
        ("index.html", "<style>@import 'https://e.example/a.css';</style>", "loads https://e.example/a.css"),
        ("static/a.css", "@font-face { src: url(//e.example/a.woff2) }", "loads //e.example/a.woff2"),
        ("static/a.css", "p { background: url(missing.png) }", "missing.png leads nowhere"),
        ("plot.svg", '<svg><image xlink:href="https://e.example/a.png"/></svg>', "loads https://e.example/a.png"),
    ],
)
def test_a_dead_link_and_what_lies_elsewhere_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / "outside.html").touch()
    (found,) = part("links").mistakes(written(tmp_path / "site", **{name: text}))
    assert found.startswith(f"{name}: ")
    assert says in found
