"""Processes to measure: started, pinned to a core, their CPU time and memory read from /proc, and ended."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in (_PROC / str(parent) / "task").iterdir():
                with contextlib.suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process tree as the scheduler counted it, user and kernel, all threads (`proc(5)`, schedstat)."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            for task in (_PROC / str(one) / "task").iterdir():
                with contextlib.suppress(OSError):
                    total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


@dataclass(frozen=True, slots=True)
class Turns:
    """How a process's first thread, which runs its event loop, came to its turns; seconds since it was started."""

    ran: float
    waited: float
    """Ready to run, while its core was with others (`proc(5)`, schedstat)."""

    @classmethod
    def of(cls, pid: int) -> "Turns":
        """As it is now; nothing for a process that has gone."""
        try:
            ran, waited, _ = (_PROC / str(pid) / "schedstat").read_text().split()
        except (OSError, ValueError):
            return cls(0.0, 0.0)
        return cls(int(ran) / 1e9, int(waited) / 1e9)

    def __sub__(self, before: "Turns") -> "Turns":
        return Turns(self.ran - before.ran, self.waited - before.waited)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process tree; pages that two of its processes share count twice."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError, IndexError):
            total += int((_PROC / str(one) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def settled(pid: int, within: float = 3.0) -> None:
    """Wait until a process tree does nothing any more (less than 2 % of a core), but not for ever."""
    until = time.monotonic() + within
    before = cpu_seconds(pid)
    while time.monotonic() < until:
        time.sleep(0.03)
        now = cpu_seconds(pid)
        if now - before < 0.0006:
            return
        before = now


@contextlib.contextmanager
def running(
    command: Sequence[str], *, core: int | None, output: IO[bytes], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, pinned to one core or to none, ended with everything that it started."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    try:
        os.sched_setaffinity(process.pid, set(range(os.cpu_count() or 1)) if core is None else {core})
        as_nice(process.pid)
        yield process
    finally:
        end(process)


def as_nice(pid: int) -> None:
    """Let the niceness of whoever runs this count for a session of its own.

    Where Linux groups processes by session (`sched(7)`, autogroup), niceness weighs within a session only, and each
    session by itself: what was started here with `nice -n -5` would share a core evenly with everything else.
    """
    with contextlib.suppress(OSError):
        (_PROC / str(pid) / "autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process politely, then its whole group for certain."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def cores() -> tuple[int, int]:
    """The core of what is measured and the core of load and upstream; the same one where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]
