"""Faults on demand: from the command line, from `POST /rehearsal/faults`, or for one request.

A fault is written `kind` or `kind:key=value,key=value`, for example `cut:after=3,path=/api/chat`.
"""

import asyncio
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from ollama_gate.rehearsal.connection import Headers, Reply

KINDS = {
    "busy": "503 as when the queue is full",
    "status": "an error answer with `status` and `text`",
    "slow": "`seconds` pass before the first byte",
    "hang": "nothing more comes: at=start (no head), at=stream (after `after` chunks), at=end (no last chunk)",
    "dies": "the runner dies after `after` tokens: an error line, or a 500 when nothing was sent",
    "no_done": "the stream ends cleanly after `after` tokens, without done",
    "cut": "the connection is reset after `after` chunks",
    "close": "the connection is closed after `after` chunks, without a last chunk",
    "dribble": "every byte in a chunk of its own",
    "coalesce": "`after` lines in one chunk",
    "long_line": "one piece of text of `bytes` bytes after `after` tokens",
    "broken_line": "a line that is not JSON after `after` chunks",
    "wrong_length": "Content-Length is `bytes` more than the body; the connection closes after it",
    "garbage": "bytes that are not HTTP",
    "nan": "an embedding is not finite",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and when it strikes."""

    kind: str
    path: str = ""
    """Only requests whose path begins so."""
    model: str = ""
    """Only this model, as the request spells it (faults of inference only)."""
    times: int = 0
    """Strike so often, then never again; 0 is every time."""
    after: int = 0
    at: str = "start"
    seconds: float = 0.0
    bytes: int = 8_000_001
    status: int = 500
    text: str = "rehearsed failure"

    def __post_init__(self) -> None:
        """Refuse a kind that does not exist."""
        if self.kind not in KINDS:
            raise ValueError(f"no fault {self.kind!r}; there are {', '.join(KINDS)}")


def parse(text: str) -> Fault:
    """Read `kind:key=value,...`.

    Raises:
        ValueError: for an unknown kind, key or value; the message says which.
    """
    kind, _, rest = text.partition(":")
    types = get_type_hints(Fault)
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in types or key == "kind":
            raise ValueError(f"no setting {key!r} of a fault; there are {', '.join(f.name for f in fields(Fault))}")
        values[key] = types[key](value)
    return Fault(kind.strip(), **values)


class Faults:
    """The faults in force."""

    def __init__(self, standing: tuple[Fault, ...] = ()) -> None:
        """Begin with `standing`; `reset` comes back to them."""
        self._standing = standing
        self.active: list[Fault] = list(standing)

    def reset(self) -> None:
        """Only what was asked for at the start."""
        self.active = list(self._standing)

    def strike(self, path: str) -> tuple[Fault, ...]:
        """The faults that meet a request for `path`, each used up by one."""
        struck = tuple(fault for fault in self.active if path.startswith(fault.path))
        for fault in struck:
            if fault.times == 1:
                self.active.remove(fault)
            elif fault.times > 1:
                self.active[self.active.index(fault)] = replace(fault, times=fault.times - 1)
        return struck


class FaultyReply:
    """A reply that breaks where its faults say; it is used in place of the reply it wraps."""

    def __init__(self, reply: Reply, faults: tuple[Fault, ...]) -> None:
        """Answer through `reply`."""
        self._reply = reply
        self._faults = {fault.kind: fault for fault in faults}
        self._lines: list[bytes] = []
        self._chunks = 0

    @property
    def status(self) -> int:
        """Sent status; 0 before."""
        return self._reply.status

    @property
    def ended(self) -> bool:
        """Nothing more will be sent."""
        return self._reply.ended

    @property
    def extra(self) -> Headers:
        """Headers that every answer to this request carries."""
        return self._reply.extra

    @extra.setter
    def extra(self, headers: Headers) -> None:
        self._reply.extra = headers

    def raw(self, data: bytes) -> None:
        """Send bytes that need not be HTTP."""
        self._reply.raw(data)

    async def send(self, status: int, headers: Headers, body: bytes = b"", *, flushed: bool = False) -> None:
        """Send a whole answer."""
        if await self._before():
            return
        if wrong := self._faults.get("wrong_length"):
            await self._reply.send(status, headers, body, claimed=len(body) + wrong.bytes)
        elif self._faults.keys() & {"cut", "close", "dribble", "hang"}:
            await self._reply.start(status, headers)
            await self.write(body)
            await self.end()
        else:
            await self._reply.send(status, headers, body, flushed=flushed)

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of a stream."""
        if not await self._before():
            await self._reply.start(status, headers)

    async def write(self, chunk: bytes) -> None:
        """Send one chunk, or what a fault makes of it."""
        if self._reply.ended:
            return
        for kind in ("cut", "close"):
            if (fault := self._faults.get(kind)) and self._chunks >= fault.after:
                self._reply.break_off(reset=kind == "cut")
                return
        if (fault := self._faults.get("hang")) and fault.at == "stream" and self._chunks >= fault.after:
            await _wait(fault)
        if (fault := self._faults.get("broken_line")) and self._chunks == fault.after:
            chunk = chunk.replace(b"{", b"{]", 1)
        self._chunks += 1
        if fault := self._faults.get("coalesce"):
            self._lines.append(chunk)
            if len(self._lines) < max(fault.after, 2):
                return
            chunk = b"".join(self._lines)
            self._lines.clear()
        if "dribble" in self._faults:
            for at in range(len(chunk)):
                await self._reply.write(chunk[at : at + 1])
                await asyncio.sleep(0)
            return
        await self._reply.write(chunk)

    async def end(self) -> None:
        """Send the last chunk."""
        if self._reply.ended:
            return
        if self._lines:
            await self._reply.write(b"".join(self._lines))
        for kind in ("cut", "close"):
            if kind in self._faults:
                self._reply.break_off(reset=kind == "cut")
                return
        if (fault := self._faults.get("hang")) and fault.at == "end":
            await _wait(fault)
        await self._reply.end()

    async def _before(self) -> bool:
        """What happens before the first byte; true when that was all."""
        if fault := self._faults.get("slow"):
            await asyncio.sleep(fault.seconds)
        if (fault := self._faults.get("hang")) and fault.at == "start":
            await _wait(fault)
        if "garbage" in self._faults:
            self._reply.raw(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            self._reply.break_off(reset=False)
        return self._reply.ended


async def _wait(fault: Fault) -> None:
    """Until the client leaves, or for the fault's seconds."""
    if fault.seconds:
        await asyncio.sleep(fault.seconds)
    else:
        await asyncio.Event().wait()
