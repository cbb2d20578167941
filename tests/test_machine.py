"""How much memory there is: the machine's, or the control group's where that is less."""

import os
from pathlib import Path

import pytest

from ollama_gate.machine import memory_bytes

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
