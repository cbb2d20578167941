"""A gate in a process of its own, as a service manager runs it: for signals, limits of the system, and violent ends."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from support.http import ask

STARTING = 30.0
"""Seconds after which a gate that does not do what is expected is given up."""


def free_port() -> int:
    """A port of the loopback on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class GateProcess:
    """`ollama-gate serve` with a configuration in a directory; it can be started again after its end."""

    home: Path
    upstream: str
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = field(default=None, init=False)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.port

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> list[dict[str, Any]]:
        """All that was logged, by every process that was started here."""
        lines = (self.home / "log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def told(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of one kind."""
        return [line for line in self.log if line["event"] == event]

    async def says(self, event: str, *, times: int = 1) -> None:
        """Wait until it has logged this so many times."""
        async with asyncio.timeout(STARTING):
            while len(self.told(event)) < times:
                assert self.process is not None
                assert self.process.returncode is None, (self.home / "log").read_text()
                await asyncio.sleep(0.02)

    def configure(self, **sections: Mapping[str, Any]) -> None:
        """Write the configuration, with these sections beside those that were given at first."""
        counting = {"cache_dir": str(self.home / "cache")}
        access = {"keys": str(self.home / "keys.json")}
        whole: dict[str, Mapping[str, Any]] = {
            **self.sections,
            **sections,
            "counting": {**counting, **self.sections.get("counting", {})},
            "access": access,
        }
        whole["server"] = {"listen": f"127.0.0.1:{self.port}", **whole.get("server", {})}
        whole["upstream"] = {"url": self.upstream, **whole.get("upstream", {})}
        # JSON's strings, numbers and booleans are TOML's.
        text = "".join(
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in section.items())
            for name, section in whole.items()
        )
        (self.home / "ollama-gate.toml").write_text(text)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        before = len(self.told("listening")) if (self.home / "log").exists() else 0
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OLLAMA_")}
        command = [sys.executable, "-m", "ollama_gate", "serve", "--config", str(self.home / "ollama-gate.toml")]
        with (self.home / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=environ)
        await self.says("listening", times=before + 1)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    async def ended(self, within: float = 20.0) -> int:
        """Wait for its end; returns the exit code, negative after a signal."""
        assert self.process is not None
        async with asyncio.timeout(within):
            return await self.process.wait()

    async def status(self) -> Any:
        """Its status page as JSON."""
        return (await ask(self.address, "GET", "/gate/status")).json

    def descriptors(self) -> int:
        """How many files and connections it has open."""
        count: int = psutil.Process(self.pid).num_fds()
        return count

    def cpu_seconds(self) -> float:
        """CPU time that it has used so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def gate_process(home: Path, url: str, /, **sections: Mapping[str, Any]) -> AsyncIterator[GateProcess]:
    """A running gate, killed at the end if it still runs."""
    gate = GateProcess(home, url, sections)
    gate.configure()
    await gate.start()
    try:
        yield gate
    finally:
        if gate.process is not None and gate.process.returncode is None:
            gate.process.kill()
            await gate.process.wait()
        print((home / "log").read_text())
