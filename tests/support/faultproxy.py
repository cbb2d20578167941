"""A loopback server between gate and Ollama that breaks exchanges at a chosen byte.

It hands every byte on until a fault is armed for the next request of a path; the fault then plays that one answer.
`refuse` and `listen` take its port away and give it back.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class Exchange:
    """One request of the gate's that a fault answers."""

    path: str
    head: bytes
    from_gate: asyncio.StreamReader
    to_gate: asyncio.StreamWriter
    from_ollama: asyncio.StreamReader
    to_ollama: asyncio.StreamWriter

    async def ask(self) -> None:
        """Hand the request on to Ollama."""
        self.to_ollama.write(self.head)
        self.to_ollama.write(await self.from_gate.readexactly(_length(self.head)))
        await self.to_ollama.drain()

    async def answer_head(self) -> bytes:
        """The head of Ollama's answer."""
        return await self.from_ollama.readuntil(_HEAD_END)

    async def answer_body(self, head: bytes) -> bytes:
        """The body of Ollama's answer, its framing undone."""
        if b"chunked" not in head.lower():
            return await self.from_ollama.readexactly(_length(head))
        body = b""
        while size := int(await self.from_ollama.readuntil(b"\r\n"), 16):
            body += (await self.from_ollama.readexactly(size + 2))[:size]
        await self.from_ollama.readuntil(b"\r\n")
        return body

    async def say(self, data: bytes) -> None:
        """Send the gate some bytes."""
        self.to_gate.write(data)
        await self.to_gate.drain()

    def reset(self) -> None:
        """End the gate's connection as a killed process does (RST)."""
        sock: socket.socket = self.to_gate.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.to_gate.transport.abort()

    async def gate_has_left(self) -> None:
        """Wait until the gate closes its side."""
        with suppress(ConnectionError):
            while await self.from_gate.read(65536):
                pass


Fault = Callable[[Exchange], Awaitable[None]]
"""Plays one answer. When it returns, the connection goes on as before, unless it was ended."""


@dataclass(slots=True)
class FaultProxy:
    """The server. `arm` has a fault strike the next request of a path."""

    ollama: tuple[str, int]
    struck: int = 0
    """Requests that met a fault."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gate has hung up on a request that met a fault, or its answer is over."""
    deaf: bool = False
    """Connections are taken, and nothing is ever read from them."""
    _armed: dict[str, Fault] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def arm(self, path: str, fault: Fault) -> None:
        """Have the next request of this path meet a fault."""
        self.left.clear()
        self._armed[path] = fault

    async def listen(self) -> None:
        """Take connections, on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=2**26)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Take none, and reset those that there are, as when Ollama is killed."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            await self.refuse()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _carry(self, from_gate: asyncio.StreamReader, to_gate: asyncio.StreamWriter) -> None:
        if self.deaf:
            to_gate.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.Event().wait()
        from_ollama, to_ollama = await asyncio.open_connection(*self.ollama, limit=2**26)
        try:
            while True:
                head = await from_gate.readuntil(_HEAD_END)
                path = head.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
                exchange = Exchange(path, head, from_gate, to_gate, from_ollama, to_ollama)
                fault = self._armed.pop(path, None)
                if fault is None:
                    await hand_on(exchange)
                else:
                    self.struck += 1
                    await fault(exchange)
                    self.left.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.left.set()
            to_ollama.transport.abort()


def _length(head: bytes) -> int:
    """The Content-Length of a head; 0 where there is none."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def hand_on(exchange: Exchange) -> None:
    """No fault: every byte in both directions, as it comes."""
    await exchange.ask()
    head = await exchange.answer_head()
    await exchange.say(head)
    if b"chunked" not in head.lower():
        await exchange.say(await exchange.from_ollama.readexactly(_length(head)))
        return
    size = -1
    while size:
        line = await exchange.from_ollama.readuntil(b"\r\n")
        size = int(line, 16)
        await exchange.say(line + await exchange.from_ollama.readexactly(size + 2))


async def _until(exchange: Exchange, head: int | None, body: int) -> None:
    """Hand the answer on up to a byte: so many of its head, or all of the head and so many of what follows."""
    await exchange.ask()
    raw = await exchange.answer_head()
    if head is not None:
        await exchange.say(raw[:head])
        return
    await exchange.say(raw + (await exchange.from_ollama.readexactly(body) if body else b""))


def unread(count: int) -> Fault:
    """Read so many bytes of the request's body and then nothing more, and answer nothing."""

    async def play(exchange: Exchange) -> None:
        await exchange.from_gate.readexactly(count)
        exchange.to_gate.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    return play


def hang(*, head: int | None = None, body: int = 0) -> Fault:
    """Say no more after so many bytes, and keep the connection."""

    async def play(exchange: Exchange) -> None:
        await _until(exchange, head, body)
        await exchange.gate_has_left()

    return play


def reset(*, head: int | None = None, body: int = 0) -> Fault:
    """Reset the connection after so many bytes."""

    async def play(exchange: Exchange) -> None:
        await _until(exchange, head, body)
        await asyncio.sleep(0.02)  # what was said is to arrive: a reset may overtake it
        exchange.reset()

    return play


def half_close(*, head: int | None = None, body: int = 0) -> Fault:
    """End the sending side (FIN) after so many bytes, and go on listening."""

    async def play(exchange: Exchange) -> None:
        await _until(exchange, head, body)
        exchange.to_gate.write_eof()
        await exchange.gate_has_left()

    return play


def says(data: bytes, *, close: bool = True) -> Fault:
    """Answer with these bytes, whatever Ollama would say."""

    async def play(exchange: Exchange) -> None:
        await exchange.from_gate.readexactly(_length(exchange.head))
        await exchange.say(data)
        if close:
            exchange.to_gate.write_eof()
            await exchange.gate_has_left()

    return play


def remade(remake: Callable[[bytes, bytes], bytes], *, close: bool = False) -> Fault:
    """Answer with what is made of the head and the body of Ollama's own answer."""

    async def play(exchange: Exchange) -> None:
        await exchange.ask()
        head = await exchange.answer_head()
        await exchange.say(remake(head, await exchange.answer_body(head)))
        if close:
            exchange.to_gate.write_eof()
            await exchange.gate_has_left()

    return play


def with_length(more: int) -> Fault:
    """Say a length that is so many bytes more than the body has; less where it is negative."""

    def remake(head: bytes, body: bytes) -> bytes:
        lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(_FRAMING)]
        return b"\r\n".join([*lines, b"Content-Length: %d" % (len(body) + more), b"", body])

    return remade(remake, close=more > 0)


def in_chunks(size: int) -> Fault:
    """Frame the body anew, in chunks of so many bytes."""

    def remake(head: bytes, body: bytes) -> bytes:
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        return chunked(head) + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    return remade(remake)


_FRAMING = (b"content-length:", b"transfer-encoding:")


def chunked(head: bytes) -> bytes:
    """A head that says that its body comes in chunks."""
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(_FRAMING)]
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""])
