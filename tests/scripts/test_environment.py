import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "basename", "cat", "chmod", "cksum", "cut", "dirname", "env", "mkdir", "readlink", "rm")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the scripts and a made-up Python, the only one there is; it writes down how pip is called."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    return tmp_path


def made_up_python(checkout: Path, name: str, *, version: str = "3.11.9", new_enough: bool = True) -> None:
    python = checkout / "tools" / name
    python.write_text(
        f"""#!{checkout}/tools/bash
        case "$*" in
            "-V") echo "Python {version}" ;;
            *version_info*) exit {0 if new_enough else 1} ;;
            "-m venv "*) mkdir -p "$3/bin"; cat "$0" >"$3/bin/python"; chmod +x "$3/bin/python" ;;
            "-c import pip") [ ! -e "{checkout}/no-pip" ] ;;
            "-m pip "*) echo "$*" >>"{checkout}/pip.log" ;;
        esac
        """
    )
    python.chmod(0o755)


def set_up(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = '. "$0/scripts/environment.sh"; environment "$0/.venv" "$@"'
    command = [str(checkout / "tools/bash"), "-euo", "pipefail", "-c", program, str(checkout), *arguments]
    environ = {name: value for name, value in os.environ.items() if name not in {"PATH", "PYTHON"}}
    environ["PATH"] = str(checkout / "tools")
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def installs(checkout: Path) -> int:
    log = checkout / "pip.log"
    return sum("pip>=" not in line for line in log.read_text().splitlines()) if log.exists() else 0


def test_what_is_installed_is_not_installed_again(checkout: Path) -> None:
    made_up_python(checkout, "python3")
    first = set_up(checkout, "--group", "test")
    assert first.returncode == 0, first.stderr
    assert "Making .venv" in first.stderr
    assert "--group test" in (checkout / "pip.log").read_text()
    second = set_up(checkout, "--group", "test")
    assert (second.returncode, second.stderr) == (0, "")
    assert installs(checkout) == 1


def test_another_purpose_or_a_changed_project_installs(checkout: Path) -> None:
    made_up_python(checkout, "python3")
    for arguments in (["--group", "test"], ["--group", "check"], ["--group", "test"]):
        assert set_up(checkout, *arguments).returncode == 0
    assert installs(checkout) == 2
    (checkout / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    assert set_up(checkout, "--group", "test").returncode == 0
    assert installs(checkout) == 3


def test_a_broken_environment_is_made_anew(checkout: Path) -> None:
    made_up_python(checkout, "python3")
    assert set_up(checkout).returncode == 0
    (checkout / ".venv/bin/python").unlink()
    again = set_up(checkout)
    assert "Making .venv" in again.stderr
    assert installs(checkout) == 2


def test_one_whose_making_was_broken_off_is_made_anew(checkout: Path) -> None:
    made_up_python(checkout, "python3")
    assert set_up(checkout).returncode == 0
    (checkout / "no-pip").touch()  # it comes last when an environment is made
    assert "Making .venv" in set_up(checkout).stderr


def test_the_first_python_that_is_new_enough_is_taken(checkout: Path) -> None:
    made_up_python(checkout, "python3", new_enough=False)
    made_up_python(checkout, "python3.12", version="3.12.1")
    done = set_up(checkout)
    assert done.returncode == 0
    assert f"with {checkout}/tools/python3.12" in done.stderr


def test_a_machine_without_a_new_python_is_told_what_to_do(checkout: Path) -> None:
    made_up_python(checkout, "python3", new_enough=False)
    done = set_up(checkout)
    assert done.returncode != 0
    assert "No Python 3.11 or later was found" in done.stderr
    assert not (checkout / ".venv").exists()


def test_nothing_is_installed_through_a_link_into_another_checkout(checkout: Path) -> None:
    made_up_python(checkout, "python3")
    assert set_up(checkout).returncode == 0
    theirs = checkout / "theirs"
    (checkout / ".venv").rename(theirs)
    (checkout / ".venv").symlink_to(theirs)
    assert set_up(checkout).returncode == 0  # all is there
    refused = set_up(checkout, "--group", "test")
    assert refused.returncode != 0
    assert f".venv is a link to {theirs}" in refused.stderr
    assert f"rm {checkout}/.venv" in refused.stderr
    assert installs(checkout) == 1
    (checkout / ".venv").unlink()
    assert set_up(checkout, "--group", "test").returncode == 0
    assert theirs.is_dir()
