"""What an Ollama says of itself, asked over HTTP: its version, its models and which of them are loaded."""

import json
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.progress import track

from ollama_gate.catalog.card import ModelCard, card_from_show
from ollama_gate.catalog.names import canonical, is_cloud, is_valid
from ollama_gate.cli import NoAnswer
from ollama_gate.cli.answers import mappings, whole
from ollama_gate.cli.ask import ask
from ollama_gate.cli.findings import Finding, Level, Resident, Seen
from ollama_gate.cli.running import Front
from ollama_gate.machine import memory_bytes

_MOST_MODELS: Final = 500
"""Models that are asked for, one by one; those that Ollama lists behind them are left out."""
_MANY: Final = 20
"""Models from which on a bar is shown while they are asked for."""
_START: Final = "Start Ollama, or say where it is: upstream.url, OLLAMA_UPSTREAM, or --gate for that of a running gate"


def look(url: str) -> Seen:
    """Ask an Ollama for its version, its models and what is loaded.

    Raises:
        NoAnswer: it does not answer, or not as Ollama does.
    """
    told = _get(url, "/api/version")
    version = told.get("version") if isinstance(told, dict) else None
    if not isinstance(version, str):
        raise NoAnswer("the upstream answers, but not as Ollama does")
    rows = mappings(_get(url, "/api/tags"), "models")[:_MOST_MODELS]
    console = Console(stderr=True)
    quiet = len(rows) < _MANY or not console.is_terminal
    cards = [
        _card(url, row) for row in track(rows, "asking for each model", console=console, transient=True, disable=quiet)
    ]
    resident, unheard = _resident(url)
    return Seen(version, tuple(card for card in cards if card), resident, unheard, memory_bytes())


def must_look(before: Front) -> Seen:
    """As `look`, for commands that can do nothing without it: the error names the fix.

    Raises:
        NoAnswer: it does not answer, or not as Ollama does.
    """
    try:
        return look(before.url)
    except NoAnswer as silent:
        raise NoAnswer(f"{silent.message}. {_START}") from silent


def try_to_look(before: Front) -> tuple[Seen | None, list[Finding]]:
    """As `look`, for commands that have more to say: None, and what to put right, where Ollama does not answer."""
    try:
        return look(before.url), []
    except NoAnswer as silent:
        return None, [Finding(Level.ERROR, "Ollama", silent.message, _START)]


def _resident(url: str) -> tuple[tuple[Resident, ...], str]:
    """What is loaded, as far as that can be read, and why not all of it."""
    asked = f"{url}/api/ps"
    try:
        status, told = ask(asked)
    except NoAnswer as silent:
        return (), silent.message
    if status != 200:
        return (), f"{asked} answers {status}"
    rows = mappings(told, "models")
    resident = tuple(
        Resident(name, whole(row, "context_length"), whole(row, "size_vram") or 0, whole(row, "size") or 0)
        for row in rows
        if (name := _name(row))
    )
    listed = told.get("models") if isinstance(told, dict) else None
    read = isinstance(listed, list) and len(listed) == len(resident)
    return resident, "" if read else f"{asked} answers with something that is no list of models"


def _card(url: str, row: Mapping[str, Any]) -> ModelCard | None:
    name = _name(row)
    if not name or is_cloud(name):
        return None
    status, told = ask(f"{url}/api/show", json.dumps({"model": name}).encode())
    if status != 200 or not isinstance(told, dict):
        return None  # removed between the two questions, or broken: Ollama would not run it either
    return card_from_show(canonical(name), name, str(row.get("digest", "")), told, size=whole(row, "size") or 0)


def _name(row: Mapping[str, Any]) -> str:
    name = row.get("name")
    return name if isinstance(name, str) and is_valid(name) else ""


def _get(url: str, path: str) -> Any:
    status, answer = ask(url + path)
    if status != 200:
        raise NoAnswer(f"{url}{path} answers {status}: it is not an Ollama")
    return answer
