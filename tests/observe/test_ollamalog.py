"""Lines of Ollama's log, read: those of a recorded log, and any others."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.observe.ollamalog import LogEvent, LogLine, parse, settings
from support.pages import ROOT

RECORDED = (ROOT / "tests" / "data" / "ollama-log" / "ollama-0.33.log").read_text("utf-8").split("\n")
SAID = [said for said in map(parse, RECORDED) if said is not None]


def first(event: LogEvent) -> LogLine:
    return next(said for said in SAID if said.event is event)


def test_a_recorded_log_says_what_happened() -> None:
    assert Counter(said.event.value for said in SAID) == {
        "started": 1,
        "loaded": 2,
        "template": 3,
        "truncated": 2,
        "reloaded": 2,
        "overflow": 1,
        "shifted": 1,
        "clamped": 1,
        "past-gate": 3,
    }


def test_a_cut_prompt_is_told_with_its_numbers() -> None:
    cuts = [said.facts for said in SAID if said.event is LogEvent.TRUNCATED]
    assert cuts == [{"truncated": "1"}, {"limit": "131", "prompt": "510", "keep": "5", "new": "131"}]


def test_a_shift_and_an_overflow_are_told_with_their_numbers() -> None:
    assert first(LogEvent.SHIFTED).facts == {"n_keep": "5", "n_left": "250", "n_discard": "125"}
    assert first(LogEvent.OVERFLOW).facts == {"prompt": "1522", "limit": "512"}
    assert first(LogEvent.CLAMPED).facts == {"num_ctx": "16384", "n_ctx_train": "512"}


def test_a_template_is_told_with_the_way_it_is_rendered() -> None:
    facts = {"model": "registry.ollama.ai/library/gemma3:270m", "selected": "go_template"}
    assert first(LogEvent.TEMPLATE).facts == facts


def test_a_load_is_told_with_window_and_slots() -> None:
    assert first(LogEvent.LOADED).facts == {"total_ctx": "256", "num_parallel": "1"}


def test_the_settings_of_a_start_are_read() -> None:
    told = first(LogEvent.STARTED).facts
    assert told["OLLAMA_NUM_PARALLEL"] == "1"
    assert told["OLLAMA_KEEP_ALIVE"] == "5m0s"
    assert told["OLLAMA_HOST"] == "http://127.0.0.1:11434"
    assert told["OLLAMA_ORIGINS"].endswith("vscode-file://*]")
    assert "OLLAMA_KV_CACHE_TYPE" not in told
    assert settings("map[OLLAMA_A:x y OLLAMA_B: HOME:/root OLLAMA_C:[a:b c]]") == {
        "OLLAMA_A": "x y",
        "OLLAMA_C": "[a:b c]",
    }


def test_an_inference_request_on_v1_came_past_the_gate() -> None:
    routes = [said.facts["route"] for said in SAID if said.event is LogEvent.PAST_GATE]
    assert routes == ["/v1/chat/completions", "/v1/messages", "/v1/chat/completions"]
    line = '[GIN] 2026/11/30 - 10:06:46 | 200 |  1.0s |       127.0.0.1 | POST     "/v1/images/generations"'
    assert parse(line) is None


def test_the_columns_of_an_access_line_are_where_they_are() -> None:
    """Whoever looks for them anywhere in a line takes half a second for one that a client has filled with columns."""
    line = '[GIN] x | y | 200 |  1.0s |  127.0.0.1 | POST     "/v1/messages"'
    assert parse(line) is None
    for _ in range(2_000):
        assert parse("[GIN] " + "| 200 " * 2_700) is None


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("load_tensors: offloaded 10/33 layers to GPU", LogEvent.SPILLED),
        ("load_tensors: offloaded 33/33 layers to GPU", None),
        (
            'time=x level=DEBUG msg="truncating native chat messages which exceed context length" truncated=3',
            LogEvent.TRUNCATED,
        ),
        (
            'time=x level=WARN msg="runtime OOM detected; expiring loaded models to clear memory before next request"',
            LogEvent.OUT_OF_MEMORY,
        ),
        ('time=x level=INFO msg="chat \\"truncating input prompt\\" done"', None),
        ('user: please explain msg="truncating input prompt"', None),
    ],
)
def test_lines_of_machines_that_were_not_recorded(line: str, event: LogEvent | None) -> None:
    said = parse(line)
    assert (said.event if said else None) == event


@given(st.text() | st.sampled_from(RECORDED).flatmap(lambda line: st.integers(0, len(line)).map(lambda at: line[:at])))
def test_no_line_breaks_the_reader(line: str) -> None:
    said = parse(line)
    assert said is None or all(isinstance(value, str) for value in said.facts.values())
