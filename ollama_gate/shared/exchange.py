"""What a running gate tells the others and hears of them, once a second, in no request's way.

While the database is away, the keys that were read last stay in force, quotas count what is booked here and what was
heard before, and bookings are kept until they can be told. A gate that has never read the keys lets nobody in.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from sqlalchemy import Connection
from structlog.typing import FilteringBoundLogger

from ollama_gate import __version__
from ollama_gate.access.bookings import Bookings, newer
from ollama_gate.access.keys import KeyRing
from ollama_gate.access.quotas import Quotas
from ollama_gate.archive import migrating
from ollama_gate.archive.database import Collided, Database
from ollama_gate.compaction.originals import ArchiveFailed
from ollama_gate.config import archive
from ollama_gate.counting.learned import Learned
from ollama_gate.errors import ConfigError
from ollama_gate.observe.metrics import Metrics
from ollama_gate.shared import keyring, learned, usage
from ollama_gate.tasks import spawn

EVERY: Final = 1.0
"""Seconds between two exchanges of keys and usage."""
LEARNED_EVERY: Final = 30.0
FORGET_EVERY: Final = 60.0
_AT_ONCE: Final = 100
"""Bookings that are heard before others get their turn on the event loop."""
_NAMED: Final = 5
"""Rows that are no keys, of which a message says what is wrong."""
_START_WITHIN: Final = 5.0
"""Seconds that a start waits for the first exchange."""
_CLOSE_WITHIN: Final = 2.0


class Ring(Protocol):
    """Who lets clients in."""

    def take_keys(self, ring: KeyRing) -> None:
        """These are the keys now."""


class Learner(Protocol):
    """Who learns of models (`counting.counter.Counter`)."""

    def learned(self) -> Mapping[str, Learned]:
        """What is known here, by model."""

    def hear(self, theirs: Mapping[str, Learned]) -> None:
        """That is what is known elsewhere."""


@dataclass(frozen=True, slots=True)
class _Read:
    versions: dict[str, int]
    usage: list[usage.Stored]
    stamp: keyring.Stamp
    keys: Sequence[keyring.Row] | None
    """None where they are those that were read before."""


class Exchange:
    """The sharing of one running gate."""

    def __init__(
        self,
        section: archive.Archive,
        *,
        ring: Ring,
        quotas: Quotas,
        bookings: Bookings,
        counter: Callable[[], Learner],
        metrics: Metrics,
        log: FilteringBoundLogger,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what is wanted; `start` does the rest.

        Args:
            section: where the database is.
            ring: is told of the keys.
            quotas: count what others booked.
            bookings: what was booked here.
            counter: who counts now, and learns of models.
            metrics: where failures are counted.
            log: where an operator is told of them.
            wall: seconds since 1970.
            clock: steady seconds.
        """
        self._section = section
        self._ring = ring
        self._quotas = quotas
        self._bookings = bookings
        self._counter = counter
        self._metrics = metrics
        self._log = log
        self._wall = wall
        self._clock = clock
        self._database: Database | None = None
        self._ready = False
        self._stamp: keyring.Stamp | None = None
        self._taken: KeyRing | None = None
        self._works_since = clock()
        self._learned_at = self._forgot_at = float("-inf")
        self._loop: asyncio.Task[None] | None = None
        self.problem = ""
        """Why the last exchange failed; empty when it did not."""
        self.unreadable = ""
        """Which keys' rows are no keys of this version; all else is shared beside them."""

    @property
    def behind(self) -> float:
        """Seconds for which nothing was told and heard; 0 while it works."""
        return self._clock() - self._works_since if self.problem else 0.0

    def goes_by(self, section: archive.Archive) -> bool:
        """Whether the database of this section is the one that is shared."""
        return section.place() == self._section.place()

    async def start(self) -> None:
        """Exchange once, so that keys and what they have used are known, and then again and again."""
        try:
            async with asyncio.timeout(_START_WITHIN):
                await self.once()
        except TimeoutError:
            self._failed("the database did not answer in time")
        self._loop = spawn(self._go_on(), name="share with other gates")

    async def close(self) -> None:
        """Tell what is left to tell, and close the database."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop})
        if not self.problem:
            self._learned_at = float("-inf")
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_WITHIN):
                    await self.once()
        if self._database is not None:
            await self._database.close()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await self.once()

    async def once(self) -> None:
        """Tell and hear what is new. A failure is counted and told, and changes nothing that was known."""
        try:
            database = await self._prepared()
            await self._tell_and_hear(database)
            if self._clock() - self._forgot_at >= FORGET_EVERY:
                await self._forget(database)
                self._forgot_at = self._clock()
            if self._clock() - self._learned_at >= LEARNED_EVERY:
                await self._learn(database)
                self._learned_at = self._clock()
        except (ArchiveFailed, ConfigError) as failure:
            self._failed(str(failure))
        except Exception as bug:  # noqa: BLE001 - the keys have to be looked at again, whatever it was
            self._log.error("internal error", exc_info=bug)
            self._failed(f"internal error: {type(bug).__name__}")
        else:
            self._works()

    async def _prepared(self) -> Database:
        database = self._database
        if database is None:
            database = self._database = Database(self._section.place())
        if not self._ready:
            if await migrating.ready(database, migrates=self._section.migrate):
                self._log.info("archive tables made", archive=database.shown)
            self._ready = True
        return database

    async def _tell_and_hear(self, database: Database) -> None:
        bookings, now = self._bookings, self._wall()
        bookings.forget(now)
        # Whoever mends a row by hand may leave its revision as it is.
        telling, heard_of, known = bookings.telling(), bookings.heard_of, None if self.unreadable else self._stamp

        def exchange(connection: Connection) -> _Read:
            if telling is not None:
                usage.write(connection, database, telling, now)
            stamp = keyring.stamp(connection)
            keys = keyring.rows(connection) if stamp != known else None
            versions = usage.versions(connection, bookings.run)
            return _Read(versions, usage.rows(connection, newer(versions, heard_of)), stamp, keys)

        read = await database.at_once(exchange, writes=telling is not None)
        if telling is not None:
            bookings.told(telling)
        for start in range(0, len(read.usage), _AT_ONCE):
            heard = bookings.hear(usage.entries(read.usage[start : start + _AT_ONCE]))
            self._quotas.hear(heard, self._wall())
            await asyncio.sleep(0)
        bookings.heard(read.versions)
        if read.keys is not None:
            found = await asyncio.to_thread(keyring.found, read.keys)
            if found.ring != self._taken:
                self._ring.take_keys(found.ring)
                self._taken = found.ring
            self._stamp = read.stamp
            self._name(found.faults)

    async def _forget(self, database: Database) -> None:
        with suppress(Collided):  # another gate is about it
            await database.at_once(partial(usage.forget, now=self._wall()), writes=True)

    async def _learn(self, database: Database) -> None:
        counter = self._counter()
        stored = await database.at_once(learned.rows)
        there = await asyncio.to_thread(learned.known, stored, __version__)
        counter.hear(there.everybody)
        fresh = await asyncio.to_thread(learned.unwritten, counter.learned(), there)
        if fresh:
            now = self._wall()

            def write(connection: Connection) -> None:
                learned.write(connection, database, fresh, __version__, now)

            await database.at_once(write, writes=True)

    def _name(self, faults: Sequence[str]) -> None:
        """Tell of rows that are no keys, once for each change of them."""
        few = f"{'; '.join(faults[:_NAMED])}{' …' if len(faults) > _NAMED else ''}"
        unreadable = f"keys that cannot be read open nothing (table gate_key): {few}" if faults else ""
        if unreadable and unreadable != self.unreadable:
            self._log.warning("shared keys that cannot be read", problem=unreadable)
        elif self.unreadable and not unreadable:
            self._log.info("all shared keys can be read again")
        self.unreadable = unreadable

    def _works(self) -> None:
        if self.problem:
            self._log.info("shared again", before=self.problem)
            self.problem = ""
        self._works_since = self._clock()
        self._metrics.shared_behind_seconds.set(0.0)

    def _failed(self, problem: str) -> None:
        """Count and tell a failure, once for each that is new, and look at the tables anew before the next attempt."""
        self._ready = False
        if problem != self.problem:
            self.problem = problem
            self._log.warning("not shared", problem=problem)
        self._metrics.shared_failures.labels().inc()
        self._metrics.shared_behind_seconds.set(self.behind)

    def status(self) -> dict[str, Any]:
        """How it is doing, for the status page."""
        problem = self.problem or self.unreadable or None
        return {"enabled": True, "problem": problem, "behind_seconds": round(self.behind, 1)}
