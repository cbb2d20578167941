"""The archive of a running gate: made ready when it can be, kept within its limits, and honest when it fails.

The database may be away when the gate starts, or go away and come back. Whatever is asked of it meanwhile fails at
once or in a few seconds with `ArchiveFailed`, and works again by itself: after a failure the tables are looked at anew.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from ollama_gate.archive import migrating
from ollama_gate.archive.database import WITHIN, Database
from ollama_gate.archive.query import LIMIT, Query
from ollama_gate.archive.records import Filter, Found, Message, Purged
from ollama_gate.archive.retention import purge_larger, purge_older, stored_bytes
from ollama_gate.archive.search import search
from ollama_gate.archive.store import Store
from ollama_gate.compaction.originals import ArchiveFailed, Checkpoint, Original
from ollama_gate.config import archive as config
from ollama_gate.observe.metrics import Metrics
from ollama_gate.tasks import spawn

T = TypeVar("T")

PURGE_EVERY: Final = 600.0
_LOOK_EVERY: Final = 15.0
"""Seconds between two attempts to make an archive ready that nobody asks for."""
_AGAIN_AFTER: Final = 2.0
"""Seconds in which one failed attempt stands for all."""
_CLOSE_WITHIN: Final = 2.0
_SEARCHES: Final = 2
"""Searches that run at one time."""
_SHARE: Final = 16
"""A purge comes early when a sixteenth of `max_size` was added since the last."""


class Keeper:
    """Keeps messages and checkpoints (`compaction.originals.Archive`, `.Checkpoints`), and looks messages up."""

    def __init__(
        self,
        section: config.Archive,
        *,
        metrics: Metrics,
        log: FilteringBoundLogger,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what is wanted; `start` does the rest.

        Args:
            section: where, how long and how much.
            metrics: where to count.
            log: where to write what an operator should know.
            now: seconds since 1970, for what is stored.
            clock: seconds of a steady clock, for waiting.
        """
        self.section = section
        self._metrics = metrics
        self._log = log
        self._now = now
        self._clock = clock
        self._database: Database | None = None
        self._ready: Store | None = None
        self._preparing: asyncio.Task[Store] | None = None
        self._maintaining: asyncio.Task[None] | None = None
        self._problem = ""
        self._unready: ArchiveFailed | None = None
        self._unready_at = 0.0
        self._due = asyncio.Event()
        self._closing = asyncio.Event()
        self.closed = False
        self._searching = asyncio.Semaphore(_SEARCHES)
        self._added = 0

    @property
    def problem(self) -> str:
        """What is wrong with it; empty when nothing is."""
        return self._problem

    def start(self) -> None:
        """Begin to make it ready, and to purge on a timer. A second call does nothing."""
        if self._maintaining is None:
            self._maintaining = spawn(self._maintain(), name="archive")

    async def close(self) -> None:
        """End what runs, after a short time in which it may end by itself, and close the database."""
        self._closing.set()
        self._due.set()
        running = {task for task in (self._maintaining, self._preparing) if task is not None}
        if running:
            _, late = await asyncio.wait(running, timeout=_CLOSE_WITHIN)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._database is not None:
            await self._database.close()
        self.closed = True

    async def keep(self, conversation: str, model: str, originals: Sequence[Original]) -> None:
        """Keep messages of a conversation. When it returns, they are on the disk; those that were there cost little.

        Raises:
            ArchiveFailed: none of them are kept, or it is not known whether they are.
        """
        try:
            tally = await self._soon(lambda store: store.keep(conversation, model, originals))
        except ArchiveFailed as failure:
            raise self._failed("keep", failure) from failure.__cause__
        self._works()
        self._metrics.archive_messages.labels("new").inc(tally.new)
        self._metrics.archive_messages.labels("known").inc(tally.known)
        self._grown(tally.stored)

    async def latest_checkpoint(self, conversation: str, model: str) -> Checkpoint | None:
        """The last checkpoint of a conversation with a model; None where there is none, or it cannot be read."""
        try:
            return await self._soon(lambda store: store.latest_checkpoint(conversation, model))
        except ArchiveFailed as failure:
            self._failed("checkpoint", failure)
        except ValueError as odd:
            self._log.warning("a stored checkpoint cannot be used", problem=str(odd))
        return None

    async def keep_checkpoint(self, conversation: str, model: str, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint in place of the last one. Where that fails, a later turn compacts once more."""
        try:
            self._grown(await self._soon(lambda store: store.keep_checkpoint(conversation, model, checkpoint)))
        except ArchiveFailed as failure:
            self._failed("checkpoint", failure)

    async def find(self, prefix: str) -> list[Message]:
        """The messages whose hash begins with a prefix; two at most, for two already mean that it is too short.

        Args:
            prefix: lower-case hex digits, 64 at most.

        Raises:
            ArchiveFailed: it cannot be looked up.
        """
        try:
            return await self._soon(lambda store: store.find(prefix))
        except ArchiveFailed as failure:
            raise self._failed("read", failure) from failure.__cause__

    async def search(self, query: Query, only: Filter, *, limit: int = LIMIT, after: str | None = None) -> Found:
        """Messages in which all terms of a query are, the newest first (`search.search`).

        Raises:
            BadQuery: `after` is no place to go on from.
            ArchiveFailed: it cannot be searched.
        """
        try:
            store = await self._prepared()
            async with self._searching:
                return await search(store.database, query, only, limit=limit, after=after)
        except ArchiveFailed as failure:
            raise self._failed("read", failure) from failure.__cause__

    async def purge(self) -> Purged:
        """Take away what is older or more than the configuration allows.

        Raises:
            ArchiveFailed: not everything was taken away.
        """
        store = await self._prepared()
        database, section = store.database, self.section
        purged = Purged()
        if section.keep_for:
            purged += await purge_older(database, self._now() - section.keep_for)
        if section.max_size:
            purged += await purge_larger(database, section.max_size)
        if purged.conversations:
            await database.shrink()
            self._log.info("archive purged", conversations=purged.conversations, messages=purged.messages)
            self._metrics.archive_purged.labels().inc(purged.messages)
        self._metrics.archive_stored_bytes.set(await stored_bytes(database))
        self._works()
        return purged

    async def _maintain(self) -> None:
        while not self._closing.is_set():
            wait = PURGE_EVERY
            self._due.clear()
            self._added = 0
            try:
                await self.purge()
            except ArchiveFailed as failure:
                self._failed("purge", failure)
                wait = _LOOK_EVERY
            if self._closing.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._due.wait()

    def _grown(self, stored: int) -> None:
        self._added += stored
        if self.section.max_size and self._added > self.section.max_size // _SHARE:
            self._due.set()

    async def _soon(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Do something with the store, and end within a few seconds whatever becomes of it."""
        try:
            async with asyncio.timeout(WITHIN):
                return await work(await self._prepared())
        except TimeoutError as late:
            raise ArchiveFailed("the archive did not answer in time") from late

    async def _prepared(self) -> Store:
        """The store, as soon as its tables are there.

        Raises:
            ArchiveFailed: they are not.
        """
        if self._ready is not None:
            return self._ready
        if self._preparing is None or self._preparing.done():
            if self._unready is not None and self._clock() - self._unready_at < _AGAIN_AFTER:
                raise ArchiveFailed(str(self._unready))
            self._preparing = spawn(self._prepare(), name="make the archive ready", quiet=True)
        # A migration may take longer than whoever waits for it here.
        return await asyncio.shield(self._preparing)

    async def _prepare(self) -> Store:
        try:
            database = self._database
            if database is None:
                database = self._database = Database(self.section.place())
            if await migrating.ready(database, migrates=self.section.migrate):
                self._log.info("archive tables made", archive=database.shown)
        except ArchiveFailed as failure:
            self._unready, self._unready_at = failure, self._clock()
            raise
        self._ready, self._unready = Store(database, self._now), None
        return self._ready

    def _works(self) -> None:
        if self._problem:
            self._log.info("archive works again", before=self._problem)
            self._problem = ""

    def _failed(self, what: str, failure: ArchiveFailed) -> ArchiveFailed:
        """Count and tell a failure, once for each that is new, and look at the tables anew before the next use."""
        self._ready = None
        self._metrics.archive_failures.labels(what).inc()
        if str(failure) != self._problem:
            self._problem = str(failure)
            self._log.warning("archive failed", what=what, problem=self._problem)
        return failure
