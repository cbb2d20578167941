"""What other programs say is shown on the terminal, and does not command it."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ollama_gate.cli import doctor, main
from ollama_gate.cli.surroundings import Surroundings
from ollama_gate.cli.terminal import Terminal, wide
from support.canned import Canned, canned
from support.shows import PUBLISHED

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b1m"
STATUS: dict[str, Any] = {
    "version": EVIL,
    "upstream": {"up": True, "url": f"http://{EVIL}", "version": EVIL},
    "models": [{"name": EVIL, "window": 8192, "budget": 6000, "memory": {"stage": EVIL}, "counts": {"rung": EVIL}}],
    "requests": [{"id": EVIL, "route": EVIL, "model": EVIL, "phase": EVIL, "signals": {EVIL: EVIL}}],
    "alerts": [{"level": "error", "about": EVIL, "what": EVIL, "page": EVIL}],
}
COUNT: dict[str, Any] = {
    "tokens": 3,
    "rung": EVIL,
    "verdict": EVIL,
    "why": EVIL,
    "compaction": {"why": EVIL},
    "per_message": [{"role": EVIL, "tokens": 1}, {"role": EVIL, "tokens": 2}],
}


@pytest.fixture
def evil() -> Iterator[Canned]:
    """An Ollama and a gate in one, whose every word is a command to a terminal."""
    answers: dict[str, tuple[int, Any]] = {
        "/api/version": (200, {"version": f"0.33.1{EVIL}"}),
        "/api/tags": (200, {"models": [{"name": "llama:8b", "digest": EVIL, "size": 5 * 2**30}]}),
        "/api/ps": (200, {"models": [{"name": f"x{EVIL}", "context_length": 1}]}),
        "/api/show llama:8b": (200, PUBLISHED["llama-8b"] | {"renderer": EVIL, "parser": EVIL}),
        "/gate/status": (200, STATUS),
        "/gate/count?detail=1": (200, COUNT),
    }
    with canned(answers) as server:
        server.answers["/gate/health"] = (200, {"live": True, "upstream": {"url": server.url}})
        yield server


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["doctor", "--no-probe"],
        ["models"],
        ["plan", "--memory", "8GiB"],
        ["top", "--once"],
        ["count", "-m", "a", "PROMPT"],
        ["audit", "PROMPT"],
    ],
    ids=" ".join,
)
def test_no_answer_commands_the_terminal(
    tmp_path: Path, evil: Canned, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(doctor, "look_around", lambda *_, **__: Surroundings())
    prompt = tmp_path / "prompt.md"
    prompt.write_text(f"# Title {EVIL}\n\nwords\n")
    given = [str(prompt) if argument == "PROMPT" else argument for argument in arguments]
    done = CliRunner().invoke(main, [*given, "--gate", evil.url])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "\x1b" not in done.output
    assert "\x9b" not in done.output
    if arguments[0] != "plan":  # it tells numbers only
        assert "␛" in done.output


@pytest.mark.parametrize(("status", "code"), [(404, 2), (503, 3)])
def test_no_error_commands_the_terminal(tmp_path: Path, evil: Canned, status: int, code: int) -> None:
    evil.answers["/gate/count?detail=1"] = (status, {"error": EVIL})
    file = tmp_path / "prompt"
    file.write_text("hi")
    done = CliRunner().invoke(main, ["count", "-m", "a", str(file), "--gate", evil.url])
    assert done.exit_code == code
    assert "␛" in done.stderr
    assert "\x1b" not in done.stderr


def test_colours_and_what_changes_live_are_still_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Terminal(width=80)
    console.file = out = io.StringIO()
    table = Table.grid()
    table.add_row(Text("a\x1b[31m", style="bold"))
    with Live(table, console=console, auto_refresh=False, screen=True) as live:
        live.update(table, refresh=True)
    assert "\x1b[?1049h" in out.getvalue()
    assert "\x1b[1ma␛[31" in out.getvalue()
    assert "\x1b[31" not in out.getvalue()


def test_a_pipe_takes_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert wide().width == 120
