"""What a line of Ollama's own log says. Pure: one line in, one event or nothing out.

Ollama writes slog's text format to standard error (`logutil/logutil.go`, v0.33), its web framework a line for
each request, and llama-server's own lines stand between them. Older versions word what matters here alike.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final


class LogEvent(StrEnum):
    """What is worth knowing of what happened in Ollama."""

    TRUNCATED = "truncated"
    """A prompt was cut before the model saw it."""
    SHIFTED = "shifted"
    """The beginning of a conversation was dropped while the answer was written."""
    PAST_GATE = "past-gate"
    """An inference request on a route that the gate never uses towards Ollama."""
    OVERFLOW = "overflow"
    """A prompt was refused because it did not fit."""
    LOADED = "loaded"
    """A model was loaded."""
    RELOADED = "reloaded"
    """A model that was loaded already is loaded again with other settings (told at debug level only)."""
    TEMPLATE = "template"
    """Which way Ollama renders a model's prompts."""
    SPILLED = "spilled"
    """Layers of a model stay in host memory."""
    OUT_OF_MEMORY = "out-of-memory"
    """A load or a run ran out of memory."""
    CLAMPED = "clamped"
    """A larger window was asked for than the model was trained for."""
    STARTED = "started"
    """Ollama started anew, with these settings."""


LOST: Final = frozenset({LogEvent.TRUNCATED, LogEvent.SHIFTED})
"""What never happens to a request that came through the gate."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that says something."""

    event: LogEvent
    facts: Mapping[str, str] = field(default_factory=dict)
    """Its fields as they were written: numbers, names, settings; never text of a prompt."""


_SHIFT: Final = re.compile(r"slot context shift, n_keep = (\d+), n_left = (\d+), n_discard = (\d+)")
_OVERFLOW: Final = re.compile(r"request \((\d+) tokens\) exceeds the available context size \((\d+) tokens\)")
_OFFLOADED: Final = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_ACCESS: Final = re.compile(r'\[GIN\] [^|]*\| +(\d{3}) \|[^|]*\| +(\S+) \| POST +"(/v1/[a-z/]+)"')
_INFERENCE: Final = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"}
)
_FIELD: Final = re.compile(r'([A-Za-z_][\w.]*)=("(?:[^"\\]|\\.)*"|\S*)')
_ENVIRONMENT: Final = re.compile(r"([A-Z][A-Z0-9_]*|https?_proxy|no_proxy):")
_LONGEST: Final = 16_384

_MESSAGES: Final[Mapping[str, tuple[LogEvent, tuple[str, ...]]]] = {
    "truncating input prompt": (LogEvent.TRUNCATED, ("limit", "prompt", "keep", "new")),
    "truncating input messages which exceed context length": (LogEvent.TRUNCATED, ("truncated",)),
    "truncating native chat messages which exceed context length": (LogEvent.TRUNCATED, ("truncated",)),
    "template selection": (LogEvent.TEMPLATE, ("model", "selected", "renderer", "parser")),
    "reloading": (LogEvent.RELOADED, ("runner.name", "runner.num_ctx")),
    "requested context size too large for model": (LogEvent.CLAMPED, ("num_ctx", "n_ctx_train")),
    "starting llama-server": (LogEvent.LOADED, ("cmd",)),
    "llama-server load failed; reducing automatic context and retrying once": (LogEvent.OUT_OF_MEMORY, ()),
    "runtime OOM detected; expiring loaded models to clear memory before next request": (LogEvent.OUT_OF_MEMORY, ()),
    "server config": (LogEvent.STARTED, ("env",)),
}
_MARKS: Final = ('msg="', "msg=reloading", "slot context shift", "exceeds the available", "offloaded ", "[GIN] ")
_LAUNCHED: Final = {"-c": "total_ctx", "-np": "num_parallel", "--cache-type-k": "kv_cache_type"}


def parse(line: str) -> LogLine | None:
    """What one line says that is worth knowing; None for all others."""
    line = line[:_LONGEST]
    if not any(mark in line for mark in _MARKS):
        return None
    if (found := _SHIFT.search(line)) is not None:
        return LogLine(LogEvent.SHIFTED, dict(zip(("n_keep", "n_left", "n_discard"), found.groups(), strict=True)))
    if line.startswith("time="):
        return _record(line)
    if (found := _OVERFLOW.search(line)) is not None:
        return LogLine(LogEvent.OVERFLOW, {"prompt": found[1], "limit": found[2]})
    if (found := _OFFLOADED.search(line)) is not None:
        return (
            LogLine(LogEvent.SPILLED, {"layers": found[1], "of": found[2]}) if int(found[1]) < int(found[2]) else None
        )
    # Not searched for: clients write into these lines, and could make a search take seconds.
    if (at := line.find("[GIN] ")) >= 0 and (found := _ACCESS.match(line, at)) is not None and found[3] in _INFERENCE:
        return LogLine(LogEvent.PAST_GATE, {"status": found[1], "client": found[2], "route": found[3]})
    return None


def _record(line: str) -> LogLine | None:
    """What a line in slog's format says: the event of its message, with those fields that are wanted."""
    fields = {name: _unquoted(value) for name, value in _FIELD.findall(line)}
    known = _MESSAGES.get(fields.get("msg", ""))
    if known is None:
        return None
    event, wanted = known
    facts = {name: fields[name] for name in wanted if fields.get(name)}
    if "env" in facts:
        return LogLine(event, settings(facts["env"]))
    if "cmd" in facts:
        return LogLine(event, _launch(facts["cmd"]))
    return LogLine(event, facts)


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        return value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return value


def settings(env: str) -> dict[str, str]:
    """The settings in the line that Ollama writes at its start: `map[NAME:value NAME:value ...]`."""
    inner = env.strip().removeprefix("map[").removesuffix("]")
    names = [found for found in _ENVIRONMENT.finditer(inner) if found.start() == 0 or inner[found.start() - 1] == " "]
    ends = [found.start() for found in names[1:]] + [len(inner)]
    told = {found[1]: inner[found.end() : end].strip() for found, end in zip(names, ends, strict=True)}
    return {name: value for name, value in told.items() if name.startswith(("OLLAMA_", "LLAMA_")) and value}


def _launch(command: str) -> dict[str, str]:
    """Window and slots that llama-server was started with."""
    words = command.split()
    return {_LAUNCHED[name]: value for name, value in pairwise(words) if name in _LAUNCHED}
