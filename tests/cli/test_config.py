import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from ollama_gate.catalog.names import canonical
from ollama_gate.cli import main
from ollama_gate.config import load, reference


@pytest.mark.parametrize(
    ("name", "text"),
    [("example", reference.example()), ("schema", reference.schema()), ("reference", reference.page())],
)
def test_what_can_be_configured_is_printed(name: str, text: str) -> None:
    assert CliRunner().invoke(main, ["config", name]).stdout == text


def test_what_is_in_force_is_printed_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text('[memory]\nlimit = "24GiB"\n[models."qwen3:8b"]\nnum_ctx = 16384\n')
    environ = {"OLLAMA_GATE_QUEUE_DEPTH": "3"}
    done = CliRunner(env=environ).invoke(main, ["config", "show", "--config", str(file)])
    assert done.exit_code == 0
    assert str(file) in done.stdout.splitlines()[0]
    shown = tomllib.loads(done.stdout)
    assert shown["memory"]["limit"] == "24GiB"
    assert shown["queue"]["depth"] == 3
    again = tmp_path / "again.toml"
    again.write_text(done.stdout)
    assert load(again, {}, canonical) == load(file, {**os.environ, **environ}, canonical)


def test_what_is_in_force_is_printed_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text('[memory]\nlimit = "1GiB"\n')
    done = CliRunner().invoke(main, ["config", "show", "--json", "--config", str(file)])
    assert json.loads(done.stdout)["memory"]["limit"] == 1024**3
