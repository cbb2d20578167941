"""What is measured: no proxy at all, nginx, and the gate as it is installed, all in front of one scripted upstream."""

import asyncio
import compileall
import contextlib
import os
import pwd
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ollama_gate
from bench import load, processes
from bench.http11 import get

STARTING = 30.0
"""Seconds after which a target that does not answer is given up."""
INSTALL_NGINX: Final = "apt-get update && apt-get install -y nginx-light"
_NGINX: Final = """\
daemon off;
{user}worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/nginx.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    keepalive_requests 1000000;
    upstream ollama {{
        server 127.0.0.1:{upstream};
        keepalive 512;
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://ollama;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""
_GATE: Final = """\
[server]
listen = "127.0.0.1:{port}"
[upstream]
url = "http://127.0.0.1:{upstream}"
num_parallel = 256
[counting]
cache_dir = "{cache}"
[access]
keys = "{home}/keys.toml"
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that answers as the upstream does."""

    name: str
    port: int
    pid: int | None
    """Root of the process tree that is paid for; None where there is no proxy."""
    ready_seconds: float = 0.0
    """From its start to its first answer."""
    idle_bytes: int = 0
    """Its resident memory then."""


def nginx_binary() -> str | None:
    """Where nginx is, if it is installed."""
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def gate_command() -> list[str]:
    """The gate that is installed beside the Python that runs this, else the package as it lies here."""
    installed = Path(sys.executable).with_name("ollama-gate")
    return [str(installed), "serve"] if installed.exists() else [sys.executable, "-m", "ollama_gate", "serve"]


@contextlib.asynccontextmanager
async def upstream(home: Path, core: int, vocabulary: Path | None) -> AsyncIterator[Target]:
    """The scripted upstream."""
    port = free_port()
    command = [sys.executable, "-m", "bench.upstream", "--port", str(port)]
    if vocabulary is not None:
        command += ["--vocabulary", str(vocabulary)]
    async with _started("direct", command, home, port, "/api/version", core, paid=False) as target:
        yield target


@contextlib.asynccontextmanager
async def nginx(home: Path, core: int, upstream_port: int) -> AsyncIterator[Target | None]:
    """Nginx with one worker and no buffering; None where it is not installed."""
    binary = nginx_binary()
    if binary is None:
        yield None
        return
    port = free_port()
    root = os.geteuid() == 0
    user = f"user {pwd.getpwuid(os.geteuid()).pw_name};\n" if root else ""
    settings = home / "nginx.conf"
    settings.write_text(_NGINX.format(home=home, user=user, upstream=upstream_port, port=port))
    command = [binary, "-p", str(home), "-c", str(settings), "-e", str(home / "nginx.log")]
    async with _started("nginx", command, home, port, "/api/version", core) as target:
        yield target


@contextlib.asynccontextmanager
async def gate(
    home: Path, core: int | None, upstream_port: int, command: Sequence[str], cache: Path | None = None
) -> AsyncIterator[Target]:
    """The gate as shipped, but for its addresses, its cache and as many slots as there are streams."""
    compileall.compile_dir(Path(ollama_gate.__file__).parent, quiet=1)  # as pip does where it is really installed
    port = free_port()
    settings = home / "ollama-gate.toml"
    settings.write_text(_GATE.format(home=home, cache=cache or home / "tokenizers", upstream=upstream_port, port=port))
    whole = [*command, "--config", str(settings)]
    async with _started("gate", whole, home, port, "/gate/health/live", core) as target:
        yield target


@contextlib.asynccontextmanager
async def _started(
    name: str, command: Sequence[str], home: Path, port: int, path: str, core: int | None, *, paid: bool = True
) -> AsyncIterator[Target]:
    log = home / f"{name}.out"
    with log.open("wb") as output:
        began = time.perf_counter()
        with processes.running(command, core=core, output=output) as process:
            await _answers(port, path, lambda: process.poll() is None, log)
            ready = time.perf_counter() - began
            processes.settled(process.pid, 1.0)
            yield Target(
                name, port, process.pid if paid else None, ready, processes.resident_bytes(process.pid) if paid else 0
            )


async def _answers(port: int, path: str, alive: Callable[[], bool], log: Path) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until and alive():
        try:
            status, _ = await load.ask(port, get(path))
        except (OSError, load.LoadError):
            await asyncio.sleep(0.01)
            continue
        if status == 200:
            return
        await asyncio.sleep(0.05)
    raise load.LoadError(f"nothing answers on port {port}; its output: {_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def free_port() -> int:
    """A port of the loopback that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
