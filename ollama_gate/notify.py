"""Telling systemd how the gate is doing (`sd_notify(3)`): ready, reloading, stopping, and that it is alive."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from typing import Self


class Notifier:
    """Sends state to the socket that systemd names; silent without one."""

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        """Keep the address of the notification socket, None for none."""
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """As systemd has set NOTIFY_SOCKET and WATCHDOG_USEC."""
        microseconds = environ.get("WATCHDOG_USEC", "")
        return cls(environ.get("NOTIFY_SOCKET") or None, int(microseconds) / 1e6 if microseconds.isdigit() else None)

    def ready(self, status: str) -> None:
        """The gate serves."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read anew."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The gate drains."""
        self._send("STOPPING=1")

    async def watch(self) -> None:
        """Say "alive" twice in every watchdog interval, from the event loop: a blocked loop is noticed."""
        if self._address is None or self.watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 2)

    def _send(self, state: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.connect(self._address)
                out.sendall(state.encode())
        except OSError:
            # A manager that no longer listens is no reason to stop serving.
            return
