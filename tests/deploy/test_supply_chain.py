"""What a gate is installed with: settled, named with its licence, and built the same every time."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "deploy" / "requirements.lock").read_text("utf-8")
LINUX = {
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "python_full_version": "3.11.7",
    "python_version": "3.11",
}


def locked() -> dict[str, Requirement]:
    """What the lock file settles, by name."""
    found = (Requirement(line.rstrip(" \\")) for line in LOCK.splitlines() if "==" in line)
    return {canonicalize_name(one.name): one for one in found}


def test_every_dependency_is_settled_at_a_release_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    settled = locked()
    for text in project["dependencies"]:
        wanted = Requirement(text)
        (pin,) = settled[canonicalize_name(wanted.name)].specifier
        assert pin.operator == "=="
        assert wanted.specifier.contains(pin.version), text


def test_every_release_has_its_hashes() -> None:
    for entry in re.split(r"\n(?=\S)", LOCK.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]


def test_the_page_names_each_with_its_licence() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    told = {canonicalize_name(name): (version, licence) for name, version, licence in rows[2:]}
    installed = {name: one for name, one in locked().items() if one.marker is None or one.marker.evaluate(LINUX)}
    assert set(told) == set(installed)
    for name, (version, licence) in told.items():
        assert installed[name].specifier.contains(version)
        assert licence.upper() not in {"", "UNKNOWN"}, name


@pytest.mark.slow
def test_two_builds_of_the_wheel_are_the_same(tmp_path: Path) -> None:
    built = set()
    for attempt in ("one", "two"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / attempt)],
            cwd=ROOT,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
            check=True,
            capture_output=True,
        )
        (wheel,) = (tmp_path / attempt).glob("*.whl")
        built.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(built) == 1
