"""Where the keys are that `ollama-gate keys` changes: in the file of one gate, or in the database that gates share."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ollama_gate.access.keyfile import locked, read, write
from ollama_gate.access.keys import KeyRing
from ollama_gate.cli.options import configuration
from ollama_gate.config.archive import Archive


class Kept(Protocol):
    """Where keys are kept."""

    @property
    def place(self) -> str:
        """What it is called."""

    @property
    def undone(self) -> str:
        """How to serve without keys again."""

    def read(self) -> KeyRing:
        """The keys."""

    def change(self, make: Callable[[KeyRing], KeyRing]) -> KeyRing:
        """Replace the ring by what `make` makes of it, while nobody else does; returns the ring as it was."""


class InFile:
    """The keys of one gate."""

    def __init__(self, file: Path) -> None:
        """Keep which file it is."""
        self._file = file
        self.place = str(file)
        self.undone = f"remove that file and restart the gate, to serve without keys again: {file}"

    def read(self) -> KeyRing:
        """The keys."""
        return read(self._file)[0]

    def change(self, make: Callable[[KeyRing], KeyRing]) -> KeyRing:
        """Replace the ring by what `make` makes of it, while nobody else does; returns the ring as it was."""
        with locked(self._file):
            before = self.read()
            write(self._file, make(before))
        return before


class InDatabase:
    """The keys that gates share."""

    def __init__(self, section: Archive) -> None:
        """Keep which database it is."""
        self._section = section
        self.place = "the database of archive.url"
        self.undone = "empty its table gate_key and restart the gates, to serve without keys again"

    def read(self) -> KeyRing:
        """The keys."""
        from ollama_gate.cli.archive import asked  # noqa: PLC0415 - only where there is a database
        from ollama_gate.shared import offline  # noqa: PLC0415 - likewise

        return asked(lambda: offline.read(self._section))

    def change(self, make: Callable[[KeyRing], KeyRing]) -> KeyRing:
        """Replace the ring by what `make` makes of it, while nobody else does; returns the ring as it was."""
        from ollama_gate.cli.archive import asked  # noqa: PLC0415 - only where there is a database
        from ollama_gate.shared import offline  # noqa: PLC0415 - likewise

        return asked(lambda: offline.change(self._section, make))


def kept_at(path: Path | None) -> Kept:
    """Where the keys of a configuration are."""
    config = configuration(path)[0]
    return InDatabase(config.archive) if config.shared.enabled else InFile(config.access.keys)
