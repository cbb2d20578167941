"""Files that appear whole or not at all, and directories for their owner alone."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def appearing(path: Path, *, synced: bool = False) -> Iterator[BinaryIO]:
    """Write a file that takes its name, and the place of an older one, when all of it is written.

    Only its owner can read it (mode 0600). Where the block fails, the older file stays and nothing is left behind.

    Args:
        path: where it appears; its directory has to be there.
        synced: whether what was written is on the disk before the file takes its name.

    Raises:
        OSError: it cannot be written.
    """
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if synced:
                file.flush()
                os.fsync(file.fileno())
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def private_directory(path: Path) -> None:
    """Make a directory where there is none, and those above it that are missing, each for its owner alone (mode 0700).

    Raises:
        OSError: it cannot be made.
    """
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
