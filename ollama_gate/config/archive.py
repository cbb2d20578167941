"""The archive's section: whether, where and how long messages of compacted conversations are kept."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from ollama_gate.config.keys import Duration, Section, Size, key

SQLITE: Final = "sqlite:///"
POSTGRESQL: Final = "postgresql://"
FILE_NAME: Final = "archive.db"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_GIB: Final = 1024**3
_DAY: Final = 86400.0


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Where state is kept: systemd's directory, else the user's (XDG base directories), else /var/lib."""
    if systemd := environ.get("STATE_DIRECTORY"):
        return Path(systemd.split(":")[0])
    if (xdg := environ.get("XDG_STATE_HOME")) and Path(xdg).is_absolute():
        return Path(xdg) / "ollama-gate"
    if home := environ.get("HOME"):
        return Path(home) / ".local" / "state" / "ollama-gate"
    return Path("/var/lib/ollama-gate")


def archive_url(value: str, directory: Path | None = None) -> str:
    """An archive's address in one of two forms: `sqlite:///<absolute path>`, or `postgresql://…` as libpq takes it.

    Args:
        value: a path, `sqlite:///path`, or `postgresql://` (`postgres://`) with what follows.
        directory: where a relative path starts; None for the working directory.

    Raises:
        ValueError: with a sentence that says how to write it. It never repeats the value, which may hold a password.
    """
    value = value.strip()
    scheme = _SCHEME.match(value)
    if scheme is not None and scheme[1].lower() in {"postgresql", "postgres"}:
        address = POSTGRESQL + value[scheme.end() :]
        database = value[scheme.end() :].partition("?")[0].partition("/")[2]
        if not database and "dbname=" not in address and "service=" not in address:
            raise ValueError('name the database too: "postgresql://user@host/database"')
        return address
    if scheme is not None and scheme[1].lower() != "sqlite":
        raise ValueError(
            f'{scheme[1]}:// is not known here: write a path, "sqlite:///path" or "postgresql://user@host/database"'
        )
    path = value if scheme is None else value[scheme.end() :].removeprefix("/")
    if not path or ":memory:" in path or "\0" in path:
        raise ValueError(
            'name a file: "/var/lib/ollama-gate/archive.db" or "sqlite:////var/lib/ollama-gate/archive.db"'
        )
    return f"{SQLITE}{(directory or Path.cwd()) / Path(path).expanduser()}"


def sqlite_file(url: str) -> Path | None:
    """The file of an address that `archive_url` wrote; None where it is PostgreSQL's."""
    return Path(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else None


def _url(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        return value
    base = info.context.get("directory") if isinstance(info.context, Mapping) else None
    return archive_url(value, None if base is None else Path(base))


ArchiveUrl = Annotated[str, BeforeValidator(_url), WithJsonSchema({"type": "string", "minLength": 1})]
"""A SQLite file or a PostgreSQL database."""


class Archive(Section):
    """The messages of compacted conversations, kept. The one place where the gate stores prompt text."""

    enabled: bool = key(
        False,
        "Keep the messages of conversations that are compacted, so that what was left out can be looked up. "
        "Prompt text is stored nowhere else, and here only when this is switched on.",
    )
    url: ArchiveUrl | None = key(
        None,
        "Where: the path of a SQLite file, or `postgresql://user@host/database` as libpq takes it (the extra "
        "`ollama-gate[postgresql]`). Absent: archive.db in $STATE_DIRECTORY (systemd), else in "
        "$XDG_STATE_HOME/ollama-gate, else in ~/.local/state/ollama-gate.",
        example="/var/lib/ollama-gate/archive.db",
    )
    keep_for: Duration = key(
        30 * _DAY,
        "Time for which a conversation's messages are kept after it was compacted last; 0 is without end.",
        unit="time",
    )
    max_size: Size = key(
        10 * _GIB,
        "Most that messages and checkpoints may take, compressed; the conversations compacted longest ago go first. "
        "0 is no limit.",
        unit="size",
    )
    migrate: bool = key(
        True,
        "Make and alter the tables when the gate starts. Off where its database role may not: "
        "`ollama-gate archive migrate` does it then, with a role that may.",
    )

    def place(self, environ: Mapping[str, str] | None = None) -> str:
        """Where the archive is, as `archive_url` writes it."""
        return self.url or f"{SQLITE}{default_state_dir(os.environ if environ is None else environ) / FILE_NAME}"
