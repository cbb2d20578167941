import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ollama_gate.cli import COMMANDS
from ollama_gate.config import Config
from ollama_gate.config.archive import default_state_dir
from ollama_gate.config.model import default_cache_dir

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy/systemd/ollama-gate.service"
INSTALL = (ROOT / "docs/install.md").read_text(encoding="utf-8")

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)s", text)
    assert match, f"write {text} in seconds"
    return float(match[1])


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    text = UNIT.read_text(encoding="utf-8")
    program = directives()["ExecStart"][0].split()[0]
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(program, "/bin/true"), encoding="utf-8")
    return copy


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_unit(unit: Path) -> None:
    assert ANALYZE
    done = subprocess.run([ANALYZE, "verify", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, [])


@needs_systemd
def test_the_exposure_is_what_the_install_page_says(unit: Path) -> None:
    assert ANALYZE
    version = subprocess.run([ANALYZE, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    command = [ANALYZE, "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    score = re.search(r"Overall exposure level for \S+: (\d+\.\d) (\w+)", done.stdout)
    assert score, done.stdout + done.stderr
    assert float(score[1]) < 2.0
    stated = re.search(r"systemd (\d+) \| (\d+\.\d) (\w+) \|", INSTALL)
    assert stated
    if version == stated[1]:  # another version weighs other things
        assert (score[1], score[2]) == (stated[2], stated[3])


def test_the_unit_runs_a_command_that_there_is_from_where_it_is_installed() -> None:
    program, command = directives()["ExecStart"][0].split()
    assert command in COMMANDS
    venv = str(Path(program).parents[1])
    assert f"python3 -m venv {venv}\n" in INSTALL
    assert f"{venv}/bin/pip install .\n" in INSTALL
    assert f"{program} check\n" in INSTALL


def test_the_directories_of_the_unit_are_those_that_the_gate_uses() -> None:
    found = directives()
    (name,) = found["CacheDirectory"]
    assert default_cache_dir({"CACHE_DIRECTORY": f"/var/cache/{name}"}) == Path("/var/cache/ollama-gate")
    assert found["ConfigurationDirectory"] == found["StateDirectory"] == [name]
    assert default_state_dir({"STATE_DIRECTORY": f"/var/lib/{name}"}) == Path("/var/lib/ollama-gate")
    assert found["StateDirectoryMode"] == ["0700"]
    for place in (f"/etc/{name}/ollama-gate.toml", f"/var/cache/{name}"):
        assert place in INSTALL


def test_stopping_waits_longer_than_the_gate_drains() -> None:
    stop = seconds(directives()["TimeoutStopSec"][0])
    assert stop >= Config().server.drain + 10
    assert f"waits {stop:g} s (`TimeoutStopSec`)" in INSTALL
    assert f"`server.drain` ({Config().server.drain:g} s)" in INSTALL


def test_the_gate_tells_systemd_how_it_is() -> None:
    found = directives()
    assert found["Type"] == ["notify"]
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert f"silent for `WatchdogSec` ({seconds(found['WatchdogSec'][0]):g} s)" in INSTALL


def test_what_the_install_page_promises_of_the_unit_is_in_it() -> None:
    found = {name: values[-1] for name, values in directives().items()}
    assert found["DynamicUser"] == found["ProtectHome"] == found["PrivateDevices"] == found["NoNewPrivileges"] == "yes"
    assert found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == ""
    assert set(found["RestrictAddressFamilies"].split()) == {"AF_INET", "AF_INET6", "AF_UNIX"}
    assert found["MemoryDenyWriteExecute"] == "yes"
    assert directives()["SystemCallFilter"][0] == "@system-service"
