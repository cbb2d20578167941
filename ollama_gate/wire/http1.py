"""HTTP/1.1 as it comes from Ollama: heads read, body framing undone, whatever pieces the bytes arrive in.

Strict where leniency would let two readers see two different answers (RFC 9112, 11): a bare CR or LF in a head, a
folded line, a length that is no plain number or stands there twice with two values, a chunk size that is no plain
hexadecimal number. What is wrong is an `UpstreamBroken`, and the connection is not used again.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ollama_gate.errors import UpstreamBroken
from ollama_gate.values import frozen

MOST_HEAD_BYTES: Final = 64 * 1024
"""Longest head, and longest trailer."""
_MOST_SIZE_LINE: Final = 1024
"""Longest line with a chunk's size and extensions."""

_MOST_INTERIM: Final = 64
"""Answers of status 1xx before the one that counts."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_DATE: Final = re.compile(rb"\r\n[Dd]ate:[^\r\n\0]*")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_OF_THE_CONNECTION: Final = frozenset({b"connection", b"content-length", b"transfer-encoding"})
_MOST_DIGITS: Final = 18
"""Of a body's length."""


Field = tuple[bytes, bytes]
"""One header: its name in lower case, and its line as it stands, without the line end."""


@frozen
class AnswerHead:
    """The status line and the headers of an answer."""

    status: int
    reason: bytes
    fields: tuple[Field, ...]
    """The headers as they came, but for a Content-Length beside a chunked body, which means nothing."""
    length: int | None
    """Bytes of the body where they are known beforehand."""


# Where the reader is. Plain numbers, because they are looked at for every token, and an enum's members are slow to get.
_HEAD: Final = 0
_PLAIN: Final = 1
"""In a body of known length."""
_SIZE_LINE: Final = 2
"""Before a chunk's size."""
_CHUNK: Final = 3
"""Inside a chunk's data or the line end after it."""
_TRAILER: Final = 4
_ENDLESS: Final = 5
"""In a body that ends with the connection."""
_DONE: Final = 6
_IN_CHUNKS: Final = frozenset({_SIZE_LINE, _CHUNK})


class AnswerReader:
    """Reads one answer after another from one connection; `begin` comes before each."""

    __slots__ = ("_bodiless", "_held", "_interim", "_left", "_state", "done", "excess", "head", "keep_alive")

    def __init__(self) -> None:
        """Expect nothing yet."""
        self._held = bytearray()
        self._left = 0
        self._state = _DONE
        self.done = True
        """Whether the answer is whole."""
        self._bodiless = False
        self._interim = 0
        self.head: AnswerHead | None = None
        """The answer's head, once it is there."""
        self.keep_alive = False
        """Whether the other side keeps the connection open after this answer."""
        self.excess = False
        """Whether bytes came that belong to no answer; the connection is of no use then."""

    def begin(self, *, bodiless: bool) -> None:
        """Expect an answer.

        Args:
            bodiless: it has no body whatever its head says, because the request was a HEAD.
        """
        self._state = _HEAD
        self.done = False
        self._bodiless = bodiless
        self._left = 0
        self._interim = 0
        self.head = None

    def feed(self, data: bytes) -> bytes:
        """Take what one read brought; returns the bytes of the body in it.

        Raises:
            UpstreamBroken: this is not HTTP.
        """
        state = self._state
        if state in _IN_CHUNKS:
            return self._chunks(data)
        if state == _PLAIN:
            return self._plain(data)
        if state == _HEAD:
            return self._until_head(data)
        if state == _ENDLESS:
            return data
        if state == _TRAILER:
            self._trailer(data)
            return b""
        self.excess = self.excess or bool(data)
        return b""

    def end(self) -> None:
        """The connection has ended.

        Raises:
            UpstreamBroken: before the answer was whole.
        """
        if self._state == _ENDLESS:
            self._over()
        if not self.done:
            where = "before its answer began" if self.head is None else "in the middle of its answer"
            raise UpstreamBroken(f"Ollama closed the connection {where}")

    def _until_head(self, data: bytes) -> bytes:
        held = self._held
        if not held:
            end = data.find(b"\r\n\r\n")
            if 0 <= end <= MOST_HEAD_BYTES:
                return self._after_head(data[:end], data[end + 4 :])
        searched = max(0, len(held) - 3)
        held += data
        end = held.find(b"\r\n\r\n", searched)
        if end > MOST_HEAD_BYTES or (end < 0 and len(held) > MOST_HEAD_BYTES):
            raise UpstreamBroken(f"Ollama's answer has more than {MOST_HEAD_BYTES} bytes of headers")
        if end < 0:
            if not b"HTTP/1.".startswith(bytes(held[:7])):
                raise UpstreamBroken("what answers is not an HTTP server")
            return b""
        head, rest = bytes(held[:end]), bytes(held[end + 4 :])
        held.clear()
        return self._after_head(head, rest)

    def _after_head(self, raw: bytes, rest: bytes) -> bytes:
        date = _DATE.search(raw)
        if date is None:
            said = _said(raw)
            fields = said.fields
        else:  # all that differs from the answer before
            start, end = date.span()
            said = _said(raw[:start] + raw[end:])
            place = raw.count(b"\r\n", 0, start)
            fields = (*said.fields[:place], (b"date", raw[start + 2 : end]), *said.fields[place:])
        status, length = said.status, said.length
        if status < 200:
            if status == 101:
                raise UpstreamBroken("Ollama wants to speak another protocol")
            self._interim += 1  # something by the way, such as 100 Continue
            if self._interim > _MOST_INTERIM:
                raise UpstreamBroken("Ollama sends interim answers without end")
            return self._until_head(rest)
        self.keep_alive = said.keep_alive
        self.head = AnswerHead(status, said.reason, fields, length)
        if self._bodiless or status in (204, 304) or length == 0:
            self._over()
        elif said.chunked:
            self._state = _SIZE_LINE
        elif length is None:
            self._state = _ENDLESS
        else:
            self._left, self._state = length, _PLAIN
        return self.feed(rest) if rest else b""

    def _over(self) -> None:
        """The answer is whole."""
        self._state, self.done = _DONE, True

    def _plain(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left > 0:
            return data
        self._over()
        if self._left < 0:
            self.excess = True
            data = data[: self._left]
        return data

    def _chunks(self, data: bytes) -> bytes:
        held = self._held
        if held:
            data = bytes(held) + data
            held.clear()
        parts: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            if self._state == _SIZE_LINE:
                line = data.find(b"\r\n", at, at + _MOST_SIZE_LINE)
                if line < 0:
                    if size - at >= _MOST_SIZE_LINE:
                        raise UpstreamBroken("a chunk of Ollama's answer has no size")
                    held += data[at:]
                    break
                self._left = _chunk_size(data[at:line])
                at = line + 2
                if not self._left:
                    self._state = _TRAILER
                    self._trailer(data[at:])
                    break
                self._state = _CHUNK
                continue
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                parts.append(part)
            if not self._left and at < size:
                if size - at < 2:
                    held += data[at:]
                    break
                if data[at : at + 2] != b"\r\n":
                    raise UpstreamBroken("a chunk of Ollama's answer is longer than it says")
                at += 2
                self._state = _SIZE_LINE
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _trailer(self, data: bytes) -> None:
        """Pass over the lines after the last chunk; an empty one is the end."""
        held = self._held
        held += data
        if held.startswith(b"\r\n"):
            end = 0
        else:
            end = held.find(b"\r\n\r\n")
            if end < 0:
                if len(held) > MOST_HEAD_BYTES:
                    raise UpstreamBroken(f"Ollama's answer has more than {MOST_HEAD_BYTES} bytes of trailers")
                return
            end += 2
        self.excess = len(held) > end + 2
        held.clear()
        self._over()


@frozen
class _Said:
    """What a head says, but for its date."""

    status: int
    reason: bytes
    fields: tuple[Field, ...]
    chunked: bool
    length: int | None
    keep_alive: bool


@lru_cache(maxsize=64)
def _said(raw: bytes) -> _Said:
    """What a head without its date says; mostly the same as the one of the answer before.

    Raises:
        UpstreamBroken: this is not HTTP, or could be read in two ways.
    """
    first, *lines = raw.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise UpstreamBroken("what answers is not an HTTP server")
    keep_alive = found[1] == b"1"
    fields = tuple(map(_field, lines))
    said: dict[bytes, list[bytes]] = {}
    for name, line in fields:
        if name in _OF_THE_CONNECTION:
            said.setdefault(name, []).append(line.partition(b":")[2].strip(b" \t"))
    codings, lengths = said.get(b"transfer-encoding"), said.get(b"content-length")
    if codings and lengths:
        fields, lengths = tuple(field for field in fields if field[0] != b"content-length"), None
    if codings and b",".join(codings).strip().lower() != b"chunked":
        raise UpstreamBroken("Ollama's answer has a transfer coding that is not known here")
    if b"connection" in said:
        tokens = b",".join(said[b"connection"]).lower()
        keep_alive = b"close" not in tokens and (keep_alive or b"keep-alive" in tokens)
    length = _length(lengths) if lengths else None
    return _Said(int(found[2]), found[3] or b"", fields, bool(codings), length, keep_alive)


def _length(said: list[bytes]) -> int:
    """How long a body is (RFC 9112, 6.3); said twice it is well if it is the same.

    Raises:
        UpstreamBroken: that is no length.
    """
    told = {text.strip() for value in said for text in value.split(b",")}
    text = told.pop()
    if told or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise UpstreamBroken("Ollama's answer has a Content-Length that is none")
    return int(text)


def _field(line: bytes) -> Field:
    """The header that a line is.

    Raises:
        UpstreamBroken: it is none.
    """
    if len(line.translate(None, _ENDS)) != len(line):
        raise UpstreamBroken("a header of Ollama's answer holds a line end")
    spelled, colon, _ = line.partition(b":")
    if not colon or not _NAME.fullmatch(spelled):
        raise UpstreamBroken("a header of Ollama's answer is none")
    return spelled.lower(), line


@lru_cache(maxsize=256)
def _chunk_size(line: bytes) -> int:
    """The size that a chunk's first line says; one token's chunk is about as long as another's.

    Raises:
        UpstreamBroken: it says none.
    """
    found = _SIZE.fullmatch(line)
    if found is None:
        raise UpstreamBroken("a chunk of Ollama's answer has a size that is none")
    return int(found[1], 16)


def request_head(method: str, target: str, host: str, lines: Sequence[bytes]) -> bytes:
    """The bytes of a request's head.

    Args:
        method: any HTTP method.
        target: raw path and query.
        host: what the Host header says.
        lines: all other headers, Content-Length or Transfer-Encoding included.

    Raises:
        ValueError: a part of it holds a line end, and would so become two.
    """
    first = f"{method} {target} HTTP/1.1\r\nHost: {host}".encode("utf-8", "surrogateescape")
    head = b"\r\n".join((first, *lines, b"\r\n"))
    if len(head) - len(head.translate(None, _ENDS)) != 2 * (len(lines) + 3):
        raise ValueError(_TORN)
    return head


def answer_head(status: int, reason: bytes, lines: Sequence[bytes], own: Sequence[str]) -> bytes:
    """The bytes of an answer's head.

    Args:
        status: three digits.
        reason: the reason phrase.
        lines: the headers that are handed on, as an `AnswerReader` read them.
        own: what is added to them, Content-Length or Transfer-Encoding included where they say neither.

    Raises:
        ValueError: a header of `own` holds a line end, and would so become two.
    """
    last = "\r\n".join(own).encode("utf-8", "surrogateescape")
    if len(last) - len(last.translate(None, _ENDS)) != 2 * (len(own) - 1):
        raise ValueError(_TORN)
    return b"\r\n".join((b"HTTP/1.1 %d %b" % (status, reason), *lines, last, b"\r\n"))


_ENDS: Final = b"\r\n\0"
"""What ends a line for somebody: between the lines of a head each stands once, and nowhere else."""
_TORN: Final = "a head holds a line end where there may be none"
