import io
import json
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from ollama_gate.cli import main, top
from ollama_gate.cli.running import Running
from ollama_gate.cli.top import screen
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.canned import canned
from support.gate import running_gate
from support.http import ask
from support.statuses import HEAD

STATUS: dict[str, Any] = {
    **HEAD,
    "models": [{"name": "[red]a", "window": 8192, "budget": 6000, "slots": {"running": 1, "total": 2, "waiting": 3}}],
    "requests": [
        {
            "id": "r-1",
            "route": "/api/chat",
            "model": "registry.ollama.ai/library/a:latest",
            "phase": "streaming",
            "prompt_tokens": 1234,
            "seconds": 75.0,
            "signals": {"repeated-call": 6},
        }
    ],
}


def shown(status: dict[str, Any]) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(screen(status))
    return out.getvalue()


def test_everything_is_on_the_screen() -> None:
    told = shown(STATUS)
    for part in (
        "does not answer at http://x",
        "up 1 h 6 min",
        "memory 3.0 GiB of 2.0",
        "[red]a",
        "1/2",
        "1,234",
        "1 min",
        "a:latest",
        "repeated-call 6",
        "! archive: the disk is full",
    ):
        assert part in told


@pytest.mark.parametrize(
    "status", [{}, {"models": None, "requests": 3, "memory": [], "alerts": {}}, {"models": [{}], "requests": [{}]}]
)
def test_a_gate_of_another_version_breaks_nothing(status: dict[str, Any]) -> None:
    assert "ollama-gate" in shown(status)


async def test_a_running_gate_is_shown() -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        hello = {"model": "rehearsal-go", "stream": False, "messages": [{"role": "user", "content": "hi"}]}
        assert (await ask(gate.address, "POST", "/api/chat", hello)).status == 200
        status = (await ask(gate.address, "GET", "/gate/status")).json
    told = shown(status)
    assert "rehearsal-go:latest" in told
    assert "no request under way" in told


@pytest.mark.parametrize("model", ["rehearsal-go", "rehearsal-renderer", "rehearsal"])
async def test_counts_are_called_what_the_gate_calls_them(model: str) -> None:
    hello = {"model": model, "stream": False, "messages": [{"role": "user", "content": "hi"}]}
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        rungs = []
        for _ in range(2):
            counted = (await ask(gate.address, "POST", "/gate/count", hello)).json["rung"]
            [told] = [
                one
                for one in (await ask(gate.address, "GET", "/gate/status")).json["models"]
                if one["name"] == f"{model}:latest"
            ]
            assert told["counts"]["rung"] == counted
            rungs.append(counted)
            assert (await ask(gate.address, "POST", "/api/chat", hello)).status == 200
    assert rungs[1] == "exact"


@pytest.mark.parametrize(("rung", "said"), [("exact", "exact"), ("estimate", "estimate"), (None, "none yet")])
def test_the_word_for_counts_is_the_gates(rung: str | None, said: str) -> None:
    assert said in shown({"models": [{"name": "a", "counts": {"rung": rung, "rendering_believed": True}}]})


def test_live_it_waits_for_a_gate_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    screens: list[str] = []

    def look(running: Running) -> object:
        if screens:
            raise KeyboardInterrupt
        screens.append("seen")
        return seen(running)

    with canned({"/gate/status": (200, STATUS), "/gate/health": (200, {})}) as gate:
        seen = top._look
        monkeypatch.setattr(top, "_look", look)
        monkeypatch.setattr(top, "wide", lambda: Console(force_terminal=True, file=io.StringIO(), width=120))
        done = CliRunner().invoke(main, ["top", "--interval", "0.2", "--gate", gate.url])
    assert (done.exit_code, screens) == (0, ["seen"])
    assert "waiting for it to come back" in str(seen(Running("http://127.0.0.1:1")))


def test_once_and_as_json() -> None:
    with canned({"/gate/status": (200, STATUS), "/gate/health": (503, {"ready": False})}) as gate:
        once = CliRunner().invoke(main, ["top", "--once", "--gate", gate.url])
        told = CliRunner().invoke(main, ["top", "--json", "--gate", gate.url])
    assert (once.exit_code, "the disk is full" in once.stdout) == (0, True)
    assert json.loads(told.stdout) == STATUS


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((200, {"models": []}), 0, ""),
        ((404, {"error": "not found"}), 3, "is it Ollama? Say --gate URL"),
        ((401, {"error": "a key is needed"}), 2, "Say --key KEY, or set OLLAMA_API_KEY"),
    ],
)
def test_what_is_no_gate_or_is_closed_is_told(answer: Any, code: int, said: str) -> None:
    with canned({"/gate/status": answer, "/gate/health": (200, {})}) as gate:
        done = CliRunner().invoke(main, ["top", "--once", "--gate", gate.url])
    assert done.exit_code == code
    assert said in done.stderr


def test_nobody_there_is_an_exit_code_of_its_own() -> None:
    done = CliRunner().invoke(main, ["top", "--gate", "http://127.0.0.1:1"])
    assert done.exit_code == 3
    assert "Start the gate (`ollama-gate serve`), or say where it is: --gate URL" in done.stderr
