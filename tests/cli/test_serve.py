import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from ollama_gate import app
from ollama_gate.cli import main
from ollama_gate.config import Config, load

Runs = list[tuple[Config, Path | None]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What the gate was run with; it is not really run."""
    seen: Runs = []

    def run(config: Config, file: Path | None) -> int:
        seen.append((config, file))
        return 0

    monkeypatch.setattr(app, "run", run)
    for name in ("OLLAMA_GATE_SERVER_LISTEN", "OLLAMA_GATE_UPSTREAM_URL"):
        monkeypatch.setenv(name, "")  # so that what the command sets is taken away after the test
    return seen


def test_the_gate_runs_with_the_file_and_the_command_line(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text("[server]\nlisten = ':1'\n[queue]\ndepth = 3\n[models.qwen3]\nnum_ctx = 512\n")
    done = CliRunner().invoke(main, ["serve", "--config", str(file), "--listen", ":2", "--upstream", "box"])
    assert done.exit_code == 0
    config, used = runs[0]
    assert used == file
    assert (config.server.listen, config.upstream.url, config.queue.depth) == (":2", "http://box:11434", 3)
    assert list(config.models) == ["registry.ollama.ai/library/qwen3:latest"]

    file.write_text("[server]\nlisten = ':1'\n[queue]\ndepth = 4\n")
    again = load(used, os.environ)  # as a reload reads it
    assert (again.server.listen, again.queue.depth) == (":2", 4)


def test_a_bad_configuration_does_not_start(runs: Runs, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["serve", "--config", str(tmp_path / "none.toml")])
    assert done.exit_code == 2
    assert done.stderr == f"{tmp_path / 'none.toml'}: there is no such file\n"
    assert runs == []


def test_an_address_that_cannot_be_meant_is_laid_to_its_variable(
    runs: Runs,
) -> None:
    done = CliRunner().invoke(main, ["serve", "--listen", "nowhere:x"])
    assert done.exit_code == 2
    assert "OLLAMA_GATE_SERVER_LISTEN: server.listen: 'x' is not a port" in done.stderr
    assert runs == []


def test_rehearse_hands_everything_to_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _path, arguments: calls.append(arguments))
    assert CliRunner().invoke(main, ["rehearse", "--listen", "127.0.0.1:0", "--help"]).exit_code == 0
    assert calls[0][1:] == ["-m", "ollama_gate.rehearsal", "--listen", "127.0.0.1:0", "--help"]
