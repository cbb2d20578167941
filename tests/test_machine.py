"""How much memory there is, the machine's or the control group's where that is less, and how many files may be open."""

import os
import resource
from pathlib import Path

import pytest

from ollama_gate.machine import allow_open_files, memory_bytes

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], PHYSICAL),
        (["max\n"], PHYSICAL),
        (["4096\n"], 4096),
        (["max", "8192"], 8192),
        (["4096", "1024"], 4096),
        ([str(2**63)], PHYSICAL),
        (["nonsense"], PHYSICAL),
        ([""], PHYSICAL),
    ],
)
def test_the_smaller_limit_holds(tmp_path: Path, texts: list[str], expected: int) -> None:
    files = []
    for number, text in enumerate(texts):
        file = tmp_path / f"limit{number}"
        file.write_text(text)
        files.append(file)
    assert memory_bytes((tmp_path / "missing", *files)) == expected


def test_as_many_files_may_be_open_as_are_enough_or_the_system_lets(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (1024, 4096)

    def change(_kind: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits)
    monkeypatch.setattr(resource, "setrlimit", change)
    assert allow_open_files() == 4096
    assert limits == (4096, 4096)
    limits = (1024, resource.RLIM_INFINITY)
    assert allow_open_files() == 65536
    limits = (10**6, 10**6)
    assert allow_open_files() == 10**6
    assert limits == (10**6, 10**6)


def test_where_the_limit_cannot_be_raised_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_kind: int, _wanted: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert allow_open_files() == 1024
