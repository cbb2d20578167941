"""Heads that were read before: a client sends the same one over and over on its connection, but for Content-Length.

What the parser made of a head holds for every other one of the same bytes, and nothing of it is parsed again: that was
the dearest step of a small request. Bytes are compared as they came, and only where a request is known to begin: nobody
can make a request out of them that the parser would not see.
"""

from typing import Final

from aiohttp import HttpVersion11, StreamReader, hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from ollama_gate.values import frozen

_CONTENT_LENGTH: Final = b"content-length"
_END: Final = b"\r\n\r\n"
_MOST_DIGITS: Final = 9
"""Of a length that is compared; a body that comes in one read with its head has fewer bytes than that."""
_MOST_UNLIKE: Final = 4
_LOST: Final = -1


@frozen
class _Known:
    """A head as it was read, split where the length of the body stands."""

    message: RawRequestMessage
    before: bytes
    """Up to the digits of Content-Length."""
    digits: bytes
    behind: bytes
    """From there to the end of the head."""


class Heads:
    """The heads of the requests of one connection."""

    __slots__ = ("_known", "_left", "_unlike")

    def __init__(self) -> None:
        """Begin with a connection: its first byte is a request's."""
        self._known: _Known | None = None
        self._left = 0
        """Bytes of a body that are still to come; `_LOST` where nobody knows any more where the next request begins."""
        self._unlike = 0
        """Heads in a row that were not the one before; after `_MOST_UNLIKE` they are not looked at any more."""

    def again(self, data: bytes) -> tuple[RawRequestMessage, bytes] | None:
        """What the parser would make of these bytes, and the body, where they are one whole request of a known head.

        Args:
            data: what a read brought. Where this gives None the parser has to take it, and `parsed` to be told.
        """
        known = self._known
        if known is None or self._left or not data.startswith(known.before):
            return None
        begin = len(known.before)
        end = data.find(b"\r", begin, begin + _MOST_DIGITS + 1)
        digits = data[begin:end]
        if not digits.isdigit() or not data.startswith(known.behind, end):
            return None
        at = end + len(known.behind)
        if len(data) - at != int(digits):
            return None
        self._unlike = 0
        return known.message if digits == known.digits else _as_long(known.message, digits), data[at:]

    def parsed(self, data: bytes, message: RawRequestMessage | None) -> None:
        """Learn from what the parser has taken.

        Args:
            data: what a read brought.
            message: the one request that began in it; None where none did, or more than one, or one that is none.
        """
        if self._left == _LOST:
            return
        if self._left:
            self._left = self._left - len(data) if message is None and len(data) <= self._left else _LOST
            return
        end = data.find(_END)
        if message is None or end < 0 or data.count(b"\r\n", 0, end) != len(message.raw_headers):
            self._left = _LOST  # the rest of a head, or lines that are none
            return
        if message.chunked or message.upgrade or message.should_close:
            self._left = _LOST
            return
        name, digits = _length_of(message)
        self._left = max(end + len(_END) + int(digits) - len(data), _LOST)
        if name and not self._left and self._unlike < _MOST_UNLIKE:
            self._unlike += 1
            self._known = _split(data[: end + len(_END)], message, b"\r\n%b: " % name, digits)


def _length_of(message: RawRequestMessage) -> tuple[bytes, bytes]:
    """The name and the value of the header of the body's length; the parser takes no head with two."""
    for name, value in message.raw_headers:
        if name.lower() == _CONTENT_LENGTH:
            return name, value
    return b"", b"0"


def _split(head: bytes, message: RawRequestMessage, name: bytes, digits: bytes) -> _Known | None:
    """What is to be known of a head; None for one that asks for an answer of its own, or is written in another way."""
    before, found, behind = head.partition(b"%b%b\r\n" % (name, digits))
    if not found or hdrs.EXPECT in message.headers or message.version != HttpVersion11:
        return None
    return _Known(message, before + name, digits, b"\r\n" + behind)


def _as_long(message: RawRequestMessage, digits: bytes) -> RawRequestMessage:
    """The same head with another Content-Length."""
    headers = CIMultiDict(message.headers)
    headers[hdrs.CONTENT_LENGTH] = digits.decode()
    raw = tuple((name, digits if name.lower() == _CONTENT_LENGTH else value) for name, value in message.raw_headers)
    changed: RawRequestMessage = message._replace(headers=CIMultiDictProxy(headers), raw_headers=raw)
    return changed


class WholeBody(StreamReader):
    """A body all of which is there."""

    __slots__ = ()

    def __init__(self, protocol: BaseProtocol, data: bytes) -> None:
        """Hold a body; nothing more can come."""
        super().__init__(protocol, len(data), loop=protocol._loop)  # noqa: SLF001 - as the parser's own readers get it
        self._buffer.append(data)
        self._size = self.total_bytes = len(data)
        self._eof = True

    def read_nowait(self, n: int = -1) -> bytes:
        """All of it at once, in one step where aiohttp's takes five."""
        if n != -1 or self._exception is not None or self._buffer_offset or len(self._buffer) != 1:
            return super().read_nowait(n)
        self._size = 0
        self._cursor = self.total_bytes
        return self._buffer.popleft()
