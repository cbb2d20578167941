"""What the surroundings of an Ollama mean, rule by rule."""

from collections.abc import Mapping
from typing import Any

import pytest

from ollama_gate.cli.diagnosis import diagnose, heard
from ollama_gate.cli.findings import Resident, Seen
from ollama_gate.cli.surroundings import Surroundings
from ollama_gate.config import Config

GIB = 1024**3


def found(
    environment: Mapping[str, str] | None,
    *,
    config: Mapping[str, Any] | None = None,
    seen: Seen | None = None,
    **around: Any,
) -> list[tuple[str, str]]:
    surroundings = Surroundings(environment=environment, source="x", **around)
    findings = diagnose(Config.model_validate(config or {}), seen or Seen("0.33.1", ()), surroundings)
    assert all(finding.fix for finding in findings)
    return [(finding.level.value, f"{finding.about}: {finding.what}") for finding in findings]


def test_settings_that_agree_are_no_finding() -> None:
    assert found({}) == []
    assert found({"OLLAMA_DEBUG": "yes"}) == []  # neither true nor a level to Ollama
    agreeing = {
        "OLLAMA_NUM_PARALLEL": "4",
        "OLLAMA_KV_CACHE_TYPE": "Q8_0",
        "OLLAMA_FLASH_ATTENTION": "1",
        "LLAMA_ARG_CACHE_RAM": "512",
        "OLLAMA_HOST": "127.0.0.1",
    }
    told = {
        "upstream": {"num_parallel": 4, "kv_cache_type": "q8_0"},
        "memory": {"host_cache_per_model": "512MiB"},
    }
    assert found(agreeing, config=told) == []


@pytest.mark.parametrize(
    ("environment", "about"),
    [
        ({"OLLAMA_NUM_PARALLEL": "4"}, "upstream.num_parallel: is 4 there"),
        ({"OLLAMA_KV_CACHE_TYPE": "q8_0"}, "upstream.kv_cache_type: is q8_0 there"),
        ({"OLLAMA_FLASH_ATTENTION": "false"}, "upstream.flash_attention: is False there"),
        ({"LLAMA_ARG_CTX_CHECKPOINTS": "3"}, "memory.checkpoints: is 3 there"),
        ({"LLAMA_ARG_SWA_FULL": "1"}, "upstream.swa_full: is True there"),
    ],
)
def test_a_setting_that_differs_is_an_error(environment: dict[str, str], about: str) -> None:
    [(level, told)] = found(environment)
    assert level == "error"
    assert told.startswith(f"{about} ({next(iter(environment))} in x)")


def test_a_default_that_differs_is_told_as_one_and_only_of_an_ollama() -> None:
    """A port forwarder's environment, or the rehearsal's, says nothing by what it does not set."""
    config = {"upstream": {"num_parallel": 2}}
    [(level, told)] = found({}, config=config)
    assert level == "error"
    assert "is 1 there (Ollama's default: OLLAMA_NUM_PARALLEL is not set in x) and 2 here" in told
    assert found({}, config=config, program="docker-proxy") == []
    assert len(found({"OLLAMA_NUM_PARALLEL": "3"}, config=config, program="docker-proxy")) == 1


@pytest.mark.parametrize(
    ("environment", "level", "word"),
    [
        ({"LLAMA_ARG_CACHE_RAM": "512"}, "warning", "512 MiB"),
        ({"OLLAMA_KEEP_ALIVE": "0"}, "warning", "unloaded after each answer"),
        ({"OLLAMA_DEBUG_LOG_REQUESTS": "true"}, "warning", "written to disk"),
        ({"OLLAMA_DEBUG": "1"}, "note", "parts of prompts"),
        ({"OLLAMA_DEBUG": "2"}, "note", "parts of prompts"),
        ({"OLLAMA_DEBUG": "True"}, "note", "parts of prompts"),
        ({"OLLAMA_HOST": "0.0.0.0"}, "warning", "past the gate"),
        ({"OLLAMA_HOST": "http://192.168.1.2:11434"}, "warning", "past the gate"),
        (None, "note", "cannot be read"),
    ],
)
def test_habits_that_hurt_are_told(environment: dict[str, str] | None, level: str, word: str) -> None:
    [(told, what)] = found(environment)
    assert told == level
    assert word in what


@pytest.mark.parametrize("host", ["", "127.0.0.1:9", ":11434x", "http://[::1]:11434", "localhost"])
def test_an_ollama_on_loopback_is_well(host: str) -> None:
    assert found({"OLLAMA_HOST": host}) == []


def test_what_was_seen_beats_what_is_set() -> None:
    assert found({"OLLAMA_HOST": "0.0.0.0"}, listens=("127.0.0.1",)) == []
    assert "listens on ::" in found({}, listens=("127.0.0.1", "::"))[0][1]


def test_connections_past_the_gate_are_told() -> None:
    [(level, what)] = found({}, connected=("editor (process 30)",))
    assert (level, "editor (process 30)" in what) == ("warning", True)


def test_a_model_that_spills_is_told_and_one_on_the_cpu_is_not() -> None:
    residents = (
        Resident("big", 8192, size=10 * GIB, size_vram=6 * GIB),
        Resident("cpu", 8192, size=4 * GIB, size_vram=0),
        Resident("gpu", 8192, size=4 * GIB, size_vram=4 * GIB),
    )
    [(level, what)] = found({}, seen=Seen("0.33.1", (), residents))
    assert level == "warning"
    assert what == "big: 4.0 GiB of its 10.0 GiB lie in host memory: it is slow"


def test_limits_of_the_system_are_told() -> None:
    assert found({}, open_files=1024)[0][0] == "note"
    assert found({}, open_files=65536) == []
    told = {"memory": {"limit": "24GiB"}}
    assert found({}, memory_max=8 * GIB, config=told)[0][0] == "error"
    assert found({}, memory_max=32 * GIB, config=told) == []


def test_what_the_gate_says_of_itself_is_told() -> None:
    status = {
        "alerts": [
            {"level": "error", "about": "Ollama", "what": "it cuts", "page": "docs/verification.md"},
            {"level": "warning", "about": "a", "what": "it spills", "page": "docs/operate.md"},
        ],
        "models": [
            {"name": "a", "counts": {"why": "rendered otherwise", "checked": True}},
            {"name": "b", "counts": {"why": "", "checked": True}},
        ],
    }
    found = [(one.level.value, one.about, one.what, one.fix) for one in heard(status)]
    assert found[:2] == [
        ("error", "Ollama", "it cuts", "see docs/verification.md"),
        ("warning", "a", "it spills", "see docs/operate.md"),
    ]
    assert [one[:2] for one in found[2:]] == [("note", "a")]


@pytest.mark.parametrize("status", [{}, {"log": None, "models": None}, {"alerts": 3, "models": [None, {}]}])
def test_a_gate_that_says_nothing_is_well(status: dict[str, Any]) -> None:
    assert list(heard(status)) == []
