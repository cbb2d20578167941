"""What systemd is told, over a real datagram socket."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ollama_gate.notify import Notifier
from ollama_gate.tasks import spawn


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        path = str(tmp_path / "notify")
        inbox.bind(path)
        inbox.settimeout(2.0)
        yield path, inbox


def test_each_state_is_told(manager: tuple[str, socket.socket]) -> None:
    path, inbox = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": path})
    notifier.ready("serving on 127.0.0.1:11435")
    assert inbox.recv(999) == b"READY=1\nSTATUS=serving on 127.0.0.1:11435"
    notifier.reloading()
    first, second = inbox.recv(999).decode().splitlines()
    assert (first, second.partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
    assert int(second.partition("=")[2]) > 0
    notifier.stopping()
    assert inbox.recv(999) == b"STOPPING=1"


def test_an_abstract_socket_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind("\0ollama-gate-test")
        inbox.settimeout(2.0)
        Notifier("@ollama-gate-test").stopping()
        assert inbox.recv(99) == b"STOPPING=1"


async def test_the_watchdog_hears_of_the_gate_from_the_event_loop(manager: tuple[str, socket.socket]) -> None:
    path, inbox = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "20000"})
    assert notifier.watchdog_seconds == 0.02
    watching = spawn(notifier.watch(), name="watchdog")
    for _ in range(3):
        assert await asyncio.to_thread(inbox.recv, 99) == b"WATCHDOG=1"
    watching.cancel()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"WATCHDOG_USEC": "1"}, {"WATCHDOG_USEC": "soon"}])
async def test_without_systemd_nothing_is_said(environ: dict[str, str]) -> None:
    notifier = Notifier.from_environment(environ)
    notifier.ready("x")
    await notifier.watch()


async def test_a_manager_that_is_gone_is_no_reason_to_stop(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).ready("x")
