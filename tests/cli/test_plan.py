import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.cli import main
from support.canned import Canned, canned
from support.shows import PUBLISHED

GIB = 1024**3
SIZES = {
    "llama:8b": ("llama-8b", 5 * GIB),
    "qwen3:30b": ("qwen3moe-30b", 18 * GIB),
    "mini:latest": ("bert-minilm", GIB),
}


@pytest.fixture
def ollama() -> Iterator[Canned]:
    rows = [{"name": name, "digest": name, "size": size} for name, (_, size) in SIZES.items()]
    answers: dict[str, tuple[int, Any]] = {
        "/api/version": (200, {"version": "0.33.1"}),
        "/api/tags": (200, {"models": [*rows, {"name": "odd:1", "digest": "o", "size": 5}]}),
        "/api/ps": (200, {"models": []}),
        "/api/show odd:1": (200, {"model_info": {}}),
        **{f"/api/show {name}": (200, PUBLISHED[shape]) for name, (shape, _) in SIZES.items()},
    }
    with canned(answers) as server:
        yield server


def plan(tmp_path: Path, url: str, *arguments: str, text: str = "[memory]\nhost_cache_per_model = 0\n") -> Result:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(f"[upstream]\nurl = '{url}'\n{text}")
    return CliRunner().invoke(main, ["plan", "--config", str(file), *arguments])


def test_programs_get_every_combination_the_biggest_model_first(tmp_path: Path, ollama: Canned) -> None:
    done = plan(tmp_path, ollama.url, "--memory", "24GiB", "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (told["memory_bytes"], told["counts_host"], told["gpus"]) == (24 * GIB, True, 0)
    assert [model["model"] for model in told["models"]] == ["qwen3:30b", "llama:8b", "mini:latest"]
    assert list(told["unknown"]) == ["odd:1"]
    first = told["models"][0]
    assert first["fits"] is True
    assert first["best"]["kv_cache_type"] == "q8_0"
    assert all(fit["bytes"] <= 24 * GIB for each in first["combinations"] for fit in each["fitting"])
    assert len(first["combinations"]) == 9


def test_people_get_a_table_and_an_advice(tmp_path: Path, ollama: Canned) -> None:
    done = plan(tmp_path, ollama.url, "--memory", "8GiB", "--model", "llama:8b", "--model", "qwen3:30b")
    assert done.exit_code == 0
    assert "1 slot   2 slots   4 slots" in done.stdout
    assert 'kv_cache_type = "q8_0", num_ctx = ' in done.stdout
    assert done.stdout.index("llama:8b") < done.stdout.index("qwen3:30b")
    assert "does not fit with any window" in done.stdout
    assert "mini" not in done.stdout


def test_the_prompt_cache_is_named_where_it_counts(tmp_path: Path, ollama: Canned) -> None:
    arguments = ("--memory", "24GiB", "--model", "llama:8b")
    assert "8GiB of it may fill up" in plan(tmp_path, ollama.url, *arguments, text="").stdout
    assert "fill up" not in plan(tmp_path, ollama.url, *arguments, "--gpus", "1", text="").stdout


def test_the_limit_of_the_configuration_is_taken_where_none_is_said(tmp_path: Path, ollama: Canned) -> None:
    limited = "[memory]\nlimit = '10GiB'\n"
    assert json.loads(plan(tmp_path, ollama.url, "--json", text=limited).stdout)["memory_bytes"] == 10 * GIB


def test_without_a_limit_it_is_the_memory_of_this_machine(
    tmp_path: Path, ollama: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollama_gate.cli.ollama.memory_bytes", lambda: 12 * GIB)
    told = json.loads(plan(tmp_path, ollama.url, "--json").stdout)
    assert (told["memory_bytes"], told["memory_from"]) == (10 * GIB, "machine")  # 2 GiB are memory.reserve
    assert (told["upstream"], told["upstream_from"]) == (ollama.url, "configuration")
    assert "memory.limit is not set: 10.0 GiB is this machine's memory" in plan(tmp_path, ollama.url).stdout


def test_the_memory_of_this_machine_says_nothing_of_a_gpu(tmp_path: Path, ollama: Canned) -> None:
    done = plan(tmp_path, ollama.url, "--gpus", "1")
    assert (done.exit_code, "--memory 24GiB" in done.stderr) == (2, True)


def test_when_nothing_fits_it_is_an_exit_code_of_its_own(tmp_path: Path, ollama: Canned) -> None:
    done = plan(tmp_path, ollama.url, "--memory", "1GiB", "--model", "llama:8b")
    assert done.exit_code == 1


@pytest.mark.parametrize("arguments", [("--memory", "much"), ("--memory", "1GiB", "--model", "nope")])
def test_what_cannot_be_used_is_said(tmp_path: Path, ollama: Canned, arguments: tuple[str, ...]) -> None:
    done = plan(tmp_path, ollama.url, *arguments)
    assert done.exit_code == 2
    assert arguments[-1] in done.stderr
