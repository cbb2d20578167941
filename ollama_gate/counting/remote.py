"""A tokenizer that works in a process of its own (`worker.py`), seen from the gate."""

import contextlib
import itertools
import os
import queue
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson

import ollama_gate
from ollama_gate.counting.channel import Operation, Status, pack_texts, receive, send, unpack_numbers
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.errors import CountingError

CHANNELS = 2
"""Texts that one process counts at the same time."""
PATIENCE = 30.0
"""Seconds after which a count has failed; a megabyte takes one."""
MAX_BYTES = 8 << 20
"""UTF-8 bytes of text that are counted at all; the worst eight megabytes take gigabytes of memory."""
LONGEST_RUN = 1_000_000
"""Characters in a row, all of them blanks or none: such a run is one piece to a tokenizer, and takes it ever longer."""
_RUN = re.compile(r"\s++|\S++")
BUILD_PATIENCE = 300.0
"""Seconds after which building has failed; it takes two or three on an idle machine."""
_MALLOC: Final = {"MALLOC_ARENA_MAX": "2", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""For glibc's malloc: few arenas, so that what a big text took can be given back; and large pages, because a vocabulary
is looked up all over its memory. Python's own objects stay with Python's own allocator: they go when a tokenizer is
built, and would leave holes of 20 MB between the library's."""
_uses = itertools.count()


def _has_long_run(text: str) -> bool:
    """Whether a run of blanks, or of anything else, is longer than is counted."""
    return len(text) > LONGEST_RUN and any(run.end() - run.start() > LONGEST_RUN for run in _RUN.finditer(text))


class WorkerGone(CountingError):
    """The process ended, or was ended because it took too long; the store starts another."""


class Worker:
    """A process and the sockets to it. All methods block; call them in a thread."""

    def __init__(self) -> None:
        """Start the process; it waits for its job."""
        pairs = [socket.socketpair() for _ in range(CHANNELS)]
        try:
            theirs = [there.fileno() for _, there in pairs]
            # -P: nothing is imported from the working directory. Our own package may be no installed one.
            path = os.pathsep.join(
                filter(None, [str(Path(ollama_gate.__file__).parents[1]), os.environ.get("PYTHONPATH")])
            )
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-P", "-m", "ollama_gate.counting.worker", *map(str, theirs)],
                pass_fds=theirs,
                process_group=0,  # Ctrl-C is the gate's to answer
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, **_MALLOC},
            )
        except BaseException:
            for ours, _ in pairs:
                ours.close()
            raise
        finally:
            for _, there in pairs:
                there.close()
        self.channels = [ours for ours, _ in pairs]
        for channel in self.channels:
            channel.settimeout(BUILD_PATIENCE)

    def tell(self, payload: bytes) -> dict[str, Any]:
        """Send the job, or what it wanted besides, and wait for the outcome.

        Raises:
            WorkerGone: There is none.
        """
        try:
            send(self.channels[0], payload)
            answer = receive(self.channels[0])
        except OSError as error:
            raise WorkerGone(f"the tokenizer's process failed: {error}") from error
        if answer is None:
            raise WorkerGone("the tokenizer's process ended while it built")
        outcome: dict[str, Any] = orjson.loads(answer)
        return outcome

    def end(self, *, patience: float = 0.0) -> None:
        """Hang up, and make sure that the process is gone.

        Args:
            patience: Seconds it has to end by itself; an idle one does so at once, after writing what it has to write.
        """
        for channel in self.channels:
            # Wakes a thread that waits for an answer; close() alone does not, and frees a number that it still polls.
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
        try:
            self._gone(patience)
        finally:
            for channel in self.channels:
                channel.close()

    def _gone(self, patience: float) -> None:
        """Wait for the process to end; insist."""
        for insist in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                patience = 5.0
                insist()
            else:
                return
        self.process.wait()

    def resident(self) -> int:
        """Bytes of memory the process holds; 0 once it is gone."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class RemoteTokenizer:
    """Counts like `tokenizer.Tokenizer`. Its methods block without holding the GIL; call them in a thread."""

    def __init__(self, worker: Worker, facts: TokenizerFacts, source: str) -> None:
        """Take over a process whose tokenizer is ready.

        Args:
            worker: The process.
            facts: What it said about its tokenizer.
            source: What the tokenizer was made from: `cache`, `blob` or `show`.
        """
        self.facts = facts
        self.worker = worker
        self.source = source
        self.alive = True
        self.last_use = next(_uses)
        """Which of all uses of all tokenizers the last one was; whoever has the lowest was not used for longest."""
        self._idle: queue.LifoQueue[socket.socket] = queue.LifoQueue()
        for channel in worker.channels:
            channel.settimeout(PATIENCE)
            self._idle.put(channel)

    def touch(self) -> None:
        """Note that it is wanted."""
        self.last_use = next(_uses)

    @property
    def busy(self) -> bool:
        """Whether it is counting right now."""
        return self._idle.qsize() < len(self.worker.channels)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, specials in it parsed, without BOS and EOS.

        Raises:
            WorkerGone: The process is no more.
            CountingError: It could not count this.
        """
        return unpack_numbers(self._ask(Operation.COUNT, texts)) if texts else []

    def ids(self, text: str) -> list[int]:
        """The ids of one text; errors as for `count`."""
        return unpack_numbers(self._ask(Operation.IDS, [text]))

    def pieces(self, text: str) -> bytes:
        """The text of each token, as a JSON array; errors as for `count`."""
        return self._ask(Operation.PIECES, [text])

    def _ask(self, operation: Operation, texts: Sequence[str]) -> bytes:
        self.touch()
        request = pack_texts(operation, texts)
        if len(request) > MAX_BYTES:
            raise CountingError(f"{len(request)} bytes of text are more than is counted here")
        if len(request) > LONGEST_RUN and any(map(_has_long_run, texts)):
            raise CountingError(f"a text with {LONGEST_RUN} blanks in a row, or without one, is not counted here")
        try:
            channel = self._idle.get(timeout=PATIENCE)
        except queue.Empty:
            raise CountingError("the tokenizer is busy with other texts") from None
        try:
            if not self.alive:
                raise WorkerGone("the tokenizer was unloaded")
            send(channel, request)
            answer = receive(channel)
        except OSError as error:
            self.alive = False
            raise WorkerGone(f"the tokenizer's process failed: {error}") from error
        finally:
            self._idle.put(channel)
        if answer is None:
            self.alive = False
            raise WorkerGone("the tokenizer's process ended")
        if answer[0] != Status.DONE:
            raise CountingError(f"the tokenizer failed: {answer[1:].decode('utf-8', 'replace')}")
        return answer[1:]
