import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/postgresql"
INSTALLED = bool(list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))) or shutil.which("initdb") is not None
needs_programs = pytest.mark.skipif(not INSTALLED, reason="PostgreSQL is not installed")


def run(*command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TMPDIR": str(directory)}
    return subprocess.run([SCRIPT, *command], env=environ, capture_output=True, text=True, check=False, cwd=ROOT)


@needs_programs
@pytest.mark.slow
def test_a_command_gets_a_database_that_is_gone_with_it() -> None:
    directory = Path(tempfile.mkdtemp(dir="/tmp"))  # where the server's own user may go, unlike tmp_path
    directory.chmod(0o777)
    try:
        done = run("sh", "-c", 'pwd; echo "$OLLAMA_GATE_TEST_POSTGRES"; exit 7', directory=directory)
        assert done.returncode == 7, done.stderr
        where, url = done.stdout.splitlines()
        assert where == str(ROOT)
        address = urlsplit(url)
        assert address.hostname == "127.0.0.1"
        assert address.password
        assert address.port
        # Not tried with a connection: by now the port may be somebody else's.
        commands = [process.info["cmdline"] or [""] for process in psutil.process_iter(["cmdline"])]
        assert not [command for command in commands if str(address.port) in command and "postgres" in command[0]]
        assert list(directory.iterdir()) == []
    finally:
        shutil.rmtree(directory)


def test_without_a_command_it_says_what_it_takes(tmp_path: Path) -> None:
    done = run(directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: scripts/postgresql COMMAND" in done.stderr
