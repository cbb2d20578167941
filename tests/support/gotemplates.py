"""Recorded truth about Go templates: what Ollama's own `template` package made of our templates and conversations."""

import json
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from ollama_gate.counting.normalise import Conversation
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.counting.structs import decode_messages, decode_tools

DATA = Path(__file__).parent.parent / "data" / "gotemplate"
RECORDED = date(2026, 11, 30)
"""The day on which the truth was recorded, which some texts hold."""


@cache
def recorded(name: str) -> Any:
    """One file of recorded truth."""
    return json.loads((DATA / f"{name}.json").read_text())


@cache
def template_text(name: str) -> str:
    """One of our own templates, in the style of Ollama's library."""
    return (DATA / "templates" / f"{name}.gotmpl").read_text()


def template_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "templates").glob("*.gotmpl"))


def conversation(body: Mapping[str, Any]) -> Conversation:
    """A body as Ollama's `template` package gets it: decoded, without the server's preparation."""
    return Conversation(decode_messages(body.get("messages")), decode_tools(body.get("tools")), body.get("think"))


def render(source: str, body: Mapping[str, Any], *, era: Era = Era.JSON_TOOLS) -> str:
    return GoTemplate.parse(source, era=era).render(conversation(body), today=RECORDED)


def one_user(content: str = "Hello") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}
