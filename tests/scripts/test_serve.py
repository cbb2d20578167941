import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ollama_gate
from support.canned import canned

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose virtual environment is the one that runs the tests, with everything installed already."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    package = Path(ollama_gate.__file__).parents[1]
    for name, module in (("python", ""), ("ollama-gate", "-m ollama_gate ")):
        pip = 'case "$*" in "-m pip "*) exit 0 ;; esac\n' if name == "python" else ""
        text = f'#!/bin/sh\n{pip}PYTHONPATH={package} exec {sys.executable} {module}"$@"\n'
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serving(checkout: Path, upstream: str, gate: int, rehearsal: int) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The script with its output up to the line in which the gate says that it listens."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OLLAMA_")}
    environ |= {"OLLAMA_UPSTREAM": upstream, "REHEARSAL_LISTEN": f"127.0.0.1:{rehearsal}"}
    # Whoever runs the tests in the background may have them ignore Ctrl-C, and what is ignored is inherited.
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", heed, str(checkout / "scripts/serve"), f"--listen=127.0.0.1:{gate}"]
    script = subprocess.Popen(
        command, env=environ, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert script.stdout
    said = ""
    try:
        for line in script.stdout:
            said += line
            if '"listening"' in line:
                break
        else:
            pytest.fail(f"the gate did not start:\n{said}")
        yield script, said
    finally:
        script.terminate()
        script.communicate(timeout=30)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_without_an_ollama_the_rehearsal_takes_its_place_and_ends_with_the_gate(
    checkout: Path, number: signal.Signals, code: int
) -> None:
    gate, rehearsal, nobody = free_ports(3)
    with serving(checkout, f"127.0.0.1:{nobody}", gate, rehearsal) as (script, said):
        assert f"No Ollama answers at http://127.0.0.1:{nobody}." in said
        assert f"export OLLAMA_HOST=127.0.0.1:{gate}" in said
        with urllib.request.urlopen(f"http://127.0.0.1:{gate}/api/version", timeout=10) as answer:
            assert answer.status == 200
        assert listens(rehearsal)
        script.send_signal(number)
        script.communicate(timeout=30)
        assert script.returncode == code
    assert not listens(gate)
    assert not listens(rehearsal)


def test_a_second_gate_stands_before_the_rehearsal_that_runs_and_leaves_it_running(checkout: Path) -> None:
    first, second, rehearsal, nobody = free_ports(4)
    with serving(checkout, f"127.0.0.1:{nobody}", first, rehearsal):
        with serving(checkout, f"127.0.0.1:{nobody}", second, rehearsal) as (script, said):
            assert "One runs there already" in said
            script.send_signal(signal.SIGTERM)
            script.communicate(timeout=30)
            assert script.returncode == 0
        assert listens(rehearsal)


def test_with_an_ollama_there_is_no_rehearsal(checkout: Path) -> None:
    gate, rehearsal = free_ports(2)
    with (
        canned({"/api/version": (200, {"version": "0.33.1"}), "/api/tags": (200, {"models": []})}) as ollama,
        serving(checkout, ollama.url, gate, rehearsal) as (script, said),
    ):
        assert "No Ollama answers" not in said
        with urllib.request.urlopen(f"http://127.0.0.1:{gate}/api/version", timeout=10) as answer:
            assert answer.read() == b'{"version": "0.33.1"}'
        assert not listens(rehearsal)
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=30)
        assert script.returncode == 0


def test_a_mistake_in_the_configuration_is_told_before_anything_starts(checkout: Path) -> None:
    file = checkout / "ollama-gate.toml"
    file.write_text("[queu]\n")
    command = [str(checkout / "scripts/serve"), "--config", str(file)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OLLAMA_")}
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean [queue]?" in done.stderr
