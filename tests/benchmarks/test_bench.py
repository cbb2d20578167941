"""The speed harness runs, from start to table, with counts so small that its numbers mean nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "COLUMNS": "200"},
    )


@pytest.mark.slow
def test_every_measure_of_the_gate_is_taken(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = bench("--tiny", "--no-vocabulary", "--json", str(out))
    assert done.returncode in (0, 1), done.stderr  # 1: a goal was missed, and such small numbers say nothing about it
    stored = json.loads(out.read_text())
    values = stored["values"]
    for measure in ("first byte", "request c16", "request c64", "paced", "latest token", "resident at start"):
        assert values[measure]["gate"][0] > 0
    assert values["first byte"]["gate"][0] > values["first byte"]["direct"][0]
    compared = shutil.which("nginx", path="/usr/sbin:/usr/bin") is not None
    assert ("nginx" in values["paced"]) is compared
    assert "CPU of a streamed token" in done.stdout


@pytest.mark.slow
def test_without_a_gate_the_failure_says_what_was_tried(tmp_path: Path) -> None:
    done = bench("--tiny", "--no-vocabulary", "--gate", "/bin/false", "--json", str(tmp_path / "results.json"))
    assert done.returncode == 1
    assert "nothing answers on port" in done.stderr
