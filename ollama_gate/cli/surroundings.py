"""What this machine tells of the Ollama that runs on it: its environment, who is connected to it, its limits.

Everything is read, nothing is asked or changed. What may not be read (other users' processes) is left out.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ollama_gate.config.address import Address
from ollama_gate.observe.ollamalog import LogEvent, parse

_ESTABLISHED: Final = "01"
_LISTEN: Final = "0A"
_FOR_SYSTEMD: Final = 5.0
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")


@dataclass(frozen=True, slots=True)
class Socket:
    """One TCP socket of this machine (`/proc/net/tcp`, Linux)."""

    local: str
    local_port: int
    remote_port: int
    state: str
    inode: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found; what could not be read is None or empty."""

    environment: Mapping[str, str] | None = None
    """Ollama's OLLAMA_* and LLAMA_ARG_* settings."""
    source: str = ""
    """Where they were read."""
    program: str = "ollama"
    """Whose they are. Of another one (docker-proxy, a tunnel, the rehearsal) only what is set tells anything."""
    listens: tuple[str, ...] = ()
    """Addresses at which Ollama's port is listened on."""
    connected: tuple[str, ...] = ()
    """Processes, other than the gate, that are connected to Ollama: name and id, or `somebody` where that is secret."""
    open_files: int | None = None
    """Most files that the gate's process may have open."""
    memory_max: int | None = None
    """Bytes that systemd lets Ollama's unit have."""


def look_around(ollama: Address, gate: Address, *, log: str | None = None, proc: Path = Path("/proc")) -> Surroundings:
    """Read what this machine tells.

    Args:
        ollama: where Ollama is; nothing can be told of one on another machine.
        gate: where the gate listens.
        log: `upstream.log`, in which Ollama writes its settings at its start.
        proc: the system's own files.
    """
    if not ollama.loopback:
        return Surroundings()
    sockets = list(_sockets(proc))
    listening = [one for one in sockets if one.state == _LISTEN and one.local_port == ollama.port]
    to_ollama = [one for one in sockets if one.state == _ESTABLISHED and one.remote_port == ollama.port]
    at_gate = [one for one in sockets if one.state == _LISTEN and one.local_port == gate.port]
    owners = _owners(proc, {one.inode for one in (*listening, *to_ollama, *at_gate)})
    gates = {owners[one.inode] for one in at_gate if one.inode in owners}
    pids = [owners[one.inode] for one in listening if one.inode in owners]
    unit = _unit("ollama")
    environment, source, program = _environment(proc, pids, unit, log)
    return Surroundings(
        environment=environment,
        source=source,
        program=program,
        listens=tuple(sorted({one.local for one in listening})),
        connected=tuple(sorted(_named(proc, to_ollama, owners, gates | {os.getpid()}))),
        open_files=_open_files(proc, gates),
        memory_max=int(unit["MemoryMax"]) if unit.get("MemoryMax", "").isdigit() else None,
    )


def sockets_of(table: str) -> Iterator[Socket]:
    """The rows of `/proc/net/tcp` or `tcp6`; what is not formed like one is passed over."""
    for line in table.splitlines()[1:]:
        words = line.split()
        with suppress(ValueError, IndexError):
            local, local_port = words[1].split(":")
            yield Socket(_address(local), int(local_port, 16), int(words[2].split(":")[1], 16), words[3], int(words[9]))


def _address(text: str) -> str:
    """The address behind the kernel's hexadecimal words, each in this machine's order of bytes."""
    raw = bytes.fromhex(text)
    words = [raw[at : at + 4] for at in range(0, len(raw), 4)]
    address = ip_address(b"".join(word[::-1] for word in words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _sockets(proc: Path) -> Iterator[Socket]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            yield from sockets_of((proc / "net" / table).read_text())


def _owners(proc: Path, inodes: set[int]) -> dict[int, int]:
    """Process ids by the inodes of their sockets, as far as they may be seen."""
    out: dict[int, int] = {}
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            for file in (folder / "fd").iterdir():
                with suppress(OSError):
                    found = re.fullmatch(r"socket:\[(\d+)\]", str(file.readlink()))
                    if found is not None and int(found[1]) in inodes:
                        out[int(found[1])] = int(folder.name)
    return out


def _named(proc: Path, sockets: Iterable[Socket], owners: Mapping[int, int], own: set[int]) -> Iterator[str]:
    for one in sockets:
        pid = owners.get(one.inode)
        if pid is None:
            if own - {os.getpid()}:  # the gate's own could be seen, so this is another's
                yield "somebody"
        elif pid not in own:
            with suppress(OSError):
                yield f"{(proc / str(pid) / 'comm').read_text().strip()} (process {pid})"


def _open_files(proc: Path, gates: Iterable[int]) -> int | None:
    for pid in gates:
        with suppress(OSError):
            found = re.search(r"^Max open files +(\d+)", (proc / str(pid) / "limits").read_text(), re.MULTILINE)
            if found is not None:
                return int(found[1])
    return None


def _environment(
    proc: Path, pids: Iterable[int], unit: Mapping[str, str], log: str | None
) -> tuple[dict[str, str] | None, str, str]:
    """Ollama's settings from the first place that may be read: its process, its unit, its log; and whose they are."""
    for pid in pids:
        with suppress(OSError):
            raw = (proc / str(pid) / "environ").read_bytes().split(b"\0")
            pairs = (one.decode("utf-8", "replace").partition("=") for one in raw)
            program = (proc / str(pid) / "comm").read_text().strip()
            return _settings((name, value) for name, _, value in pairs), f"/proc/{pid}/environ", program
    if unit.get("LoadState") == "loaded":
        with suppress(ValueError):
            pairs = (one.partition("=") for one in shlex.split(unit.get("Environment", "")))
            return _settings((name, value) for name, _, value in pairs), "the unit ollama", "ollama"
    told = _last_start(log) if log is not None and not log.startswith("journald:") else None
    return (told, log or "", "ollama") if told is not None else (None, "", "ollama")


def _settings(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What matters of an environment, without quotes and spaces, as Ollama reads it (`envconfig/config.go:Var`).

    What may be a secret is left out.
    """
    wanted = ((name, value) for name, value in pairs if name.startswith(("OLLAMA_", "LLAMA_ARG_")))
    return {name: value.strip(" \t\"'") for name, value in wanted if not _SECRET.search(name)}


def _last_start(log: str) -> dict[str, str] | None:
    """The settings in the last line of a log file that tells of a start."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 16 * 1024**2, 0))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if "server config" in line and (said := parse(line)) is not None and said.event is LogEvent.STARTED:
            return dict(said.facts)
    return None


def _unit(name: str) -> dict[str, str]:
    """What systemd says of a unit; nothing where there is no systemd."""
    asked = ["systemctl", "show", f"{name}.service", "--property=LoadState,Environment,MemoryMax"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_FOR_SYSTEMD, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return {}
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs}
