"""Loads three libraries without what they bring along that a gate which serves never uses.

They take a seventh of the time from the start to the first answer, and 7 MB that stay. Imported before them, by
`serve` only; where one of them is loaded already, as in a test, nothing is done.

Nor does Python look for cycles until `loaded`: nearly all that is made meanwhile stays, and going through all of it
again and again takes a tenth of the time that loading takes.
"""

import gc
import importlib
import os
import sys
from typing import Final

_WITHOUT: Final = {
    # rich draws tracebacks in colour; greenlet, where SQLAlchemy brought it, is looked for by a kind of thread locals.
    "structlog": ("rich", "greenlet"),
    # aiohttp's client reads all certificates of the machine when it is imported; the gate has a client of its own. TLS
    # for its server is asyncio's.
    "aiohttp": ("ssl",),
}
_WITH_TLS: Final = ("asyncio", "urllib.request")
"""What aiohttp loads of the standard library that has to find ssl."""


_FIRST: Final = "aiohttp" not in sys.modules
"""Whether what a gate needs is loaded from here on; in a test it is there already."""


def loaded() -> None:
    """All is imported: look for cycles again, among what comes from now on."""
    if _FIRST:
        gc.freeze()
        gc.enable()


def load_without(library: str, *hidden: str) -> None:
    """Import a library as if it could not find others that it can do without."""
    if library in sys.modules:
        return
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]  # None marks a module as not to be had
    before = {name: modules[name] for name in hidden if name in modules}
    modules.update(dict.fromkeys(hidden))
    try:
        importlib.import_module(library)
    finally:
        for name in hidden:
            del modules[name]
        modules.update(before)


if _FIRST:
    gc.disable()
# No other package has a say in how the configuration is read; to find those that would, pydantic reads the metadata of
# everything that is installed.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
for _library in _WITH_TLS:
    importlib.import_module(_library)
for _library, _hidden in _WITHOUT.items():
    load_without(_library, *_hidden)
