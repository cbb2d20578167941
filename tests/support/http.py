"""A plain HTTP/1.1 client on a socket, for tests that look at bytes, framing and broken connections."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(slots=True)
class Reply:
    """One answer as it stood on the wire."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    chunks: list[bytes] = field(default_factory=list)
    """With chunked coding one entry an HTTP chunk, else the whole body as one."""
    complete: bool = False
    """Whether the body came to its proper end."""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The body as NDJSON."""
        return [json.loads(line) for line in self.body.splitlines() if line]

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def gate(self, name: str) -> str | None:
        """One of the gate's own headers."""
        return self.header(f"x-ollama-gate-{name}")


class Client:
    """One connection. `send` writes a request, `head` and `next_chunk` read its answer piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        reader, writer = await asyncio.open_connection(*address, limit=2**26)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close as a client does that is done (FIN)."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return

    def reset(self) -> None:
        """Close as a client does that was killed (RST)."""
        self.writer.transport.abort()

    async def send(self, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """Write one request; dicts become JSON, bytes and str go as they are."""
        sent = {"Host": "localhost", **(headers or {})}
        raw = b""
        if body is not None:
            raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
            if "Transfer-Encoding" not in sent:
                sent.setdefault("Content-Length", str(len(raw)))
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self.writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + raw)
        await self.writer.drain()

    async def head(self) -> Reply:
        """Read a status line and headers; 100 Continue is passed over."""
        while True:
            line = (await self.reader.readuntil(b"\r\n")).decode().rstrip("\r\n")
            _, status, *reason = line.split(" ", 2)
            headers: list[tuple[str, str]] = []
            while (row := (await self.reader.readuntil(b"\r\n")).decode("latin-1").rstrip("\r\n")) != "":
                name, _, value = row.partition(":")
                headers.append((name, value.strip()))
            if status != "100":
                return Reply(int(status), " ".join(reason), headers)

    async def next_chunk(self, reply: Reply) -> bytes | None:
        """Read one chunk of a chunked body; None at its proper end."""
        size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        if size == 0:
            reply.complete = True
            return None
        reply.chunks.append(data)
        return data

    async def rest(self, reply: Reply, *, method: str = "GET") -> Reply:
        """Read the body to its end, proper or not."""
        length = reply.header("Content-Length")
        try:
            if method == "HEAD" or reply.status in (204, 304):
                reply.complete = True
            elif reply.header("Transfer-Encoding") == "chunked":
                while await self.next_chunk(reply) is not None:
                    pass
            elif length is not None:
                reply.chunks.append(await self.reader.readexactly(int(length)))
                reply.complete = True
            else:
                reply.chunks.append(await self.reader.read())
                reply.complete = True
        except (asyncio.IncompleteReadError, ConnectionError) as broken:
            partial = getattr(broken, "partial", b"")
            if partial:
                reply.chunks.append(partial)
        return reply


async def ask(
    address: tuple[str, int],
    method: str,
    target: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request on a connection of its own, and its whole answer."""
    async with await Client.connect(address) as client:
        await client.send(method, target, body, headers)
        return await client.rest(await client.head(), method=method)
