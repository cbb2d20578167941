"""All tokenizers of a gate: built when a model is first met, kept while there is memory, never built twice at a time.

Nothing here holds the event loop: a tokenizer is built, loaded and used in a process of its own (`remote.py`). Until it
is ready the gate decides by bounds.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import structlog

from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.remote import RemoteTokenizer, Worker, WorkerGone
from ollama_gate.errors import CountingError, GateError, UnknownVocabulary
from ollama_gate.tasks import spawn

MEMORY_LIMIT = 640 << 20
"""Bytes that all tokenizers together may hold: four or five of the largest kind."""
RETRY_UNKNOWN = 600.0
"""Seconds until a vocabulary that is not known to be exact is looked at again."""
RETRY_FAILED = 20.0
"""Seconds until a build that failed for another reason is tried again."""
MOST_KNOWN = 512
"""Vocabularies that are remembered; more only where all of them are in use or failed a short time ago."""

log = structlog.get_logger("ollama_gate")


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """Where the vocabulary of one model can be had."""

    digest: str
    """What identifies the vocabulary, e.g. the digest of the model's GGUF or manifest."""
    model: str
    """Ollama's name for the model."""
    blob: Path | None = None
    """The GGUF, where the gate can read Ollama's store."""
    show: Callable[[], Awaitable[bytes]] | None = None
    """Fetches the body of `POST /api/show {"verbose": true}`, as it comes."""
    file: Path | None = None
    """A published tokenizer to take instead (`published.py`)."""


def place(cache: Path, digest: str) -> Path:
    """The file of a model's built tokenizer, whatever characters its digest is made of."""
    return cache / f"{blake2b(digest.encode(), digest_size=20).hexdigest()}.tokenizer"


@dataclass(slots=True)
class _Entry:
    source: TokenizerSource
    tokenizer: RemoteTokenizer | None = None
    building: asyncio.Task[RemoteTokenizer] | None = None
    failure: CountingError | None = None
    retry_at: float = 0.0

    def in_use(self, now: float) -> bool:
        """Whether there is a tokenizer, or one comes, or a failure still counts."""
        return self.tokenizer is not None or self.building is not None or now < self.retry_at


@dataclass(slots=True)
class TokenizerStore:
    """The tokenizers of one gate. Used from one event loop."""

    cache: Path | None = None
    """Directory for built tokenizers; a temporary one is made, and removed at the end, where there is none."""
    memory_limit: int = MEMORY_LIMIT
    clock: Callable[[], float] = time.monotonic
    _entries: dict[str, _Entry] = field(default_factory=dict, init=False)
    _temporary: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Make sure there is a place for built tokenizers."""
        if self.cache is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="ollama-gate-tokenizers-")
            self.cache = Path(self._temporary.name)

    def ready(self, digest: str) -> RemoteTokenizer | None:
        """The tokenizer of a model if it can be used at once."""
        entry = self._entries.get(digest)
        if entry is None or entry.tokenizer is None or not entry.tokenizer.alive:
            return None
        entry.tokenizer.touch()
        return entry.tokenizer

    def prepare(self, source: TokenizerSource) -> None:
        """Start building a tokenizer that will be wanted, unless that was done or failed a short time ago."""
        entry = self._entry(source)
        if self.ready(source.digest) is None and entry.building is None and self.clock() >= entry.retry_at:
            entry.failure = None
            entry.building = spawn(self._build(entry), name=f"tokenizer {source.model}", quiet=True)

    async def get(self, source: TokenizerSource) -> RemoteTokenizer:
        """The tokenizer of a model; waits while it is built. Giving up waiting does not stop the building.

        Raises:
            UnknownVocabulary: This vocabulary is not known to be counted exactly.
            CountingError: It could not be built, now or a short time ago.
        """
        self.prepare(source)
        entry = self._entries[source.digest]
        if (tokenizer := self.ready(source.digest)) is not None:
            return tokenizer
        if entry.building is not None:
            return await asyncio.shield(entry.building)
        raise entry.failure or CountingError("the tokenizer is not ready")

    async def built(self) -> None:
        """Wait for all that are being built now, however it ends."""
        building = [entry.building for entry in self._entries.values() if entry.building is not None]
        await asyncio.gather(*map(asyncio.shield, building), return_exceptions=True)

    async def close(self) -> None:
        """End all processes."""
        building = [entry.building for entry in self._entries.values() if entry.building is not None]
        for task in building:
            task.cancel()
        await asyncio.gather(*building, return_exceptions=True)
        await asyncio.gather(*(self._unload(entry) for entry in self._entries.values()))
        self._entries.clear()
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.cleanup)

    def _entry(self, source: TokenizerSource) -> _Entry:
        entry = self._entries.get(source.digest)
        if entry is None:
            if len(self._entries) >= MOST_KNOWN:
                now = self.clock()
                self._entries = {digest: old for digest, old in self._entries.items() if old.in_use(now)}
            entry = self._entries[source.digest] = _Entry(source)
        entry.source = source
        return entry

    async def _build(self, entry: _Entry) -> RemoteTokenizer:
        started = self.clock()
        try:
            await self._unload(entry)
            tokenizer = await self._started(entry.source)
        except CountingError as error:
            unknown = isinstance(error, UnknownVocabulary)
            entry.failure = error
            entry.retry_at = self.clock() + (RETRY_UNKNOWN if unknown else RETRY_FAILED)
            log.warning("tokenizer not built", model=entry.source.model, why=str(error))
            raise
        finally:
            entry.building = None
        entry.tokenizer = tokenizer
        seconds = round(self.clock() - started, 2)
        log.info("tokenizer ready", model=entry.source.model, source=tokenizer.source, seconds=seconds)
        await self._make_room(entry)
        return tokenizer

    async def _started(self, source: TokenizerSource) -> RemoteTokenizer:
        starting = asyncio.get_running_loop().run_in_executor(None, Worker)
        try:
            worker = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The process is on its way whether or not anybody waits for it: it must be ended all the same.
            await _uninterrupted((await starting).end)
            raise
        asked: asyncio.Task[bytes] | None = None
        try:
            if source.show is not None and await asyncio.to_thread(self._only_told, source):
                # Ollama takes as long to answer as the process to start: let it begin.
                asked = spawn(_shown(source.show), name=f"vocabulary of {source.model}", quiet=True)
            outcome = await asyncio.to_thread(worker.tell, self._job(source))
            if outcome["state"] == "wanted":
                body = b"" if source.show is None else await (asked or _shown(source.show))
                outcome = await asyncio.to_thread(worker.tell, body)
            _check(outcome)
            facts = await asyncio.to_thread(TokenizerFacts.from_json, outcome["facts"])
        except BaseException:
            await _uninterrupted(worker.end)
            raise
        finally:
            if asked is not None:
                asked.cancel()
        return RemoteTokenizer(worker, facts, outcome["source"])

    def _only_told(self, source: TokenizerSource) -> bool:
        """Whether a vocabulary lies nowhere on this host, so that Ollama will have to be asked for it."""
        assert self.cache is not None  # noqa: S101 - __post_init__ saw to it
        on_disk = (place(self.cache, source.digest), source.blob, source.file)
        return not any(file is not None and file.is_file() for file in on_disk)

    def _job(self, source: TokenizerSource) -> bytes:
        assert self.cache is not None  # noqa: S101 - __post_init__ saw to it
        return orjson.dumps(
            {
                "model": source.model,
                "cache": str(place(self.cache, source.digest)),
                "blob": None if source.blob is None else str(source.blob),
                "file": None if source.file is None else str(source.file),
            }
        )

    async def _make_room(self, newest: _Entry) -> None:
        """Unload what was not used for longest until the rest fits, but never the newest and none that is counting."""
        others = (entry for entry in self._entries.values() if entry is not newest)
        loaded = [(entry, entry.tokenizer) for entry in others if entry.tokenizer is not None]
        total = sum(map(_resident, (newest, *(entry for entry, _ in loaded))))
        for entry, tokenizer in sorted(loaded, key=lambda pair: pair[1].last_use):
            if total <= self.memory_limit:
                return
            if not tokenizer.busy:
                total -= _resident(entry)
                await self._unload(entry)

    async def _unload(self, entry: _Entry) -> None:
        tokenizer, entry.tokenizer = entry.tokenizer, None
        if tokenizer is not None:
            tokenizer.alive = False
            await _uninterrupted(partial(tokenizer.worker.end, patience=2.0))


def _resident(entry: _Entry) -> int:
    """Bytes of memory that a tokenizer's process holds; 0 where there is none."""
    tokenizer = entry.tokenizer
    return tokenizer.worker.resident() if tokenizer is not None and tokenizer.alive else 0


def _check(outcome: Mapping[str, Any]) -> None:
    if outcome["state"] == "unknown":
        raise UnknownVocabulary(outcome["why"])
    if outcome["state"] != "ready":
        raise CountingError(outcome["why"])


async def _shown(show: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return await show()
    except GateError as error:
        raise WorkerGone(f"Ollama did not describe the model: {error}") from error


async def _uninterrupted(work: Callable[[], Any]) -> Any:
    """Run something in a thread to its end, even if the caller is cancelled meanwhile."""
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))
