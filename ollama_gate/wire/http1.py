"""HTTP/1.1 as it comes from Ollama: heads read, body framing undone, whatever pieces the bytes arrive in.

Strict where leniency would let two readers see two different answers (RFC 9112, 11): a bare CR or LF in a head, a
folded line, a length that is no plain number or stands there twice with two values, a chunk size that is no plain
hexadecimal number. What is wrong is an `UpstreamBroken`, and the connection is not used again.
"""

import re
from collections.abc import Mapping
from typing import Final

from multidict import CIMultiDict

from ollama_gate.errors import UpstreamBroken
from ollama_gate.values import frozen

MOST_HEAD_BYTES: Final = 64 * 1024
"""Longest head, and longest trailer."""
_MOST_SIZE_LINE: Final = 1024
"""Longest line with a chunk's size and extensions."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD: Final = re.compile(r"^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*)\r\n", re.MULTILINE)
"""One whole line: a header's name and its value."""
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


@frozen
class AnswerHead:
    """The status line and the headers of an answer."""

    status: int
    reason: str
    headers: CIMultiDict[str]
    """As they came, but for a Content-Length beside a chunked body, which means nothing."""
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


class AnswerReader:
    """Reads one answer after another from one connection; `begin` comes before each."""

    __slots__ = ("_bodiless", "_held", "_left", "_state", "excess", "head", "keep_alive")

    def __init__(self) -> None:
        """Expect nothing yet."""
        self._held = bytearray()
        self._left = 0
        self._state = _DONE
        self._bodiless = False
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
        self._bodiless = bodiless
        self._left = 0
        self.head = None

    @property
    def done(self) -> bool:
        """Whether the answer is whole."""
        return self._state == _DONE

    def feed(self, data: bytes) -> bytes:
        """Take what one read brought; returns the bytes of the body in it.

        Raises:
            UpstreamBroken: this is not HTTP.
        """
        state = self._state
        if state in (_SIZE_LINE, _CHUNK):
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
            self._state = _DONE
        if self._state != _DONE:
            where = "before its answer began" if self.head is None else "in the middle of its answer"
            raise UpstreamBroken(f"Ollama closed the connection {where}")

    def _until_head(self, data: bytes) -> bytes:
        held = self._held
        if not held:
            end = data.find(b"\r\n\r\n")
            if 0 <= end <= MOST_HEAD_BYTES:
                return self._after_head(data[: end + 2], data[end + 4 :])
        searched = max(0, len(held) - 3)
        held += data
        end = held.find(b"\r\n\r\n", searched)
        if end > MOST_HEAD_BYTES or (end < 0 and len(held) > MOST_HEAD_BYTES):
            raise UpstreamBroken(f"Ollama's answer has more than {MOST_HEAD_BYTES} bytes of headers")
        if end < 0:
            if not b"HTTP/1.".startswith(bytes(held[:7])):
                raise UpstreamBroken("what answers is not an HTTP server")
            return b""
        head, rest = bytes(held[: end + 2]), bytes(held[end + 4 :])
        held.clear()
        return self._after_head(head, rest)

    def _after_head(self, raw: bytes, rest: bytes) -> bytes:
        end = raw.find(b"\r\n")
        found = _STATUS_LINE.fullmatch(raw, 0, end)
        if found is None:
            raise UpstreamBroken("what answers is not an HTTP server")
        status = int(found[2])
        headers = _headers(raw[end + 2 :])
        if status < 200:
            if status == 101:
                raise UpstreamBroken("Ollama wants to speak another protocol")
            return self._until_head(rest)  # something by the way, such as 100 Continue
        length = self._framing(status, headers)
        self.keep_alive = found[1] == b"1"
        if "Connection" in headers:
            tokens = ",".join(headers.getall("Connection")).lower()
            self.keep_alive = "close" not in tokens and (self.keep_alive or "keep-alive" in tokens)
        self.head = AnswerHead(status, (found[3] or b"").decode("latin-1"), headers, length)
        return self.feed(rest) if rest else b""

    def _framing(self, status: int, headers: CIMultiDict[str]) -> int | None:
        """Decide how the body ends (RFC 9112, 6.3)."""
        codings = headers.getall("Transfer-Encoding", None)
        length: int | None = None
        if codings is not None:
            if ",".join(codings).strip().lower() != "chunked":
                raise UpstreamBroken("Ollama's answer has a transfer coding that is not known here")
            headers.popall("Content-Length", None)
        elif "Content-Length" in headers:
            values = headers.getall("Content-Length")
            if len(values) > 1 or not _LENGTH.fullmatch(values[0]):  # or said twice, which is well if it is the same
                values = list({text.strip() for value in values for text in value.split(",")})
                if len(values) > 1 or not _LENGTH.fullmatch(values[0]):
                    raise UpstreamBroken("Ollama's answer has a Content-Length that is none")
            length = int(values[0])
        if self._bodiless or status in (204, 304):
            self._state = _DONE
        elif codings:
            self._state = _SIZE_LINE
        elif length is None:
            self._state = _ENDLESS
        else:
            self._left = length
            self._state = _PLAIN if length else _DONE
        return length

    def _plain(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left > 0:
            return data
        self._state = _DONE
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
                found = _SIZE.fullmatch(data, at, line)
                if found is None:
                    raise UpstreamBroken("a chunk of Ollama's answer has a size that is none")
                at = line + 2
                self._left = int(found[1], 16)
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
        self._state = _DONE


def _headers(raw: bytes) -> CIMultiDict[str]:
    """The headers of a head, given without its first line; each ends with CR LF."""
    text = raw.decode("utf-8", "surrogateescape")
    pairs = _FIELD.findall(text)
    if len(pairs) != text.count("\n"):
        raise UpstreamBroken("a header of Ollama's answer is none, or holds a line end")
    if " \r" in text or "\t\r" in text:
        pairs = [(name, value.rstrip(" \t")) for name, value in pairs]
    return CIMultiDict(pairs)


def request_head(method: str, target: str, host: str, headers: CIMultiDict[str]) -> bytes:
    """The bytes of a request's head.

    Args:
        method: any HTTP method.
        target: raw path and query.
        host: what the Host header says.
        headers: all others, Content-Length or Transfer-Encoding included.

    Raises:
        ValueError: a part of it holds a line end, and would so become two.
    """
    return _head([f"{method} {target} HTTP/1.1", f"Host: {host}"], headers)


def answer_head(status: int, reason: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of an answer's head.

    Args:
        status: three digits.
        reason: the reason phrase.
        headers: all of them, Content-Length or Transfer-Encoding included.

    Raises:
        ValueError: a part of it holds a line end, and would so become two.
    """
    return _head([f"HTTP/1.1 {status} {reason}"], headers)


def _head(first: list[str], headers: Mapping[str, str]) -> bytes:
    head = "\r\n".join([*first, *[f"{name}: {value}" for name, value in headers.items()], "\r\n"])
    ends = len(first) + len(headers) + 1
    if head.count("\n") != ends or head.count("\r") != ends or "\0" in head:
        raise ValueError("a head holds a line end where there may be none")
    return head.encode("utf-8", "surrogateescape")
