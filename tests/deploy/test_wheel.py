import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ollama_gate import __version__

ROOT = Path(__file__).parents[2]
SOURCES = ("ollama_gate", "pyproject.toml", "README.md", "LICENSE")


def build(source: Path, target: Path) -> Path:
    """Build the wheel of a source tree; the name of the one file that comes out."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, cwd=source, env=environ, check=True, capture_output=True)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(sources, tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path, sources: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {str(file.relative_to(sources)) for file in (sources / "ollama_gate").rglob("*") if file.is_file()}
    assert "ollama_gate/py.typed" in package
    assert any(name.startswith("ollama_gate/rehearsal/data/") for name in package)
    about = f"ollama_gate-{__version__}.dist-info"
    assert names - package == {
        f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    }
    assert package <= names


@pytest.mark.slow
def test_the_wheel_says_how_it_is_run_and_under_which_licence(wheel: Path) -> None:
    about = f"ollama_gate-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert "ollama-gate = ollama_gate.__main__:main" in archive.read(f"{about}/entry_points.txt").decode()
        metadata = archive.read(f"{about}/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert f"\nVersion: {__version__}\n" in metadata


@pytest.mark.slow
def test_the_same_sources_give_the_same_wheel(wheel: Path, sources: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere"
    shutil.copytree(sources, again, copy_function=shutil.copyfile)  # other times, other modes
    for file in again.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    rebuilt = build(again, tmp_path / "out")
    assert hashlib.sha256(rebuilt.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()
