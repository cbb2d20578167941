"""Reading HTTP/1.1 answers with as little work as can be: the load generator must cost less than what it measures."""

from typing import Final

_END: Final = b"\r\n\r\n"


class AnswerReader:
    """Takes the bytes of one answer after another, and gives the bodies with their chunk framing undone."""

    __slots__ = ("_chunked", "_held", "_in_body", "_left", "done", "status")

    def __init__(self) -> None:
        """Start before an answer."""
        self._held = b""
        self._in_body = False
        self._chunked = False
        self._left = 0
        """Bytes of the body, or of the chunk and its line end, that are still to come."""
        self.status = 0
        self.done = False
        """Whether the answer is whole; the next one begins with the next bytes."""

    def feed(self, data: bytes) -> bytes:
        """Take what one read brought; returns the body bytes in it.

        Raises:
            ValueError: this is not an answer that a proxy may send to a plain request.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        if not self._in_body:
            self.done = False
            end = data.find(_END)
            if end < 0:
                self._held = data
                return b""
            self._head(data[:end].lower())
            data = data[end + 4 :]
        return self._chunks(data) if self._chunked else self._plain(data)

    def _head(self, head: bytes) -> None:
        if not head.startswith(b"http/1."):
            raise ValueError(f"not an HTTP answer: {head[:40]!r}")
        self.status = int(head[9:12])
        self._chunked = b"\r\ntransfer-encoding: chunked" in head
        self._in_body = True
        self._left = 0
        if not self._chunked:
            at = head.find(b"\r\ncontent-length:")
            if at < 0:
                raise ValueError(f"an answer of unknown length: {head!r}")
            self._left = int(head[at + 17 :].split(b"\r\n", 1)[0])

    def _plain(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left <= 0:
            self._over()
        return data

    def _chunks(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            if self._left:
                # The chunk's own line end counts as its last two bytes and is not handed on.
                taken = data[at : at + self._left]
                at += len(taken)
                self._left -= len(taken)
                parts.append(taken if self._left >= 2 else taken[: self._left - 2])
                continue
            line = data.find(b"\r\n", at)
            if line < 0:
                self._held = data[at:]
                break
            size = int(data[at:line], 16)
            at = line + 2
            if size:
                self._left = size + 2
                continue
            if len(data) < at + 2:  # the end mark is cut in two
                self._held = b"0\r\n" + data[at:]
                break
            self._over()
            at += 2
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _over(self) -> None:
        self.done = True
        self._in_body = False


def post(path: str, body: bytes) -> bytes:
    """A whole POST request with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str) -> bytes:
    """A whole GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n".encode()
