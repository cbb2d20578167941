import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.catalog.versions import Features
from ollama_gate.cli import doctor, main
from ollama_gate.cli.surroundings import Surroundings
from support.canned import Canned, canned
from support.shows import attention, show, size

SHOW = {
    "template": "{% for m in messages %}{{ m }}{% endfor %}",
    "capabilities": ["completion"],
    **show("qwen3", **size(36, 4096, 12288, 151936, trained=32768), **attention(32, 8, 128)),
}
DECLARED = '[models."qwen3:8b"]\nnum_ctx = 4096\nbudget = 3000\n'
REFUSED = (400, {"error": "prompt is too long", "code": "context_length_exceeded"})


@pytest.fixture(autouse=True)
def _sound(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Surroundings(environment={}, source="/proc/10/environ")
    monkeypatch.setattr(doctor, "look_around", lambda *_, **__: sound)


@pytest.fixture
def ollama() -> Iterator[Canned]:
    answers: dict[str, tuple[int, Any]] = {
        "/api/version": (200, {"version": "0.33.1"}),
        "/api/tags": (200, {"models": [{"name": "qwen3:8b", "digest": "d"}]}),
        "/api/ps": (200, {"models": []}),
        "/api/show qwen3:8b": (200, SHOW),
    }
    with canned(answers) as server:
        yield server


@pytest.fixture
def gate() -> Iterator[Canned]:
    with canned({"/api/chat": REFUSED}) as server:
        yield server


def examine(tmp_path: Path, ollama: Canned, *arguments: str, **more: Any) -> Result:
    file = tmp_path / "ollama-gate.toml"
    file.write_text(f"{DECLARED}[upstream]\nurl = '{ollama.url}'\n")
    return CliRunner().invoke(main, ["doctor", "--config", str(file), *arguments], **more)


def probes(gate: Canned) -> list[bytes]:
    return [body for path, body in gate.asked if path == "/api/chat"]


def test_all_is_well(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    done = examine(tmp_path, ollama, "--gate", gate.url, "--yes")
    assert done.exit_code == 0
    assert "nothing to put right" in done.stdout
    assert "is refused with 400 by the gate" in done.stdout
    assert "read from /proc/10/environ" in done.stdout
    [body] = probes(gate)
    prompt = json.loads(body)["messages"][0]["content"]
    assert len(prompt.split()) == 4096 + 64


def test_an_ollama_that_does_not_say_what_is_loaded_is_an_error(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    ollama.answers["/api/ps"] = (500, {"error": "busy"})
    done = examine(tmp_path, ollama, "--gate", gate.url, "--yes")
    assert done.exit_code == 1
    assert "does not say what is loaded" in done.stdout
    assert "is refused with 400 by the gate" in done.stdout, "everything else is examined all the same"


def test_a_prompt_that_is_answered_is_an_error(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    gate.answers["/api/chat"] = (200, {"prompt_eval_count": 2050})
    done = examine(tmp_path, ollama, "--gate", gate.url, "--yes", "--json")
    assert done.exit_code == 1
    [finding] = json.loads(done.stdout)["findings"]
    assert finding["level"] == "error"
    assert "2050 tokens reached the model" in finding["what"]


def test_a_400_of_ollama_itself_is_not_the_gates(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    gate.answers["/api/chat"] = (400, {"error": "the input length exceeds the context length"})
    done = examine(tmp_path, ollama, "--gate", gate.url, "--yes")
    assert done.exit_code == 1
    assert "is that Ollama itself?" in done.stdout


@pytest.mark.parametrize(("answer", "code"), [(REFUSED, 0), ((200, {"prompt_eval_count": 2050}), 1)])
def test_a_loaded_model_is_tried_past_the_gate_too(
    tmp_path: Path, ollama: Canned, gate: Canned, answer: Any, code: int
) -> None:
    ollama.answers["/api/ps"] = (200, {"models": [{"name": "qwen3:8b", "context_length": 4096}]})
    ollama.answers["/api/chat"] = answer
    assert examine(tmp_path, ollama, "--gate", gate.url, "--yes").exit_code == code
    body = json.loads(ollama.asked[-1][1])
    assert (body["truncate"], body["shift"], body["options"]["num_ctx"]) == (False, False, 4096)


def test_it_asks_before_it_sends(tmp_path: Path, ollama: Canned, gate: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = examine(tmp_path, ollama, "--gate", gate.url, input="")
    assert "was not tried" in quiet.stdout
    monkeypatch.setattr(doctor, "_may_ask", lambda: True)
    no = examine(tmp_path, ollama, "--gate", gate.url, input="n\n")
    assert "Send a prompt of 4160 words to qwen3:8b through the gate? Nothing is generated" in no.stderr
    assert probes(gate) == []
    assert examine(tmp_path, ollama, "--gate", gate.url, input="y\n").exit_code == 0
    assert len(probes(gate)) == 1


def test_without_a_probe_nothing_is_sent(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    assert examine(tmp_path, ollama, "--gate", gate.url, "--no-probe").exit_code == 0
    assert probes(gate) == []


def test_a_gate_that_does_not_run_is_a_note(tmp_path: Path, ollama: Canned) -> None:
    done = examine(tmp_path, ollama, "--gate", "http://127.0.0.1:1", "--yes")
    assert done.exit_code == 0
    assert "it was not tried" in " ".join(done.stdout.split())
    told = examine(tmp_path, ollama, "--gate", "http://127.0.0.1:1", "--no-probe").stdout
    assert "what is said here is of the Ollama that the configuration names" in " ".join(told.split())


@pytest.mark.parametrize("probe", ["--yes", "--no-probe"])
def test_a_gate_that_asks_for_a_key_is_no_clean_bill(tmp_path: Path, ollama: Canned, gate: Canned, probe: str) -> None:
    closed = (401, {"error": "a key is needed"})
    gate.answers.update({"/gate/status": closed, "/api/chat": closed})
    done = examine(tmp_path, ollama, "--gate", gate.url, probe, "--json")
    told = {finding["level"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert "What it knows of itself was not looked at" in told["warning"]["what"]
    assert "--key KEY" in told["warning"]["fix"]


def test_findings_of_the_surroundings_are_told(tmp_path: Path, ollama: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(environment={"OLLAMA_NUM_PARALLEL": "4"}, source="/proc/10/environ")
    monkeypatch.setattr(doctor, "look_around", lambda *_, **__: around)
    done = examine(tmp_path, ollama, "--no-probe")
    assert done.exit_code == 1
    assert "num_parallel = 4, or change it for Ollama" in done.stdout


def test_a_silent_ollama_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = examine(tmp_path, Canned("http://127.0.0.1:1", {}), "--yes")
    assert done.exit_code == 3


def test_what_the_gate_says_of_itself_is_told(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    gate.answers["/gate/status"] = (
        200,
        {"models": [], "alerts": [{"level": "warning", "about": "Ollama", "what": "truncated 3", "page": "x"}]},
    )
    done = examine(tmp_path, ollama, "--gate", gate.url, "--yes", "--strict")
    assert done.exit_code == 1
    assert "truncated 3" in done.stdout


def test_an_old_version_is_told_once(tmp_path: Path, ollama: Canned, gate: Canned) -> None:
    ollama.answers["/api/version"] = (200, {"version": "0.11.0"})
    alert = {"level": "error", "about": "Ollama", "what": Features.of("0.11.0").warning, "page": "docs/x.md"}
    gate.answers["/gate/status"] = (200, {"alerts": [alert]})
    done = examine(tmp_path, ollama, "--gate", gate.url, "--no-probe")
    assert " ".join(done.stdout.split()).count("ignores truncate and shift") == 1
    assert done.exit_code == 1
