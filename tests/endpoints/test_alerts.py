"""One list of alerts: in words, whoever found them, with the page that says what to do."""

from types import SimpleNamespace
from typing import Any, get_args

import pytest

from ollama_gate.admission.alerts import SAYS, Alert
from ollama_gate.endpoints.alerts import alerts
from support.pages import ROOT, anchors

QUIET: dict[str, Any] = {
    "memory": SimpleNamespace(alerts=()),
    "upstream": {"up": True, "warning": None},
    "log": None,
    "archive": {"enabled": False, "problem": None},
    "keys": {"known": 0, "problem": None},
    "shared": {"enabled": False, "problem": None},
}
GIB = 2**30


def memory(**facts: Any) -> dict[str, Any]:
    return {"memory": SimpleNamespace(alerts=(facts,))}


def test_where_all_is_well_there_are_none() -> None:
    assert alerts(QUIET) == []


def test_every_kind_of_the_guards_alerts_has_words() -> None:
    assert {kind.__name__ for kind in get_args(Alert)} == set(SAYS)


@pytest.mark.parametrize(
    ("section", "level", "about", "says"),
    [
        ({"upstream": {"warning": "Ollama 0.3 cuts"}}, "error", "Ollama", "Ollama 0.3 cuts"),
        ({"log": {"alert": "truncated 3", "problem": None}}, "warning", "Ollama", "truncated 3"),
        ({"log": {"alert": None, "problem": "no such file"}}, "warning", "Ollama's log", "no such file"),
        ({"archive": {"enabled": True, "problem": "the disk is full"}}, "error", "archive", "the disk is full"),
        ({"keys": {"known": 1, "problem": "the file is gone"}}, "error", "keys", "the file is gone"),
        ({"shared": {"enabled": True, "problem": "refused"}}, "error", "shared", "refused"),
        (
            memory(kind="Spilled", model="a:latest", size=4 * GIB, size_vram=3 * GIB),
            "warning",
            "a:latest",
            "a model lies partly in host memory and will be slow (size 4.0 GiB, size vram 3.0 GiB)",
        ),
        (
            memory(kind="WindowDiffers", model="a:latest", expected=8192, found=4096),
            "warning",
            "a:latest",
            "something else talks to Ollama (expected 8192, found 4096)",
        ),
        (
            memory(kind="BiggerThanBooked", model="a:latest", booked=GIB, found=2 * GIB),
            "warning",
            "a:latest",
            "(booked 1.0 GiB, found 2.0 GiB)",
        ),
        (
            memory(kind="BiggerThanBooked", model="a:latest", booked=2 * GIB, found=2 * GIB + 4 * 2**20),
            "warning",
            "a:latest",
            "(booked 2.000 GiB, found 2.004 GiB)",
        ),
        (
            memory(kind="Spilled", model="a:latest", size=4 * GIB, size_vram=4 * GIB - 1),
            "warning",
            "a:latest",
            "(size 4.000000000 GiB, size vram 3.999999999 GiB)",
        ),
        (
            memory(
                kind="SettingsDiffer", model="a", num_parallel=1, kv_cache_type="f16", likely=((4, "f16"), (8, "q8_0"))
            ),
            "warning",
            "a",
            "(num parallel 1, kv cache type f16, likely 4 with f16 or 8 with q8_0)",
        ),
        (memory(kind="OverLimit", limit=GIB, held=2 * GIB), "warning", "memory", "(limit 1.0 GiB, held 2.0 GiB)"),
        (
            memory(kind="MemoryUnknown", why="Ollama answers /api/ps with an error", seconds=35.2),
            "error",
            "memory",
            "until it does (for 35 s; Ollama answers /api/ps with an error)",
        ),
        (memory(kind="StillThere", model="a"), "warning", "a", "a model that was told to go has not gone"),
    ],
)
def test_each_is_told_in_words(section: dict[str, Any], level: str, about: str, says: str) -> None:
    (one,) = alerts(QUIET | section)
    assert (one["level"], one["about"]) == (level, about)
    assert one["what"].endswith(says)
    page, _, anchor = one["page"].partition("#")
    assert (ROOT / page).is_file()
    assert not anchor or anchor in anchors(ROOT / page)
