"""Comparing the text made here with Ollama's, on conversations that reach into every corner of a template."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from ollama_gate.counting.rendering.local import LocalRenderer
from ollama_gate.errors import RenderError, TemplateRefused
from ollama_gate.requests import InferenceRequest, Json, Kind

_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up <fast> & well",
        "parameters": {
            "type": "object",
            "required": ["word"],
            "properties": {
                "word": {"type": "string", "description": "the word"},
                "deep": {"type": ["boolean", "null"], "enum": [True, False]},
                "where": {"type": "object", "properties": {"book": {"type": "string"}, "page": {"type": "integer"}}},
            },
        },
    },
}
_CALLED: Final = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a quern?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_1", "function": {"name": "look_up", "arguments": {"word": "quern", "deep": True, "n": 1.5}}}
        ],
    },
    {"role": "tool", "content": "a hand mill & more <b>", "tool_name": "look_up", "tool_call_id": "call_1"},
]
PROBES: Final[tuple[tuple[str, frozenset[str], Json], ...]] = (
    ("one question", frozenset(), {"messages": [{"role": "user", "content": "Say hi."}]}),
    (
        "system and history",
        frozenset(),
        {
            "messages": [
                {"role": "system", "content": "Be brief.\nBe kind."},
                {"role": "user", "content": " What is 2+2? "},
                {"role": "assistant", "content": "It is 4.\n"},
                {"role": "user", "content": "And 3+3?"},
            ]
        },
    ),
    (
        "a late system message",
        frozenset(),
        {
            "messages": [
                {"role": "user", "content": "One."},
                {"role": "assistant", "content": "Yes."},
                {"role": "system", "content": "Now in French."},
                {"role": "user", "content": "Two."},
            ]
        },
    ),
    (
        "a prefilled answer",
        frozenset(),
        {"messages": [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, "}]},
    ),
    ("tools", frozenset({"tools"}), {"messages": [{"role": "user", "content": "What is a quern?"}], "tools": [_TOOL]}),
    ("a call and its result", frozenset({"tools"}), {"messages": _CALLED, "tools": [_TOOL]}),
    (
        "thinking off",
        frozenset({"thinking"}),
        {"messages": [{"role": "user", "content": "Say hi."}], "think": False},
    ),
    (
        "old thinking",
        frozenset({"thinking"}),
        {
            "messages": [
                {"role": "user", "content": "Say hi."},
                {"role": "assistant", "content": "Hi.", "thinking": "They want a greeting."},
                {"role": "user", "content": "Again."},
            ]
        },
    ),
)
"""Name, capabilities that the model must have, and body of each probe."""

Ask = Callable[[InferenceRequest], Awaitable[str]]


async def differing_probe(renderer: LocalRenderer, ask: Ask, now: Callable[[], datetime]) -> str | None:
    """Which probe gives another text here than in Ollama; None when all agree.

    A probe that cannot be rendered here is no difference, because such a request is never called exact; one that Ollama
    refuses and the template here accepts is one.

    Raises:
        RenderError: Ollama did not say how it renders a probe, so that nothing is known.
    """
    for name, needed, body in PROBES:
        if not needed <= renderer.card.capabilities:
            continue
        request = _request(renderer.card.name, body)
        try:
            here: str | None = renderer.text(request, now())
        except TemplateRefused:
            here = None
        except RenderError:
            continue
        try:
            there: str | None = await ask(request)
        except TemplateRefused:
            there = None
        if here != there:
            return f"{name}: {_first_difference(here, there)}"
    return None


def _request(model: str, body: Json) -> InferenceRequest:
    whole: dict[str, Any] = {"model": model, **body}
    return InferenceRequest(Kind.CHAT, "/api/chat", model, whole, stream=False)


def _first_difference(here: str | None, there: str | None) -> str:
    if here is None:
        return "refused here, rendered by Ollama"
    if there is None:
        return "rendered here, refused by Ollama"
    place = next((at for at, (one, two) in enumerate(zip(here, there, strict=False)) if one != two), None)
    place = min(len(here), len(there)) if place is None else place
    return f"the texts differ from character {place} on ({len(here)} here, {len(there)} there)"
