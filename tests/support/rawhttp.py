"""HTTP/1.1 by hand over a socket: sends exactly the bytes it is told to, and keeps the framing of what comes back."""

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class RawAnswer:
    """An answer as it came over the wire."""

    status: int = 0
    reason: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    """One item an HTTP chunk, or the whole body as one; empty when there is none."""
    complete: bool = False
    """The body ended as its framing said it would."""

    def header(self, name: str) -> str | None:
        """The first header of that name, any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def body(self) -> bytes:
        """All chunks joined."""
        return b"".join(self.chunks)


def request_bytes(method: str, path: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    """A request, with a Content-Length unless the headers say how the body is framed."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    names = {name.lower() for name, _ in headers}
    if body and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


async def exchange(
    url: str,
    method: str,
    path: str,
    *,
    headers: list[tuple[str, str]] | None = None,
    body: bytes = b"",
) -> RawAnswer:
    """One request on a connection of its own."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        given = headers if headers is not None else [("Host", "127.0.0.1"), ("Content-Type", "application/json")]
        writer.write(request_bytes(method, path, given, body))
        return await read_answer(reader, head=method == "HEAD")
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader, *, head: bool = False) -> RawAnswer:
    """Read one answer; what is cut short is given with `complete` false."""
    answer = RawAnswer()
    try:
        start = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        _, status, answer.reason = start[0].split(" ", 2)
        answer.status = int(status)
        answer.headers = [(n, v.strip()) for n, _, v in (line.partition(":") for line in start[1:] if line)]
        if head or answer.status in {204, 304}:
            answer.complete = True
        elif (answer.header("Transfer-Encoding") or "").lower() == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                answer.chunks.append((await reader.readexactly(size + 2))[:-2])
            await reader.readuntil(b"\r\n")
            answer.complete = True
        elif length := int(answer.header("Content-Length") or 0):
            answer.chunks.append(await reader.readexactly(length))
            answer.complete = True
        else:
            answer.complete = True
    except (asyncio.IncompleteReadError, ConnectionResetError) as cut:
        if isinstance(cut, asyncio.IncompleteReadError) and cut.partial and answer.status:
            answer.chunks.append(cut.partial)
    return answer
