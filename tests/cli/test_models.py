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


@pytest.fixture
def ollama() -> Iterator[Canned]:
    answers: dict[str, tuple[int, Any]] = {
        "/api/version": (200, {"version": "0.33.1"}),
        "/api/tags": (200, {"models": [{"name": "llama:8b", "digest": "a", "size": 5 * GIB}, {"name": "odd:1"}]}),
        "/api/ps": (200, {"models": [{"name": "llama:8b", "context_length": 2048}]}),
        "/api/show llama:8b": (200, PUBLISHED["llama-8b"]),
        "/api/show odd:1": (200, {"model_info": {}}),
    }
    with canned(answers) as server:
        yield server


def models(tmp_path: Path, url: str, *arguments: str) -> Result:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(
        f"[upstream]\nurl = '{url}'\nnum_parallel = 2\n[models.'llama:8b']\nnum_ctx = 4096\nbudget = 3000\n"
    )
    return CliRunner().invoke(main, ["models", "--config", str(file), *arguments])


def test_each_model_is_told_with_what_it_gets(tmp_path: Path, ollama: Canned) -> None:
    done = models(tmp_path, ollama.url, "--json")
    assert done.exit_code == 0
    llama, odd = json.loads(done.stdout)
    told = {name: llama[name] for name in ("name", "does", "window", "budget", "declared", "slots", "loaded")}
    assert told == {
        "name": "llama:8b",
        "does": "chat",
        "window": 4096,
        "budget": 3000,
        "declared": True,
        "slots": 2,
        "loaded": 2048,
    }
    assert llama["memory"] > 5 * GIB
    assert (odd["declared"], odd["memory"], odd["loaded"]) == (False, None, None)


def test_people_get_a_table(tmp_path: Path, ollama: Canned) -> None:
    done = models(tmp_path, ollama.url)
    assert "llama:8b" in done.stdout
    assert "3,000" in done.stdout
    assert "memory: without old prompts, up to 8GiB of host memory" in done.stdout
    assert "`ollama-gate check` says what is missing" in done.stdout


def test_an_ollama_without_models_says_how_to_get_one(tmp_path: Path, ollama: Canned) -> None:
    ollama.answers["/api/tags"] = (200, {"models": []})
    assert "ollama pull" in models(tmp_path, ollama.url).stdout


def test_a_silent_ollama_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = models(tmp_path, "127.0.0.1:1")
    assert done.exit_code == 3
    assert "Start Ollama, or say where it is" in done.stderr
