"""Counted instructions are held against the baseline only where that says something."""

import json
from pathlib import Path

import pytest

from bench import instructions


@pytest.fixture
def baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "instructions.json"
    monkeypatch.setattr(instructions, "BASELINE", path)
    instructions.save({"request": 500_000, "token": 40_000})
    return path


@pytest.mark.parametrize(("request_count", "token_count", "fine"), [(540_000, 43_999, True), (500_000, 44_001, False)])
def test_a_count_may_grow_by_a_tenth(baseline: Path, request_count: int, token_count: int, *, fine: bool) -> None:
    held, lines = instructions.compare({"request": request_count, "token": token_count})
    assert held is fine
    assert [line.split(":")[0] for line in lines] == ["instructions of a request", "instructions of a token"]


def test_counts_made_here_are_comparable(baseline: Path) -> None:
    assert instructions.incomparable() is None


@pytest.mark.parametrize("what", ["Python", "built", "machine"])
def test_counts_of_another_interpreter_or_processor_are_not_compared(baseline: Path, what: str) -> None:
    stored = json.loads(baseline.read_text())
    stored["made_by"][what] = "another one"
    baseline.write_text(json.dumps(stored))
    why = instructions.incomparable()
    assert why is not None
    assert "another one" in why


def test_other_packages_are_told_and_compared(baseline: Path) -> None:
    stored = json.loads(baseline.read_text())
    stored["packages"]["aiohttp"] = "0.1"
    baseline.write_text(json.dumps(stored))
    held, lines = instructions.compare({"request": 1, "token": 1})
    assert held
    assert "0.1" in lines[0]
