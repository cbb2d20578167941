"""The file of the keys: hashes and rights as JSON, mode 0600, replaced as a whole, and read again when it has changed.

The command line writes it while the gate runs; whoever changes it holds the lock beside it. What cannot be read never
opens the gate: the keys that were read last stay in force.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from ollama_gate.access.keys import ID_LENGTH, MOST_PRIORITY, UNLIMITED, Key, KeyRing, Limits, name_fault, pattern_fault
from ollama_gate.errors import ConfigError
from ollama_gate.files import appearing, private_directory

VERSION: Final = 1
_LARGEST: Final = 16 * 1024**2
_OTHERS_WRITE: Final = 0o022
_LIMITS: Final = frozenset(one.name for one in fields(Limits))
_KEYS: Final = frozenset({one.name for one in fields(Key)} - {"digest"} | {"hash"})

Stamp = tuple[int, int, int]
"""What changes when a file does: inode, size, time of its last change in nanoseconds."""


class BadKeyFile(ConfigError):
    """The file of the keys cannot be used; the message says why."""


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns


def decode(text: bytes) -> KeyRing:
    """Read the file's text.

    Raises:
        BadKeyFile: it is not what `encode` writes.
    """
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise BadKeyFile(f"is not JSON: {bad}") from bad
    if not isinstance(tree, dict) or tree.get("version") != VERSION or not isinstance(tree.get("keys"), list):
        raise BadKeyFile(f"is not a file of keys of version {VERSION}")
    keys = tuple(_key(row, number) for number, row in enumerate(tree["keys"], 1))
    if len({key.id for key in keys}) != len(keys):
        raise BadKeyFile("has an id twice")
    return KeyRing(keys)


def encode(ring: KeyRing) -> bytes:
    """The file's text for these keys: hashes only, so that nobody gets in with what stands there."""
    rows = []
    for key in ring.keys:
        row = {name: value for name, value in asdict(key).items() if name not in {"digest", "limits"}}
        row["hash"] = key.digest.hex()
        row["limits"] = {name: value for name, value in asdict(key.limits).items() if value is not None}
        rows.append({name: value for name, value in row.items() if value is not None})
    return json.dumps({"version": VERSION, "keys": rows}, indent=1).encode() + b"\n"


def read(path: Path) -> tuple[KeyRing, Stamp | None]:
    """Read a file of keys.

    Returns:
        The keys, and what the file looked like; no keys and None where there is no file.

    Raises:
        BadKeyFile: it cannot be read, is not a file of keys, or others than its owner may write to it.
    """
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            text = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return KeyRing(), None
    except OSError as error:
        raise BadKeyFile(f"{path}: the keys cannot be read: {error.strerror}") from error
    if status.st_mode & _OTHERS_WRITE:
        raise BadKeyFile(f"{path}: others than its owner may write to it: chmod 600 {path}")
    if len(text) > _LARGEST:
        raise BadKeyFile(f"{path}: is larger than {_LARGEST} bytes and so not a file of keys")
    try:
        return decode(text), _stamp(status)
    except BadKeyFile as bad:
        raise BadKeyFile(f"{path}: {bad}") from bad


def write(path: Path, ring: KeyRing) -> None:
    """Replace the file as a whole, readable by its owner only.

    Written by root it belongs to whom the file, or else its directory, belonged before: a service with a user of its
    own has to read it.

    Raises:
        BadKeyFile: it cannot be written.
    """
    try:
        private_directory(path.parent)
        owner = path.stat() if path.exists() else path.parent.stat()
        with appearing(path, synced=True) as file:
            if os.geteuid() == 0:
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(encode(ring))
    except OSError as error:
        raise BadKeyFile(f"{path}: the keys cannot be written: {error.strerror}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside the file, so that nobody else changes it meanwhile.

    Raises:
        BadKeyFile: the lock beside it cannot be made.
    """
    beside = path.with_name(f".{path.name}.lock")
    try:
        private_directory(path.parent)
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadKeyFile(f"{beside}: cannot be made: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class KeyFile:
    """The keys of a running gate, and the file that they come from."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            BadKeyFile: it cannot be used; a gate does not start with it.
        """
        self.path = path
        self.problem: str | None = None
        """Why the keys in force are not those of the file."""
        self.ring, self._stamp = read(path)

    def refresh(self) -> bool:
        """Read the file again if it has changed.

        Returns:
            Whether it had changed.

        Raises:
            BadKeyFile: it cannot be used, or it or its keys are gone, which would open the gate. The keys that were
                read before stay in force, and it is not tried again before it changes once more.
        """
        try:
            stamp = _stamp(self.path.stat())
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.ring = self._read_again()
        except BadKeyFile as bad:
            self.problem = str(bad)
            raise
        self.problem = None
        return True

    def _read_again(self) -> KeyRing:
        ring, self._stamp = read(self.path)
        if self.ring and not ring:
            what = "the file is gone" if self._stamp is None else "all keys are gone from it"
            raise BadKeyFile(f"{self.path}: {what}, and a gate that starts so asks nobody for one")
        return ring


def _key(row: Any, number: int) -> Key:
    if not isinstance(row, dict) or not row.keys() <= _KEYS:
        raise BadKeyFile(f"key {number} is not one of this version")
    limits = row.get("limits", {})
    if not isinstance(limits, dict) or not limits.keys() <= _LIMITS or not all(map(_positive, limits.values())):
        raise BadKeyFile(f"the limits of key {number} are not whole numbers of this version")
    key_id, name, models, priority = row.get("id"), row.get("name"), row.get("models", []), row.get("priority", 0)
    if not isinstance(key_id, str) or len(key_id) != ID_LENGTH or not isinstance(name, str) or name_fault(name):
        raise BadKeyFile(f"key {number} has no id or no name")
    if not isinstance(models, list) or any(not isinstance(one, str) or pattern_fault(one) for one in models):
        raise BadKeyFile(f"the models of key {number} are not names or patterns")
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        raise BadKeyFile(f"the priority of key {number} is not a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    times = {name: row.get(name) for name in ("created", "expires", "revoked")}
    if any(value is not None and type(value) not in {int, float} for value in times.values()):
        raise BadKeyFile(f"a time of key {number} is not a number of seconds")
    flags = {name: row.get(name, False) for name in ("admin", "counts")}
    if any(type(flag) is not bool for flag in flags.values()):
        raise BadKeyFile(f"admin and counts of key {number} are true or false")
    try:
        digest = bytes.fromhex(row.get("hash", ""))
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != 32:
        raise BadKeyFile(f"key {number} has no hash")
    return Key(
        id=key_id,
        name=name,
        digest=digest,
        created=float(times["created"] or 0.0),
        expires=times["expires"],
        revoked=times["revoked"],
        models=tuple(models),
        limits=Limits(**limits) if limits else UNLIMITED,
        priority=priority,
        admin=flags["admin"],
        counts=flags["counts"],
    )


def _positive(value: Any) -> bool:
    return type(value) is int and value >= 1
