"""Request bodies: bytes to one JSON object, as Ollama's decoder would read them, in bounded time and memory.

What Go accepts is accepted (trailing bytes, broken UTF-8, lone surrogates), what it refuses is refused, and what two
decoders could read in two ways is refused too. The way out is `encode_json`: Ollama gets those bytes, never the
client's.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ollama_gate.errors import Refusal, Refused
from ollama_gate.wire.folding import ambiguous, first_duplicate
from ollama_gate.wire.repair import TooBroken, repair

MISSING_BODY = "missing request body"
"""Ollama's own words for an empty body (`server/routes.go`)."""

_SPACE: Final = b" \t\r\n"
_BEGINNING: Final = 64
_PIECE: Final = 256 * 1024
"""Bytes that are looked at in one step."""
_BACKSLASH: Final = ord("\\")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How much a body may ask of the gate before anything is known about it.

    The parser keeps the interpreter from its first byte to its last, and memory goes by values, not by bytes.
    """

    values: int = 300_000
    """Strings, and values of any kind, in the whole body: the tokens of a context among them. Each costs up to a
    hundred bytes of memory."""
    keys: int = 80_000
    """Keys of all objects. One that stands beside many others costs as much time as ten values."""
    objects: int = 20_000
    """Objects in the whole body: messages, calls, parts, schemas. Each costs time in every stage that looks at them."""

    harmless: int = field(init=False)
    """Bytes of text that cannot hold too much: a value takes two of them at least, an object three, a key four."""

    def __post_init__(self) -> None:
        """Work it out once, because every body is held against it."""
        object.__setattr__(self, "harmless", min(2 * self.values, 3 * self.objects, 4 * self.keys))


DEFAULT_LIMITS = BodyLimits()


class Census:
    """What JSON texts that belong together hold so far, held against limits before they are parsed."""

    __slots__ = ("_bytes", "_keys", "_limits", "_objects", "_values")

    def __init__(self, limits: BodyLimits = DEFAULT_LIMITS) -> None:
        """Nothing yet."""
        self._limits = limits
        self._bytes = self._values = self._keys = self._objects = 0

    def take(self, text: bytes) -> None:
        """Add a text. It is looked at in pieces, so that other threads run meanwhile.

        Raises:
            Refused: 400 `invalid_json`, there are too many values, keys or objects now.
        """
        self._bytes += len(text)
        limits = self._limits
        if self._bytes <= limits.harmless:
            return
        # In JSON a backslash stands inside strings only, so a run of them begins with an escape: taking pairs away from
        # the left, then escaped quotes, leaves each quote a delimiter.
        at = quotes = 0
        while at < len(text):
            end = min(at + _PIECE, len(text))
            while end < len(text) and text[end - 1] == _BACKSLASH:
                end += 1
            runs = text[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
            structure = b"".join(runs[quotes % 2 :: 2])
            quotes += len(runs) - 1
            begun = structure.count(b"{")
            self._objects += begun
            self._keys += structure.count(b":")
            self._values += structure.count(b",") + structure.count(b"[") + begun
            if self._values > limits.values:
                raise _invalid(f"The request body has more than {limits.values} values.")
            if self._keys > limits.keys:
                raise _invalid(f"The request body has more than {limits.keys} keys.")
            if self._objects > limits.objects:
                raise _invalid(f"The request body has more than {limits.objects} objects.")
            at = end


def _surely_few(text: bytes, limits: BodyLimits) -> bool:
    """Whether a text stays within the limits even if all marks in its strings were structure; cheap to say."""
    values = keys = objects = 0
    for at in range(0, len(text), _PIECE):
        piece = text[at : at + _PIECE]
        begun = piece.count(b"{")
        objects += begun
        keys += piece.count(b":")
        values += piece.count(b",") + piece.count(b"[") + begun
    return values <= limits.values and keys <= limits.keys and objects <= limits.objects


def decode_json(raw: bytes, limits: BodyLimits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Decode a body that must be one JSON object.

    As in Go, only the first value counts and what follows it is ignored; each byte that is not UTF-8 and each half of
    a surrogate pair becomes U+FFFD. Integers of up to 64 bits stay exact, larger ones become floats.

    Raises:
        Refused: 400 `invalid_json` for what is not JSON, not an object, too deep, too rich in values or holds a number
            beyond a double; 400 `ambiguous_keys` where an object has a key twice.
    """
    if not raw[:_BEGINNING].strip(_SPACE) and not raw.strip(_SPACE):
        raise _invalid(MISSING_BODY)
    if len(raw) > limits.harmless and not _surely_few(raw, limits):
        Census(limits).take(raw)
    document, value = _parsed(raw)
    if not isinstance(value, dict):
        raise _invalid(f"The request body must be a JSON object, not {_kind(value)}.")
    if _may_have_duplicates(document, value):
        duplicate = first_duplicate(document)
        if duplicate is not None:
            raise ambiguous(duplicate, duplicate, f"the key {duplicate!r} twice")
    return value


def encode_json(value: Any) -> bytes:
    """Encode what the gate sends.

    Raises:
        Refused: 400 `invalid_json` for what came from a client inside a string and cannot be sent: nesting beyond 250
            levels, integers beyond 64 bits, halves of surrogate pairs.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "not JSON serializable" in str(error):
            raise
        raise _invalid(f"A value in the request cannot be sent on: {error}.") from error


def _may_have_duplicates(document: bytes, value: dict[str, Any]) -> bool:
    """Whether an object in the text may have a key twice, of which the decoded value has only the last.

    Every key has one colon, and the others stand inside strings. Dropping a key drops its colon, and perhaps others in
    its value, so the text has more of them than the value written out again. Only colons that the text spells in hex
    could make up for that.
    """
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise _invalid("The request body is nested too deeply (more than about 250 levels).") from error
    if written == document:
        return False  # most clients write as densely as this
    if document.count(b":") != written.count(b":"):
        return True
    return b"\\" in document and (b"\\u003a" in document or b"\\u003A" in document)


def _parsed(raw: bytes) -> tuple[bytes, Any]:
    """The first JSON value, and the text that it was read from: `raw` itself unless it had to be mended or cut."""
    try:
        return raw, orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        failure: json.JSONDecodeError = error
    try:
        document = repair(raw)
    except TooBroken as error:
        raise _invalid(f"The request body is not valid JSON: {error}.") from error
    if document is not raw:
        try:
            return document, orjson.loads(document)
        except orjson.JSONDecodeError as error:
            failure = error
    # Where the text before the failure is a whole object, what follows it is what Go never looks at.
    document = document.decode()[: failure.pos].encode()
    try:
        return document, orjson.loads(document)
    except orjson.JSONDecodeError:
        raise _invalid(
            f"The request body is not valid JSON: {failure.msg} (line {failure.lineno}, column {failure.colno})."
        ) from failure


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"


def _invalid(message: str) -> Refused:
    return Refused(Refusal(status=400, code="invalid_json", message=message))
