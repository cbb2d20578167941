"""The rules of the house that no linter knows."""

import ast
import stat
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ollama_gate"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
SCRIPTS = [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci/run"]

LONGEST = 450
NOT_MIRRORED = {"benchmarks", "cases", "cli", "deploy", "docs", "faults", "real", "scenarios", "scripts", "v1"}
"""Folders of tests that are about more than one module of the package."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_a_module_has_one_subject_and_says_which(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST, "it has grown a second subject: split it"
    assert ast.get_docstring(ast.parse(text)), "its first line says what it is about"


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
    assert [named(module) for module in MODULES if drawers & set(module.stem.split("_"))] == []


def test_tests_lie_where_their_subject_lies() -> None:
    astray = []
    for test in TESTS:
        folder = test.parent.relative_to(ROOT / "tests")
        if folder.parts and folder.parts[0] not in NOT_MIRRORED and not (PACKAGE / folder).is_dir():
            astray.append(named(test))
    assert astray == []


def test_files_of_tests_have_names_of_their_own_in_each_folder() -> None:
    """Nothing that looks like a test lies where pytest does not look."""
    assert [named(file) for file in PACKAGE.rglob("test_*.py")] == []
    assert [named(file) for file in (ROOT / "tests").rglob("*_test.py")] == []


def test_no_file_is_large() -> None:
    folders = ("ollama_gate", "tests", "docs", "deploy", "scripts", "compliance", "bench")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()]
    assert [named(file) for file in files if file.stat().st_size > 2_000_000 and "__pycache__" not in file.parts] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_a_script_can_be_run_and_stops_at_the_first_error(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    if script.suffix == ".sh":
        assert text.startswith("# Sourced by")
        return
    assert script.stat().st_mode & stat.S_IXUSR
    if "bash" in text.splitlines()[0]:
        assert text.startswith("#!/usr/bin/env bash\n# ")
        assert "\nset -euo pipefail\n" in text
    else:
        assert text.startswith("#!/usr/bin/env python3\n")
