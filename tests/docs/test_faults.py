"""The page on faults names tests that there are, and leaves none of them out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "faults.md").read_text("utf-8")
NAMED = re.findall(r"`([a-z0-9_/]+\.py)::(\w+)`", PAGE)


def names_of(file: Path) -> Iterator[str]:
    """The names of its tests, those in classes too."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_test_that_is_named_exists(file: str, name: str) -> None:
    assert name in set(names_of(TESTS / file))


def test_each_test_of_faults_is_named() -> None:
    there = {(f"faults/{file.name}", name) for file in (TESTS / "faults").glob("test_*.py") for name in names_of(file)}
    assert there - set(NAMED) == set()
    assert len(there) > 20


def test_each_row_names_a_test() -> None:
    sections = PAGE.split("\n## Under load for long\n")[0].split("\n## ")[1:]
    rows = [line for section in sections for line in section.splitlines() if line.startswith("| ")]
    without = [row for row in rows if "::test_" not in row and not row.startswith("| fault |")]
    assert without == []
