"""The section [signals]: from where on a conversation is said to show a symptom of a full context."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from ollama_gate.config.keys import Section, key


class SignalKind(StrEnum):
    """A symptom that can be seen in a conversation; what each means is on the page `docs/signals.md`."""

    REPEATED_CALL = "repeated-call"
    REREAD = "reread"
    GOAL_RESTATED = "goal-restated"
    CALL_AS_TEXT = "call-as-text"
    FEW_CHANGES = "few-changes"
    PROMPT_STANDSTILL = "prompt-standstill"
    PREFIX_BREAK = "prefix-break"


def _words(value: object) -> object:
    """A list of words; one text in an environment variable, parted by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value) if isinstance(value, list) else value


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    known = [kind.value for kind in SignalKind]
    for name in value:
        if name not in known:
            raise ValueError(f'"{name}" is no signal: the signals are {", ".join(known)}')
    return value


def _tools(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if not name or not name.isprintable():
            raise ValueError(f"{name!r} is no name of a tool, nor a pattern of names")
    return value


Tools = Annotated[
    tuple[str, ...],
    BeforeValidator(_words),
    AfterValidator(_tools),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]
"""Names of tools, or patterns of them with * and ?."""

Kinds = Annotated[
    tuple[str, ...],
    BeforeValidator(_words),
    AfterValidator(_kinds),
    WithJsonSchema({"type": "array", "items": {"enum": [kind.value for kind in SignalKind]}}),
]
"""Names of signals."""


class Signals(Section):
    """Symptoms of a full or broken context that are looked for in conversations."""

    enabled: bool = key(True, "Look for signals in conversations, and tell of them in a header, the log and metrics.")
    block: Kinds = key(
        (),
        "Signals that refuse a request with 400 `signal_blocked` instead of only telling of it.",
        example=["repeated-call"],
    )
    exempt_tools: Tools = key(
        (),
        "Tools that may be called again and again, as those that poll are; patterns with * and ? are taken.",
        example=["wait_*", "check_status"],
    )
    repeated_calls: int = key(
        3, "Identical tool calls in a row, whatever the order of their arguments; 0 is off.", unit="calls", ge=0
    )
    rereads: int = key(
        4, "Calls among the last 20 that fetched what an equal call had fetched before; 0 is off.", unit="calls", ge=0
    )
    goal_restated: int = key(
        3, "Times that the model told the user's request again since it was made; 0 is off.", unit="times", ge=0
    )
    calls_as_text: int = key(
        1, "Tool calls written as text among the last 8 answers, after clean ones; 0 is off.", unit="answers", ge=0
    )
    clean_calls: int = key(3, "Tool calls that make a run of clean ones.", unit="calls", ge=1)
    turns_per_change: int = key(
        30, "Turns with tool calls for each file that was really changed; 0 is off.", unit="turns", ge=0
    )
    standstill: int = key(
        3,
        "Turns in which the conversation grew and Ollama's prompt_eval_count did not; 0 is off.",
        unit="turns",
        ge=0,
    )
    prefix_break: int = key(
        1024,
        "Tokens that were evaluated a turn ago, are sent again and have to be evaluated again, because something "
        "before them changed; 0 is off.",
        unit="tokens",
        ge=0,
    )
    conversations: int = key(1024, "Conversations that are remembered.", unit="conversations", ge=1, le=65536)
