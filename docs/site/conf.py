"""How scripts/docs makes the site of these pages: Sphinx with MyST, which reads them as they lie here, and Furo.

The pages are written for a plain Git host, so that nothing in them is Sphinx's: the README is the first page, and the
navigation stands here.
"""

import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
NAVIGATION: Final = {
    "Begin": ("start", "how-ollama-loses-your-prompt", "clients", "migrate-a-prompt", "troubleshooting"),
    "Run it": ("install", "configuration", "commands", "operate", "security", "memory", "compaction", "archive"),
    "Look up": ("refusals", "signals", "dialects", "other-runtimes", "faults", "speed", "verification"),
    "Inside": ("inside", "counting", "dependencies"),
}
"""The pages of docs/ below each heading of the navigation; a test compares them with what lies there."""

project = "ollama-gate"
author = "The ollama-gate authors"
project_copyright = author
release = re.findall(r'^__version__ = "(.+)"$', (ROOT / "ollama_gate/__init__.py").read_text("utf-8"), re.MULTILINE)[0]
version = release
root_doc = "index"
language = "en"
nitpicky = True

extensions = ["myst_parser"]
myst_heading_anchors = 6  # by the rule of Git hosts
smartquotes = False  # a word is written as it is typed

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {f"{mode}_css_variables": {"code-font-size": "75%"} for mode in ("light", "dark")}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_show_search_summary = False  # it would be fetched, which a browser does not do for files


def navigation() -> str:
    """The tables of contents that the first page carries besides its text, in MyST."""
    blocks = []
    for caption, pages in NAVIGATION.items():
        names = "\n".join(f"docs/{page}" for page in pages)
        blocks.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n")
    return "".join(blocks) + "\n```{toctree}\n:hidden:\n:caption: Project\n\nCHANGELOG\n```\n"


def add_navigation(_app: object, name: str, source: list[str]) -> None:
    """What Sphinx calls with each page that it has read, and with its text in a list to be changed."""
    if name == root_doc:
        source[0] += navigation()


def setup(app: Any) -> None:
    """What Sphinx calls at the start."""
    app.connect("source-read", add_navigation)
