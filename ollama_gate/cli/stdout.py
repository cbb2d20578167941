"""Standard output as commands have it: where it takes nothing a line says so, and no character breaks a command."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_FAILED = 1


class _Output(io.FileIO):
    """The file behind standard output, which knows what it could not write."""

    fault: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """As a file does; after a fault nothing more is tried, at Python's end neither."""
        if self.fault is not None:
            return memoryview(data).nbytes
        try:
            return super().write(data) or 0
        except OSError as fault:
            self.fault = fault
            raise


@contextmanager
def guarded() -> Iterator[None]:
    """Run a command; where its output cannot be written (a full disk, say) its exit code is 1, and one line says why.

    A reader that has left (`| head`) knows, and is told nothing. A character that the encoding of the output does not
    have is written as a question mark.
    """
    text, output = sys.stdout, None
    behind = getattr(text, "buffer", None)
    if text is None or isinstance(getattr(behind, "raw", behind), io.FileIO):  # there is no raw with PYTHONUNBUFFERED
        output = _Output(os.open(os.devnull, os.O_RDONLY) if text is None else text.fileno(), "w", closefd=False)
        encoding, at_once = ("utf-8", False) if text is None else (text.encoding, bool(text.line_buffering))
        text = io.TextIOWrapper(io.BufferedWriter(output), encoding, "replace", line_buffering=at_once)
        sys.stdout = text
    elif isinstance(text, io.TextIOWrapper):
        text.reconfigure(errors="replace")
    try:
        yield
    finally:
        if output is not None:
            with suppress(OSError):  # it is `fault`
                text.flush()
            if output.fault is not None:
                if output.fault.errno != errno.EPIPE:
                    with suppress(OSError):  # standard error may be the same full disk
                        click.echo(f"standard output: {output.fault.strerror}", err=True)
                sys.exit(_FAILED)
