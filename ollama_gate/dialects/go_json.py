"""JSON as Go's encoding/json writes it, so that the gate's answers equal Ollama's byte for byte.

Go makes JSON safe to embed in HTML: `<`, `>`, `&`, U+2028 and U+2029 are written as escapes. Everything else orjson
already writes as Go does (short escapes, lower-case hex, plain decimals down to 1e-6), integral floats aside.
"""

import json
from typing import Any

import orjson


def go_json(value: Any) -> bytes:
    """One JSON value, compact, keys in the order given."""
    # Written out, not looped: this runs for every streamed token. The five bytes occur nowhere outside of strings.
    try:
        plain = orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Nesting beyond 254 levels and integers beyond 64 bits: a model can write both into a call's arguments.
        plain = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return (
        plain.replace(b"<", b"\\u003c")
        .replace(b">", b"\\u003e")
        .replace(b"&", b"\\u0026")
        .replace(b"\xe2\x80\xa8", b"\\u2028")
        .replace(b"\xe2\x80\xa9", b"\\u2029")
    )


def go_number(value: float) -> float:
    """A number that is written without a fraction when it has none, as Go writes a float64."""
    return int(value) if abs(value) < 1e21 and value == int(value) else value


def sorted_keys(value: Any) -> Any:
    """A free-form value with the keys of every object in order, as Go writes a `map[string]any`."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [sorted_keys(item) for item in value]
    return value
