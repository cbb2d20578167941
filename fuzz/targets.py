"""What is fuzzed: each target takes any bytes, and whatever it raises is a find, for a refusal is an answer."""

import contextlib
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Final

import atheris

with atheris.instrument_imports(include=["ollama_gate"]):
    import orjson

    from ollama_gate.archive.records import prefix_of
    from ollama_gate.catalog.names import canonical
    from ollama_gate.config import load
    from ollama_gate.counting.normalise import ModelTraits, chat_conversation
    from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
    from ollama_gate.dialects.translation import Stamp
    from ollama_gate.errors import ConfigError, Refused, RenderError, UpstreamError
    from ollama_gate.receive import BodyLimit, _received
    from ollama_gate.requests import AnswerFacts
    from ollama_gate.routes import LANES
    from ollama_gate.wire.body import decode_json, encode_json
    from ollama_gate.wire.http1 import AnswerReader
    from ollama_gate.wire.ndjson import LineSplitter, TailObserver

_JSON: Final = sorted(path for path, lane in LANES.items() if not lane.form)
_TRANSLATED: Final = [path for path in _JSON if LANES[path].writer is not None]
_ASKED: Final[dict[str, Any]] = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "x"}],
    "prompt": "x",
    "input": "x",
}
_ENCODINGS: Final = (None, "gzip", "deflate", "zstd", "gzip, zstd")
_ERAS: Final = tuple(Era)
_LIMIT: Final = BodyLimit(1 << 20, 1 << 19)
_TALK: Final[dict[str, Any]] = {
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, "b"]}}}]},
        {"role": "tool", "tool_name": "f", "content": "y"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
}


def bodies(data: bytes) -> None:
    """A client's body, on each route: its encoding, its JSON, and what its dialect makes of it."""
    path = _JSON[data[-1] % len(_JSON)]
    encoding = _ENCODINGS[data[-2] % len(_ENCODINGS)] if data[-2] > 200 else None
    with contextlib.suppress(Refused):
        received = _received(data[:-2], encoding, _LIMIT)
        _, request = LANES[path].read(decode_json(received.text), {}, "drop")
        assert orjson.loads(encode_json(dict(request.body)))["model"] == request.model


def lines(data: bytes) -> None:
    """Lines of an upstream's stream, cut anywhere, through each translator; and what is read of their end."""
    path = _TRANSLATED[data[-1] % len(_TRANSLATED)]
    lane, step, rest, stream = LANES[path], data[-2] + 1, data[:-2], data[-1] < 128
    client, request = lane.read(dict(_ASKED, stream=stream), {}, "drop")
    assert lane.writer is not None
    writer = lane.writer(request, client, Stamp(1, "x"), AnswerFacts(5, 4096))
    splitter, seen = LineSplitter(1 << 16), TailObserver()
    with contextlib.suppress(UpstreamError):
        for at in range(0, len(rest), step):
            seen.feed(rest[at : at + step])
            for line in splitter.feed(rest[at : at + step]):
                _told(writer, line, whole=not stream)
        writer.finish()
    seen.end()


def _told(writer: Any, line: bytes, *, whole: bool) -> None:
    try:
        chunk = orjson.loads(line)
    except orjson.JSONDecodeError:
        return
    if isinstance(chunk, dict):
        told = (writer.whole if whole else writer.feed)(chunk)
        assert isinstance(told, bytes)


def answers(data: bytes) -> None:
    """Bytes of an upstream's answer, cut anywhere."""
    step, rest = data[-1] + 1, data[:-1]
    reader, whole = AnswerReader(), AnswerReader()
    assert _read(reader, [rest[at : at + step] for at in range(0, len(rest), step)]) == _read(whole, [rest])


def _read(reader: AnswerReader, pieces: list[bytes]) -> tuple[bytes, bool]:
    reader.begin(bodiless=False)
    told = b""
    try:
        for piece in pieces:
            told += reader.feed(piece)
        reader.end()
    except UpstreamError:
        return b"", False
    return told, True


def configs(data: bytes) -> None:
    """A configuration file."""
    _FILE.write_bytes(data)
    with contextlib.suppress(ConfigError):
        load(_FILE, {}, canonical)


def hashes(data: bytes) -> None:
    """What somebody asks the archive for."""
    asked = data.decode("utf-8", "surrogateescape")
    prefix = prefix_of(asked)
    assert prefix is None or set(prefix) <= set("0123456789abcdef")


def templates(data: bytes) -> None:
    """A model's template, parsed and rendered."""
    with contextlib.suppress(RenderError):
        era = _ERAS[data[-1] % len(_ERAS)]
        talk = chat_conversation(_TALK, ModelTraits("m", capabilities=frozenset({"tools"})))
        GoTemplate.parse(data[:-1].decode("utf-8", "replace"), era=era).render(talk, today=date(2026, 1, 1))


_FILE: Final = Path(tempfile.mkdtemp(prefix="fuzz-")) / "ollama-gate.toml"
LEAST: Final = 2
"""Bytes of input at least, of which the last ones choose the route, the encoding and the like."""
TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    each.__name__: each for each in (bodies, lines, answers, configs, hashes, templates)
}
SEEDS: Final[dict[str, bytes]] = {
    "lines": b"""{"model":"m","message":{"role":"assistant","content":"a","thinking":"b"},"response":"c","done":false}
{"message":{"tool_calls":[{"id":"x","function":{"index":0,"name":"f","arguments":{"a":[1,null]}}}]},"done":false}
{"embeddings":[[0.5,1]],"logprobs":[{"token":"a","logprob":-1.5,"bytes":[97],"top_logprobs":[]}],"done":false}
{"error":"e"}
{"message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":5,"eval_count":2,"total_duration":9}
  """,
    "hashes": b"blake2b:0123456789abcdef",
}
"""Where there is no corpus among the tests' data."""
