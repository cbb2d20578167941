"""The deterministic "model": what it says depends on what it really received, so that a cut prompt shows.

It obeys a few phrases in the last user message:

* `call tool NAME`, optionally `with {"json": "arguments"}`: a tool call;
* `use a tool` and the like: a call of the first that is offered; a word of one's name, as *weather* is of
  `get_current_weather`, in a short first question: a call of that one;
* `say exactly: TEXT`: that text;
* `write N tokens`: an answer of that length.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from typing import Any

from ollama_gate.rehearsal.vocabulary import Encoder

_CALL = re.compile(r"call tool ([\w.-]+)(?: with (\{.*\}))?", re.DOTALL)
_USE = re.compile(r"\b(?:use|call|try|invoke|run) (?:a|an|the|any|one|your)\b[^.?!]{0,40}\btools?\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHORT = 300
"""Characters of a question in which the words of a tool's name are looked for."""
_SAY = re.compile(r"say exactly: ?(.+)", re.DOTALL)
_WRITE = re.compile(r"write (\d+) tokens")
_CONTROL = re.compile(r"<\|[^|<>]*\|>")
_SAME = 31
"""So many equal tokens at the end of a prompt, and the model goes on with the same for ever, as small ones do."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What reached the model."""

    prompt: Sequence[int]
    """Token ids after all cutting."""
    last_user: str = ""
    """The last message, when a user wrote it."""
    tools: Sequence[Any] = ()
    thinking: bool = False
    format: Any = None
    """None, "json" or a JSON schema."""
    first: bool = False
    """Whether nothing was answered in this conversation before."""
    tokens: int | None = None
    """Answer with exactly so many tokens (option `rehearsal_tokens`)."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer before it is spoken."""

    thinking: str = ""
    text: str = ""
    calls: Sequence[Mapping[str, Any]] = ()
    """name and arguments of each tool call."""
    endless: int | None = None
    """A token that is repeated for ever instead of any text."""
    length: int | None = None
    """Stop after so many tokens of filler, instead of any text."""


def compose(heard: Heard, vocabulary: Encoder) -> Said:
    """Decide what to say."""
    thinking = f"The prompt has {len(heard.prompt)} tokens." if heard.thinking else ""
    tail = heard.prompt[-_SAME:]
    if len(tail) == _SAME and len(set(tail)) == 1:
        return Said(endless=tail[0])
    if heard.tokens is not None:
        return Said(length=heard.tokens)
    if heard.format:
        return Said(thinking, json.dumps(_instance(heard.format)))
    if heard.tools and (call := _call(heard)):
        return Said(thinking, calls=[call])
    if asked := _SAY.search(heard.last_user):
        return Said(thinking, asked[1])
    if asked := _WRITE.search(heard.last_user):
        return Said(thinking, length=int(asked[1]))
    words = _CONTROL.sub(" ", vocabulary.decode(heard.prompt)).split()
    return Said(
        thinking,
        f"This is a rehearsal, not a model. {len(heard.prompt)} tokens reached it. "
        f"They begin with «{' '.join(words[:8])[:120]}» and end with «{' '.join(words[-8:])[-120:]}».",
    )


def filler(vocabulary: Encoder) -> Iterator[tuple[int, str]]:
    """Tokens without end, each with its text."""
    return cycle(_verse(vocabulary))


@lru_cache(maxsize=16)
def _verse(vocabulary: Encoder) -> Sequence[tuple[int, str]]:
    lines = (f" Line {at} of a rehearsal, which goes on until it is told to stop." for at in range(1, 100))
    return [(token, vocabulary.decode([token])) for line in lines for token in vocabulary.encode(line)]


def _call(heard: Heard) -> Mapping[str, Any] | None:
    """The tool call that the last message asks for, if it does."""
    text = heard.last_user
    if asked := _CALL.search(text):
        return {"name": asked[1], "arguments": _arguments(asked[1], asked[2], heard.tools)}
    names = [name for function in _functions(heard.tools) if (name := str(function.get("name") or ""))]
    wanted = names[:1] if _USE.search(text) else []
    if not wanted and heard.first and len(text) <= _SHORT:
        said = {word.lower() for word in _WORD.findall(text)}
        wanted = [name for name in names if said & {word.lower() for word in _WORD.findall(name) if len(word) > 4}]
    return {"name": wanted[0], "arguments": _arguments(wanted[0], None, heard.tools)} if wanted else None


def _functions(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The functions of declared tools; null for a tool, or for its function, is one without a name in Go."""
    return [tool["function"] for tool in tools if tool and tool.get("function")]


def _arguments(name: str, given: str | None, tools: Sequence[Any]) -> Any:
    if given is not None:
        try:
            return json.loads(given)
        except ValueError:
            return {"text": given}
    for function in _functions(tools):
        if function.get("name") == name:
            return _instance(function.get("parameters") or {})
    return {}


def _instance(schema: Any) -> Any:
    """A small value that a JSON schema accepts; `"json"` gives an object."""
    if not isinstance(schema, Mapping):
        return {"rehearsal": True}
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("anyOf"):
        return _instance(schema["anyOf"][0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        names = required if isinstance(required, list) and required else properties
        return {name: _instance(properties.get(name, {})) for name in names if isinstance(name, str)}
    if kind == "array":
        return [_instance(schema.get("items") or {})]
    return {"integer": 1, "number": 0.5, "boolean": True, "null": None}.get(str(kind), "rehearsal")
