"""Ollama's answers as they pass: lines for whoever translates them, the final counts for whoever settles the request.

A stream is one JSON object a line (`application/x-ndjson`, `server/routes.go:streamResponse`, v0.33); an answer that is
not streamed is a single object. Neither reader trusts the chunks of HTTP to end where a line does.
"""

import re
from typing import Any, Final

import orjson

from ollama_gate.errors import UpstreamBroken
from ollama_gate.values import frozen

MOST_LINE_BYTES: Final = 8_000_000
"""Ollama's own limit for a line of its runner's stream, and its Go client's for a line of the API."""


class LineSplitter:
    """Cuts runs of bytes into lines, holding no more than one unfinished line."""

    __slots__ = ("_held", "_most")

    def __init__(self, most_line_bytes: int = MOST_LINE_BYTES) -> None:
        """Hold a line of up to so many bytes."""
        self._held = bytearray()
        self._most = most_line_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that this run completes, without their line ends; empty ones are left out.

        Raises:
            UpstreamBroken: a line is longer than the limit.
        """
        held = self._held
        most = len(held) + len(data)
        lines = data.split(b"\n")
        rest = lines.pop()
        if held and lines:
            lines[0] = bytes(held) + lines[0]
            held.clear()
        held += rest
        if most > self._most and (len(held) > self._most or any(len(line) > self._most for line in lines)):
            raise UpstreamBroken(f"a line of Ollama's answer is longer than {self._most} bytes")
        return [line for line in lines if line] if b"" in lines else lines

    def end(self) -> bytes:
        """What came after the last line end: a line that was cut short, or one that never had an end."""
        rest = bytes(self._held)
        self._held.clear()
        return rest


@frozen
class StreamEnd:
    """What the last line of an answer says (`api/types.go:Metrics`); None where it says nothing."""

    done: bool = False
    """Whether Ollama said that the answer is complete. Embeddings have no such mark."""
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    """Tokens; Ollama leaves a count of 0 out."""
    eval_count: int | None = None
    error: str | None = None
    """The text of an error line, or of an error that is the whole body."""
    lines: int = 0
    """How many lines there were: about one a token."""


_KEEP: Final = 64 * 1024
"""Bytes of the end that are kept. A last line is longer only with a `context`, `embeddings` or `logprobs` list."""
_OVERLAP: Final = 256
"""Bytes looked at twice where the kept end is trimmed, so that no field is missed across the seam."""

_NO_COUNT: Final = 1 << 31
"""Tokens from which on a number is none that a model can have counted; quotas and drift would believe it."""
_FIELD: Final = re.compile(
    rb'"(done|done_reason|prompt_eval_count|eval_count)":(true|false|"[a-z_]{1,32}"|[0-9]{1,18})(?=[,}])'
)
"""A final field as Ollama writes it, compactly. Inside a string its quotes would be escaped, so it would not match."""


class TailObserver:
    """Sees every run of an answer's bytes and keeps only the end of it.

    `feed` costs the same for each run, whatever the answer's length; nothing is parsed before `end`.
    """

    __slots__ = ("_begins_inside", "_fields", "_lines", "_tail")

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._tail = bytearray()
        self._lines = 0
        self._begins_inside = False
        """Whether the beginning of the tail's first line was trimmed away,"""
        self._fields: dict[str, Any] = {}
        """and which final fields were in it."""

    def feed(self, data: bytes) -> None:
        """See one run of bytes."""
        self._lines += data.count(b"\n")
        tail = self._tail
        tail += data
        if len(tail) > 2 * _KEEP:
            self._trim()

    def end(self) -> StreamEnd:
        """Read what the last line says. A line that was cut short says nothing."""
        tail = self._tail
        text = tail.rstrip()
        lines = self._lines + (bool(text) and not tail.endswith(b"\n"))
        start = text.rfind(b"\n") + 1
        last = text[start:] if start else text
        fields: Any = None
        if start > 0 or not self._begins_inside:
            try:
                fields = orjson.loads(last)
            except orjson.JSONDecodeError:
                fields = None
        elif last.endswith(b"}"):
            fields = self._fields | _fields(last)
        return _read(fields, lines) if isinstance(fields, dict) else StreamEnd(lines=lines)

    def _trim(self) -> None:
        tail = self._tail
        cut = len(tail) - _KEEP
        line = tail.rfind(b"\n", 0, cut) + 1
        if line:
            self._fields = {}
        # A field across the cut is found here. If another line begins within the overlap, these fields are not used.
        self._fields |= _fields(tail[line : cut + _OVERLAP])
        self._begins_inside = line != cut
        del tail[:cut]


def _fields(part: bytes | bytearray) -> dict[str, Any]:
    """The last of each final field in a part of a line; Ollama writes its own after what the model said."""
    return {match[1].decode(): orjson.loads(match[2]) for match in _FIELD.finditer(part)}


def end_of(answer: bytes) -> StreamEnd:
    """What a whole answer says that is there in one piece, as a `TailObserver` would say it that has seen it pass."""
    text = answer.rstrip()
    if len(answer) > 2 * _KEEP or b"\n" in text:
        observer = TailObserver()
        observer.feed(answer)
        return observer.end()
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        fields = None
    lines = answer.count(b"\n") + (bool(text) and not answer.endswith(b"\n"))
    return _read(fields, lines) if isinstance(fields, dict) else StreamEnd(lines=lines)


def _read(fields: dict[str, Any], lines: int) -> StreamEnd:
    error, reason = error_text(fields.get("error")), fields.get("done_reason")
    prompt, evaluated = fields.get("prompt_eval_count"), fields.get("eval_count")
    return StreamEnd(
        # By place: by name it takes twice as long.
        fields.get("done") is True,
        reason if isinstance(reason, str) else None,
        prompt if type(prompt) is int and 0 <= prompt < _NO_COUNT else None,
        evaluated if type(evaluated) is int and 0 <= evaluated < _NO_COUNT else None,
        error,
        lines,
    )


def error_text(error: Any) -> str | None:
    """What the `error` of a line or a body says: Ollama's is a string; an object's message, or any other value as JSON.

    Args:
        error: a decoded JSON value; None, and so None is given, where there is none.
    """
    if error is None or isinstance(error, str):
        return error
    if isinstance(error, dict) and isinstance(message := error.get("message"), str) and message:
        return message
    try:
        return orjson.dumps(error).decode()
    except orjson.JSONEncodeError:
        return "an error that is nested too deeply to be told"


class BlindObserver:
    """An observer that does not look, for bytes that are no NDJSON or nobody's business."""

    def feed(self, data: bytes) -> None:
        """Ignore a run of bytes."""

    def end(self) -> StreamEnd:
        """Know nothing."""
        return StreamEnd()


BLIND: Final = BlindObserver()
