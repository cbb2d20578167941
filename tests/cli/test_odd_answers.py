"""Answers with a value of another kind break no command: it is left out, or who answered is said to be no gate."""

import copy
import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from rich.console import Console

from ollama_gate.cli import NoAnswer, Unusable, audit, ollama, running
from ollama_gate.cli.answers import seconds, whole
from ollama_gate.cli.count import picture
from ollama_gate.cli.diagnosis import diagnose, heard
from ollama_gate.cli.findings import examine
from ollama_gate.cli.models import rows_of
from ollama_gate.cli.running import Running
from ollama_gate.cli.surroundings import Surroundings
from ollama_gate.cli.top import screen
from ollama_gate.config import Config
from support.shows import PUBLISHED
from support.statuses import HEAD

STATUS: dict[str, Any] = {
    **HEAD,
    "models": [
        {
            "name": "a",
            "window": 8192,
            "budget": 6000,
            "slots": {"running": 1, "total": 2, "waiting": 3, "oldest_wait_seconds": 1.5},
            "memory": {"stage": "loaded", "booked": 2**30},
            "counts": {"rung": "bound", "checked": True, "why": "of this"},
        },
        {"name": "b", "window": 512, "budget": 400, "embed_limit": 512},
    ],
    "requests": [
        {
            "id": "r-1",
            "route": "/api/chat",
            "model": "library/a:latest",
            "phase": "streaming",
            "prompt_tokens": 1234,
            "seconds": 75.0,
            "signals": {"repeated-call": 6},
        },
        {"id": "r-2", "seconds": 3},
    ],
}
COUNT: dict[str, Any] = {
    "tokens": 3000,
    "at_most": 4000,
    "rung": "bound",
    "why": "of this",
    "budget": 6000,
    "window": 8192,
    "limit": 256,
    "inputs": [10, 300],
    "verdict": "admit",
    "parts": {"messages": 2000, "tools": 900, "template": 100, "media": 0},
    "compaction": {"outcome": "compacted", "on": True, "from": 9, "to": 5, "messages": 4, "messages_after": 2},
    "per_message": [{"role": "user", "tokens": 100}, {"role": "assistant", "tokens": 200}],
    "per_tool": [{"name": "find", "tokens": 700}, {"name": "add", "tokens": 200}],
}
OLLAMA: dict[str, Any] = {
    "/api/version": {"version": "0.33.1"},
    "/api/tags": {"models": [{"name": "llama:8b", "digest": "a", "size": 5 * 2**30}]},
    "/api/ps": {"models": [{"name": "llama:8b", "context_length": 2048, "size_vram": 2**30, "size": 2**32}]},
    "/api/show": PUBLISHED["llama-8b"],
}
ODD: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 2**63 - 1, 10**400, 1e308, float("inf"), float("nan")),
    *("", "[/b]", "\ud800", [], {}, [1], [{}]),
)


def odd(answer: Any) -> Iterator[Any]:
    """The answer with each of its values replaced by each odd one."""
    yield from ODD
    for key in answer if isinstance(answer, dict) else range(len(answer)) if isinstance(answer, list) else ():
        for value in odd(answer[key]):
            changed = copy.copy(answer)
            changed[key] = value
            yield changed


def of_objects(answer: Any) -> Iterator[Any]:
    """Those that are objects, as `Running.ask` lets nothing else through."""
    return (one for one in odd(answer) if isinstance(one, dict))


def printed(*shown: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(*shown, sep="\n")
    return out.getvalue()


def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Running]:
    """A gate that answers with what is given."""

    def answering(answer: Any) -> Running:
        monkeypatch.setattr(running, "ask", lambda *_, **__: (200, answer))
        return Running("http://127.0.0.1:1")

    return answering


@pytest.mark.slow
def test_top() -> None:
    for status in of_objects(STATUS):
        assert "ollama-gate" in printed(screen(status)), status


@pytest.mark.slow
def test_count() -> None:
    for answer in of_objects(COUNT):
        assert "tokens" in printed(*picture(answer)), answer


def test_the_bar_of_a_budget_beyond_its_window_ends_at_the_window() -> None:
    lines = printed(*picture({"tokens": 3, "budget": 2**62, "window": 10})).splitlines()
    assert len(lines[1]) == 60


def test_doctor() -> None:
    for status in of_objects(STATUS):
        for finding in heard(status):
            assert isinstance(finding.what, str), status


def test_the_windows_of_an_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asking(monkeypatch)
    for status in odd(STATUS):
        for _, window, budget in audit._windows(Config(), gate(status)):
            assert window > 0
            assert budget >= 0


def test_the_tokens_of_an_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asking(monkeypatch)
    for answer in odd({"per_message": COUNT["per_message"]}):
        with suppress(NoAnswer):
            assert all(tokens >= 0 for tokens in audit.counter(gate(answer), "a")(["one", "two"])), answer


def test_where_ollama_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asking(monkeypatch)
    for answer in odd({"live": True, "upstream": {"url": "http://127.0.0.1:2"}}):
        with suppress(NoAnswer):
            assert gate(answer).upstream().startswith("http"), answer


def test_an_error_in_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in of_objects({"error": {"message": "no"}}):
        monkeypatch.setattr(running, "ask", lambda *_, answer=answer, **__: (401, answer))
        with pytest.raises(Unusable, match="answers 401"):
            Running("http://127.0.0.1:1").ask("/gate/status")


@pytest.mark.parametrize("path", OLLAMA)
def test_what_ollama_says(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    for answer in odd(OLLAMA[path]):
        answers = OLLAMA | {path: answer}
        monkeypatch.setattr(ollama, "ask", lambda url, *_, answers=answers: (200, answers[url.removeprefix("u")]))
        with suppress(NoAnswer):
            seen = ollama.look("u")
            findings = examine(Config(), seen) + diagnose(Config(), seen, Surroundings())
            assert json.dumps([str(one) for one in findings] + [str(row) for row in rows_of(Config(), seen)])


@pytest.mark.parametrize("value", ODD)
def test_a_number_is_a_number(value: Any) -> None:
    number, time = whole({"a": value}, "a"), seconds({"a": value}, "a")
    assert number is None or 0 <= number < 2**63
    assert time is None or 0 <= time < 2**63
    assert whole(value, "a") is None
    assert seconds(value, "a") is None
