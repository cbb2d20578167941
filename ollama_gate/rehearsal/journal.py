"""What the rehearsal received and did, for tests to assert and people to read."""

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from ollama_gate.rehearsal.connection import Headers


@dataclass(slots=True)
class Entry:
    """One request."""

    number: int
    method: str
    target: str
    """Path and query as received."""
    headers: Headers
    started: float
    """`time.monotonic()` when the head was there."""
    body: bytes = b""
    size: int = 0
    """Bytes of the body, also where it was too long to be kept."""
    status: int = 0
    """Status sent; 0 while there is none."""
    ended: float | None = None
    client_left: bool = False
    """The client went away before the answer was complete."""
    prompt_tokens: int | None = None
    """Inference: tokens that reached the model."""
    generated: int = 0
    """Inference: tokens generated so far, sent or not."""
    notes: list[str] = field(default_factory=list)
    """`load`, `reload`, `dropped 3 messages`, `cut 594 to 131`, `shift` … in the order they happened."""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The first header of that name, any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The body, decoded."""
        return orjson.loads(self.body)

    def as_json(self) -> dict[str, Any]:
        """The entry for `GET /rehearsal/journal`."""
        try:
            body: dict[str, Any] = {"body": self.body.decode()}
        except UnicodeDecodeError:
            body = {"body_base64": base64.b64encode(self.body).decode()}
        return {
            "number": self.number,
            "method": self.method,
            "target": self.target,
            "headers": [list(pair) for pair in self.headers],
            **body,
            "size": self.size,
            "status": self.status,
            "seconds": None if self.ended is None else round(self.ended - self.started, 6),
            "client_left": self.client_left,
            "prompt_tokens": self.prompt_tokens,
            "generated": self.generated,
            "notes": self.notes,
        }


class Journal:
    """The latest requests, oldest first. Control routes are not in it."""

    def __init__(self, *, keep_body: int, keep_entries: int = 10_000, keep_bytes: int = 1 << 27) -> None:
        """Keep at most `keep_body` bytes of each body, and `keep_bytes` of all; the oldest bodies go first."""
        self.keep_body = keep_body
        self._room = keep_bytes
        self._bodies: deque[Entry] = deque()
        self._entries: deque[Entry] = deque(maxlen=keep_entries)
        self._count = 0
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[Entry]:
        """Oldest first."""
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        """How many entries are kept."""
        return len(self._entries)

    def __getitem__(self, at: int) -> Entry:
        """By position; -1 is the newest."""
        return self._entries[at]

    def open(self, method: str, target: str, headers: Headers) -> Entry:
        """Begin an entry."""
        self._count += 1
        entry = Entry(self._count, method, target, headers, time.monotonic())
        self._entries.append(entry)
        self.changed()
        return entry

    def keep(self, entry: Entry, body: bytes) -> None:
        """Note the body of a request."""
        entry.size = len(body)
        entry.body = body[: self.keep_body]
        self._bodies.append(entry)
        self._room -= len(entry.body)
        while self._room < 0:
            oldest = self._bodies.popleft()
            self._room += len(oldest.body)
            oldest.body = b""
        self.changed()

    def to(self, path: str) -> list[Entry]:
        """The entries for one path."""
        return [entry for entry in self._entries if entry.path == path]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._room += sum(len(entry.body) for entry in self._bodies)
        self._bodies.clear()
        self.changed()

    def changed(self) -> None:
        """Wake those who wait in `until`."""
        self._changed.set()

    async def until(self, condition: Callable[["Journal"], object], *, within: float = 5.0) -> None:
        """Wait until `condition(journal)` is true.

        Raises:
            TimeoutError: when that takes longer than `within` seconds.
        """
        async with asyncio.timeout(within):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()
