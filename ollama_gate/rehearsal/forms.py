"""Ollama's native request structs (`api/types.go`, v0.33)."""

import base64
import binascii
from itertools import takewhile
from typing import Any

from ollama_gate.rehearsal import gojson
from ollama_gate.rehearsal.gojson import JsonError
from ollama_gate.rehearsal.structs import (
    Read,
    Where,
    alone,
    anything,
    boolean,
    flag,
    integer,
    list_of,
    mapping,
    string,
    struct,
)
from ollama_gate.rehearsal.tools import misfit


def _image(value: Any, old: Any, where: Where) -> Any:
    encoded = string(value, old, where)
    try:
        return base64.b64decode((encoded or "").encode("ascii", "replace"), validate=True)
    except binascii.Error:
        good = len(encoded) - len(encoded.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
        raise JsonError(f"illegal base64 data at input byte {good}") from None


def _think(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value in {"high", "medium", "low", "max"}:
        return value
    if isinstance(value, str):
        raise JsonError(f'invalid think value: "{value}" (must be "high", "medium", "low", "max", true, or false)')
    raise JsonError("think must be a boolean or string")


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: Any) -> float:
    """A Go duration (`"5m"`, a number of seconds); negative means for ever (`api.Duration`, v0.33).

    Raises:
        JsonError: for text that `time.ParseDuration` refuses.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float("inf") if value < 0 else float(value)
    if not isinstance(value, str):
        raise JsonError(f"Unsupported type: '{type(value).__name__}'")
    total = _duration(value)
    return float("inf") if total < 0 else total


def _duration(text: str) -> float:
    rest = text.lstrip("+-")
    total = 0.0
    if rest == "0":
        return 0.0
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        unit = next((u for u in ("ns", "us", "µs", "ms", "s", "m", "h") if rest[digits:].startswith(u)), "")
        if not digits or rest[:digits] == ".":
            raise JsonError(f'time: invalid duration "{text}"')
        if not unit:
            named = "".join(takewhile(lambda letter: letter not in ".0123456789", rest[digits:]))
            wrong = f'unknown unit "{named}"' if named else "missing unit"
            raise JsonError(f'time: {wrong} in duration "{text}"')
        total += float(rest[:digits]) * _UNITS[unit]
        rest = rest[digits + len(unit) :]
    if not text.lstrip("+-"):
        raise JsonError(f'time: invalid duration "{text}"')
    return -total if text.startswith("-") else total


def _keep_alive(value: Any, old: Any, where: Where) -> Any:  # noqa: ARG001
    return None if value is None else seconds(gojson.plain(value))


_CALL = struct(
    "ToolCall",
    {
        "id": string,
        "function": struct("ToolCallFunction", {"index": integer, "name": string, "arguments": anything}),
    },
)


def _call(value: Any, old: Any, where: Where) -> Any:
    """A call; one that is null, or without its function, is an empty one."""
    call = _CALL(value, old, where) or {}
    return {**call, "function": call.get("function") or {}}


def _tool(value: Any, old: Any, where: Where) -> Any:
    told = anything(value, old, where)
    wrong = misfit(told)
    if wrong is not None:
        raise JsonError(f"json: cannot unmarshal into Go struct field {where.struct}.{wrong}: it has another type")
    return told


_MESSAGE = alone(
    "Alias",
    {
        "role": string,
        "content": string,
        "thinking": string,
        "images": list_of(_image, "[]api.ImageData"),
        "tool_calls": list_of(_call, "[]api.ToolCall"),
        "tool_name": string,
        "tool_call_id": string,
    },
)
_COMMON: dict[str, Read] = {
    "model": string,
    "stream": flag,
    "format": anything,
    "keep_alive": _keep_alive,
    "options": mapping,
    "think": _think,
    "truncate": flag,
    "shift": flag,
    "_debug_render_only": boolean,
    "logprobs": boolean,
    "top_logprobs": integer,
}
CHAT = struct(
    "ChatRequest",
    _COMMON
    | {
        "messages": list_of(_MESSAGE, "[]api.Message"),
        "tools": list_of(_tool, "api.Tools"),
    },
)
GENERATE = struct(
    "GenerateRequest",
    _COMMON
    | {
        "prompt": string,
        "suffix": string,
        "system": string,
        "template": string,
        "context": list_of(integer, "[]int"),
        "raw": boolean,
        "images": list_of(_image, "[]api.ImageData"),
    },
)
_EMBED_COMMON: dict[str, Read] = {"model": string, "keep_alive": _keep_alive, "options": mapping}
EMBED = struct("EmbedRequest", _EMBED_COMMON | {"input": anything, "truncate": flag, "dimensions": integer})
EMBEDDINGS = struct("EmbeddingRequest", _EMBED_COMMON | {"prompt": string})
SHOW = struct(
    "ShowRequest",
    {"model": string, "name": string, "verbose": boolean, "system": string, "template": string, "options": mapping},
)
NAMED = struct("PullRequest", {"model": string, "name": string, "insecure": boolean, "stream": flag})
COPY = struct("CopyRequest", {"source": string, "destination": string})
CREATE = struct(
    "CreateRequest",
    {
        "model": string,
        "name": string,
        "from": string,
        "files": mapping,
        "template": string,
        "system": string,
        "parameters": mapping,
        "messages": list_of(_MESSAGE, "[]api.Message"),
        "renderer": string,
        "parser": string,
        "license": anything,
        "stream": flag,
    },
)
