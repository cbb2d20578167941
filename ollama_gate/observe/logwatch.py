"""Ollama's log, followed while the gate runs: what it says is counted, and a prompt that was cut is an alert.

With every client behind the gate no prompt is cut and no conversation shifted. A line that says so means that something
else talks to Ollama. Reading fails open: a log that cannot be read is told on the status page, and nothing waits.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from ollama_gate.observe.metrics import Metrics
from ollama_gate.observe.ollamalog import LOST, LogEvent, LogLine, parse

JOURNAL: Final = "journald:"
AGAIN: Final = 5.0
"""Seconds until a log that could not be read is tried again."""
ANSWERS: Final = 10.0
"""Seconds within which `journalctl` has to show one line."""
LOOK: Final = 1.0
"""Seconds between two looks at a file."""
_CHUNK: Final = 16 * 1024
_AT_ONCE: Final = 64
"""Chunks that are read in one look, so that a file that grows faster does not keep the loop."""
_LONGEST_LINE: Final = 64 * 1024


class Lines:
    """Cuts what was read into lines. A line that is too long loses its end."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._rest = b""
        self._skip = False

    def feed(self, data: bytes) -> list[str]:
        """Take what was read; the lines that are whole now."""
        *whole, rest = (self._rest + data).split(b"\n")
        if whole and self._skip:
            del whole[0]
            self._skip = False
        if len(rest) > _LONGEST_LINE:
            if not self._skip:
                whole.append(rest)
            self._skip, rest = True, b""
        self._rest = rest
        return [line.decode("utf-8", "replace") for line in whole]

    def reset(self) -> None:
        """Forget the beginning of a line: what follows is from another file."""
        self._rest, self._skip = b"", False


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a file ended at some moment."""

    device: int
    inode: int
    size: int

    def fits(self, file: os.stat_result) -> bool:
        """Whether it is this file, and none that took its place or was cut short."""
        return (file.st_dev, file.st_ino) == (self.device, self.inode) and file.st_size >= self.size


_NOTHING: Final = _Mark(-1, -1, 0)
"""There was no file: all that one says is new."""


class LogWatch:
    """What Ollama's log has told since the gate began to follow it."""

    def __init__(
        self,
        source: str,
        *,
        upstream: str,
        metrics: Metrics,
        log: FilteringBoundLogger,
        passes_v1: bool = False,
        look: float = LOOK,
    ) -> None:
        """Prepare to follow a log.

        Args:
            source: `journald:UNIT`, or the name of a file.
            upstream: where that Ollama is; the alert names it.
            metrics: where lines are counted.
            log: the gate's own.
            passes_v1: the gate itself sends requests to Ollama's /v1 (`dialects.server_tools = "pass"`).
            look: seconds between two looks at a file.
        """
        self.source = source
        self.counts = dict.fromkeys(LogEvent, 0)
        self.last: dict[LogEvent, dict[str, Any]] = {}
        self.problem: str | None = "not read yet"
        self._upstream = upstream
        self._metrics = metrics
        self._log = log
        self._look = look
        self._never = LOST if passes_v1 else LOST | {LogEvent.PAST_GATE}
        self._told: set[LogEvent] = set()
        self._stopped_by: str | None = None
        """The problem that was told last; forgotten when something could be read."""

    async def follow(self) -> None:
        """Follow the log until cancelled."""
        mark: _Mark | None = None
        since = time.time()
        while True:
            try:
                if self.source.startswith(JOURNAL):
                    await self._read(_journal(self.source.removeprefix(JOURNAL), self._reading, since))
                    since = time.time()
                else:
                    await self._read(_file(Path(self.source), self._reading, self._look, mark))
                self._stopped(f"{self.source} has ended")
                mark = None
            except OSError as failure:
                if mark is None or self.problem is None:
                    mark = _marked(Path(self.source))
                self._stopped(f"{self.source} cannot be read: {failure.strerror or failure}")
            await asyncio.sleep(AGAIN)

    async def _read(self, chunks: AsyncGenerator[bytes | None, None]) -> None:
        lines = Lines()
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                self._stopped_by = None
                if chunk is None:
                    lines.reset()
                    continue
                for line in lines.feed(chunk):
                    if (said := parse(line)) is not None:
                        self.note(said)

    def _reading(self) -> None:
        self.problem = None

    def _stopped(self, problem: str) -> None:
        if problem != self._stopped_by:
            self._log.warning("ollama's log is not followed", problem=problem)
        self.problem = self._stopped_by = problem

    def note(self, said: LogLine) -> None:
        """Count what one line says; the first of a kind that should never come is told in the gate's own log."""
        event = said.event
        self.counts[event] += 1
        self.last[event] = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **said.facts}
        self._metrics.ollama_log.labels(event.value).inc()
        if event in self._never and event not in self._told:
            self._told.add(event)
            self._log.warning("something else talks to ollama", event_in_its_log=event.value, advice=self.alert)

    @property
    def alert(self) -> str | None:
        """What to do when a prompt was cut, or a request came past the gate; None when all is well."""
        found = [event for event in LogEvent if event in self._never and self.counts[event]]
        if not found:
            return None
        told = ", ".join(f"{event.value} {self.counts[event]}" for event in found)
        port = self._upstream.rpartition(":")[2].strip("/")
        return (
            f"Ollama's log says: {told}. The gate never sends such a request, so something else talks to Ollama at "
            f"{self._upstream}, or a model has shift = true, or server tools are passed. "
            f"`ss -tnp 'dport = :{port}'` names who is connected; docs/install.md says how to close that way."
        )

    def status(self) -> dict[str, Any]:
        """What the status page shows."""
        return {
            "source": self.source,
            "problem": self.problem,
            "counts": {event.value: number for event, number in self.counts.items()},
            "last": {event.value: facts for event, facts in self.last.items()},
            "alert": self.alert,
        }


async def _file(
    path: Path, reading: Callable[[], None], look: float, mark: _Mark | None
) -> AsyncGenerator[bytes | None, None]:
    """What is written to a file from now on; None where it was replaced or cut short, and reading begins anew.

    Where it could not be read before, "now" is when that was found (`mark`).
    """
    file = _opened(path)
    try:
        here = os.fstat(file.fileno())
        file.seek(here.st_size if mark is None else mark.size if mark.fits(here) else 0)
        reading()
        while True:
            for _ in range(_AT_ONCE):
                chunk = file.read(_CHUNK)
                if not chunk:
                    break
                yield chunk
                await asyncio.sleep(0)  # others first: a chunk is some two hundred lines, half a millisecond
            here = os.fstat(file.fileno())
            try:
                there = _where(path)
            except FileNotFoundError:
                there = here  # between two files of a rotation
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                while chunk := file.read(_CHUNK):
                    yield chunk
                    await asyncio.sleep(0)
                fresh = _opened(path)
                file.close()
                file = fresh
                yield None
                continue
            if here.st_size < file.tell():
                file.seek(0)
                yield None
                continue
            await asyncio.sleep(look)
    finally:
        file.close()


def _marked(path: Path) -> _Mark | None:
    """Where a file ends that cannot be read; None where even that is not told."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return _NOTHING
    except OSError:
        return None
    return _Mark(there.st_dev, there.st_ino, there.st_size) if S_ISREG(there.st_mode) else _NOTHING


def _opened(path: Path) -> FileIO:
    """Open a file. It is opened and read without a thread, which might go on with it after it was closed."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a file")  # opening a pipe would wait for somebody who writes
    return path.open("rb", 0)


def _where(path: Path) -> os.stat_result:
    return path.stat()


async def _journal(unit: str, reading: Callable[[], None], since: float) -> AsyncGenerator[bytes | None, None]:
    """What a unit writes to the journal from a time of the clock on."""
    if not await _holds_something(unit):
        raise OSError(
            f"the journal shows nothing of the unit {unit}: is that its name, and is the gate's user in the group "
            "systemd-journal?"
        )
    process = await _journalctl("--follow", "--lines=all", f"--since=@{since:.6f}", f"--unit={unit}")
    try:
        reading()
        if process.stdout is not None:
            while chunk := await process.stdout.read(_CHUNK):
                yield chunk
    finally:
        if process.returncode is None:
            process.kill()  # it has nothing to finish, and one that is stopped would not hear anything gentler
            with contextlib.suppress(ProcessLookupError):
                await process.wait()


async def _holds_something(unit: str) -> bool:
    """Whether the journal shows anything of a unit; to those who may not read it, it is silently empty."""
    process = await _journalctl("--lines=1", f"--unit={unit}")
    try:
        async with asyncio.timeout(ANSWERS):
            said, _ = await process.communicate()
    except TimeoutError:
        raise OSError(f"journalctl did not answer within {ANSWERS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return bool(said.strip())


async def _journalctl(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "journalctl",
        *("--output=cat", "--no-pager", "--quiet", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
