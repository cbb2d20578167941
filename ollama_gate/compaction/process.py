"""The worker's process as the gate sees it: started when it is needed, ended when it is late, and started again."""

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

import ollama_gate
from ollama_gate.counting.channel import HEAD
from ollama_gate.errors import GateError

PROGRAM: Final = ("-m", "ollama_gate.compaction.worker")
MAX_FRAME: Final = 32 << 20
"""Bytes of a frame from the worker; it is not believed beyond."""

Answer = Callable[[Mapping[str, Any]], Awaitable[bytes]]
"""Answers what the worker asks while it works."""


class WorkerFailed(GateError):
    """The worker ended, or said what cannot be understood."""


class WorkerProcess:
    """One worker at a time. It lives on one event loop, and one job runs at once."""

    def __init__(self, memory: int, program: Sequence[str] = PROGRAM) -> None:
        """Start nothing yet.

        Args:
            memory: bytes of address space that the process gets.
            program: what Python runs in it; the socket's number and the memory come after.
        """
        self.memory = memory
        self._program = tuple(program)
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        """Processes started so far."""
        self.working = False
        """Whether it has a job."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ended: set[asyncio.Task[Any] | asyncio.Future[Any]] = set()

    async def ask(self, job: bytes, answer: Answer) -> dict[str, Any]:
        """Give the worker a frame, answer what it asks, and return what it says in the end.

        Cancelled (by a deadline) or failed, it leaves no process behind that still works on it.

        Raises:
            WorkerFailed: it ended before it was done.
        """
        try:
            fresh = await self._begin()
            self.working = True
            try:
                told = await self._asked(job)
            except (WorkerFailed, OSError):
                if fresh:
                    raise
                # One that has waited too long for a job ends by itself, perhaps at this very moment.
                self.end()
                await self._begin()
                told = await self._asked(job)
            while "count" in told or "similar" in told:
                told = await self._asked(await answer(told))
        except OSError as failure:
            self.end()
            raise WorkerFailed(f"its process ended: {failure}") from failure
        except BaseException:
            self.end()
            raise
        finally:
            self.working = False
        return told

    async def _begin(self) -> bool:
        """Start a process where none is running; whether it is a new one."""
        if self.process is not None and self.process.poll() is None and self._writer is not None:
            return False
        self.end()
        ours, theirs = socket.socketpair()
        try:
            self.process = await asyncio.to_thread(_started, self._program, theirs, self.memory)
            self.starts += 1
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return True

    async def _asked(self, payload: bytes) -> dict[str, Any]:
        await self._send(payload)
        return await self._receive()

    async def _send(self, payload: bytes) -> None:
        writer = self._writer
        if writer is None:
            raise WorkerFailed("its process ended")
        writer.write(HEAD.pack(len(payload)))
        writer.write(payload)
        await writer.drain()

    async def _receive(self) -> dict[str, Any]:
        reader = self._reader
        if reader is None:
            raise WorkerFailed("its process ended")
        try:
            (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
            if size > MAX_FRAME:
                raise WorkerFailed(f"it announced {size} bytes")
            payload = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, struct.error) as cut:
            raise WorkerFailed("its process ended while it worked") from cut
        try:
            told = orjson.loads(payload) if size < 1 << 16 else await asyncio.to_thread(orjson.loads, payload)
        except ValueError as odd:
            raise WorkerFailed(f"it said what is no JSON: {odd}") from odd
        if not isinstance(told, dict):
            raise WorkerFailed("it said what is no object")
        return told

    def end(self) -> None:
        """End the process, if there is one; it has nothing to save."""
        process, writer = self.process, self._writer
        self.process = self._reader = self._writer = None
        if writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()
        if process is not None:
            process.kill()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process is waited for at its end
                waiting = asyncio.get_running_loop().run_in_executor(None, process.wait)
                self._ended.add(waiting)
                waiting.add_done_callback(self._ended.discard)

    async def close(self) -> None:
        """End the process and wait until it is gone."""
        self.end()
        while self._ended:
            await asyncio.gather(*self._ended)


def _started(program: Sequence[str], channel: socket.socket, memory: int) -> subprocess.Popen[bytes]:
    """Start a process with its end of a channel, which is closed here: nobody else may, or its number be another's."""
    # -P: nothing is imported from the working directory. Our own package may be no installed one.
    path = os.pathsep.join(filter(None, [str(Path(ollama_gate.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    with channel:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", *program, str(channel.fileno()), str(memory)],
            pass_fds=[channel.fileno()],
            process_group=0,  # Ctrl-C is the gate's to answer
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "MALLOC_ARENA_MAX": "1"},
        )
