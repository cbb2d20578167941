"""Files that appear whole or not at all."""

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
