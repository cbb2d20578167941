"""How long large bodies hold the gate's event loop, in a process of its own; told in CPU time, whatever else runs.

    python -m bench.holding                  prints one line for each body, then one JSON object

The gate runs in this process, the rehearsal and whoever sends in others. A beat a millisecond notes the CPU time of the
process, all threads, since the beat before: what a step of the loop takes, and what a thread takes that keeps the
interpreter, which is as bad for whoever waits. While its own processes are killed or stopped, the clock on the wall
tells, which is fair on a quiet machine only.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import uvloop
import zstandard

from bench import processes
from bench.counting import Heartbeat
from bench.soak import steps
from bench.targets import free_port
from ollama_gate import pauses
from ollama_gate.app import Gate
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config
from ollama_gate.observe import log
from ollama_gate.receive import at_work
from ollama_gate.tasks import spawn

_ROOT: Final = Path(__file__).parents[1]
_MIB: Final = 1 << 20
BOUND: Final = 0.05
"""Seconds for which nobody may be held up."""
_MODEL: Final = steps.CHATS[0]
_PATIENCE: Final = 120.0


class Body(NamedTuple):
    """One request that is sent while the loop is watched."""

    path: str
    make: Callable[[], bytes]
    headers: str = "Content-Type: application/json"
    row: str = "hold large"
    """The row that it counts for; empty for what only makes ready."""


def _image(size: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(3 * 256 * 1024)).decode() * (size // _MIB)


def _chat(messages: list[dict[str, Any]], model: str = _MODEL, **more: Any) -> bytes:
    return json.dumps({"model": model, "stream": False, "messages": messages, **more}).encode()


def _talk(number: int, words: int) -> list[dict[str, Any]]:
    told = random.Random(2)
    return [
        {"role": "assistant" if at % 2 else "user", "content": steps.prose(told, words)} for at in range(number - 1)
    ] + [{"role": "user", "content": "And now?"}]


def _with_image(part: Callable[[str], dict[str, Any]], size: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [part(_image(size))]}]


def _native() -> bytes:
    return _chat([{"role": "user", "content": "x", "images": [_image(60 * _MIB)]}])


def _form() -> bytes:
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n'
    sound = random.Random(3).randbytes(_MIB) * 60
    return (head.format("model") + f"{_MODEL}\r\n" + head.format("file")).encode() + sound + b"\r\n--x--\r\n"


def _openai_image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _responses_image(data: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}


def _anthropic_image(data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def _responses() -> bytes:
    return json.dumps({"model": _MODEL, "input": _with_image(_responses_image, 60 * _MIB)}).encode()


_PACKED: Final = "Content-Type: application/json\r\nContent-Encoding: "
BODIES: Final = {
    "what is met first": Body("/gate/count", lambda: _chat(_talk(90, 60)), row=""),
    "what compaction loads": Body("/api/chat", lambda: _chat(_talk(60, 60), steps.LONG), row=""),
    "image, native": Body("/api/chat", _native),
    "image, gzip": Body("/api/chat", lambda: gzip.compress(_native(), 1), _PACKED + "gzip"),
    "image, zstd": Body("/api/chat", lambda: zstandard.compress(_native(), 1), _PACKED + "zstd"),
    "image, OpenAI": Body("/v1/chat/completions", lambda: _chat(_with_image(_openai_image, 60 * _MIB))),
    "image, Responses": Body("/v1/responses", _responses),
    "image, Anthropic": Body("/v1/messages", lambda: _chat(_with_image(_anthropic_image, 60 * _MIB), max_tokens=5)),
    "recording": Body("/v1/audio/transcriptions", _form, "Content-Type: multipart/form-data; boundary=x"),
    "64 MiB of text": Body("/api/chat", lambda: _chat([{"role": "user", "content": "word " * 13_000_000}])),
    "64 MiB of blanks, gzip": Body("/api/chat", lambda: gzip.compress(b" " * 64 * _MIB, 1), _PACKED + "gzip"),
    "9 MB of text": Body("/api/chat", lambda: _chat([{"role": "user", "content": "word " * 1_900_000}])),
    "6 MB of text": Body("/api/chat", lambda: _chat([{"role": "user", "content": "word " * 1_200_000}])),
    "the same, one wide letter": Body(  # Python then takes four bytes for each
        "/api/chat", lambda: _chat([{"role": "user", "content": "word " * 1_200_000 + "\U0001f600"}])
    ),
    "9 MB in 18 000 messages": Body("/api/chat", lambda: _chat(_talk(18_000, 70))),
    "4 MB in 3000 messages": Body("/api/chat", lambda: _chat(_talk(3000, 190)), row="hold messages"),
    "the same, compacted": Body("/api/chat", lambda: _chat(_talk(3000, 190), steps.LONG), row="hold messages"),
    "290 000 values": Body(
        "/api/chat", lambda: _chat(_talk(1, 1), format={"enum": list(range(290_000))}), row="hold messages"
    ),
    "75 000 keys": Body(
        "/api/chat",
        lambda: _chat(_talk(1, 1), format={str(at): 1 for at in range(75_000)}),
        row="hold messages",
    ),
}


class Fault(NamedTuple):
    """What befalls the gate's own processes again and again while a body is worked on."""

    program: str
    signal: signal.Signals
    body: str


FAULTS: Final = {
    f"{what} {how}": Fault(program, number, body)
    for what, program, body in (
        ("compaction", "ollama_gate.compaction.worker", "the same, compacted"),
        ("tokenizers", "ollama_gate.counting.worker", "what is met first"),
    )
    for how, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP))
}


def _config(home: str, upstream: int) -> Config:
    config = Config.model_validate(
        {
            "server": {"listen": "127.0.0.1:0"},
            "upstream": {"url": f"http://127.0.0.1:{upstream}"},
            "counting": {"cache_dir": f"{home}/tokenizers"},
            "access": {"keys": f"{home}/keys.json"},
            "defaults": {"num_ctx": 4096, "budget": steps.BUDGET},
            "models": {steps.LONG: {"compaction": True}},
            "log": {"level": "error"},
        }
    )
    return config.for_models(canonical)[0]


@contextlib.contextmanager
def _rehearsal(home: Path) -> Iterator[int]:
    """The port of a rehearsal with the soak's models."""
    models, port = home / "models.json", free_port()
    models.write_text(json.dumps(steps.MODELS))
    command = [*(sys.executable, "-m", "ollama_gate.rehearsal", "--listen", f"127.0.0.1:{port}")]
    command += ["--models", str(models), "--load-seconds", "0", "--max-loaded", str(len(steps.MODELS))]
    with (home / "rehearsal.log").open("wb") as quiet, processes.running(command, core=None, output=quiet):
        yield port


async def measure() -> dict[str, float]:
    """Each row's longest time, in seconds; what each body made is printed as it comes."""
    rows: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as home, _rehearsal(Path(home)) as upstream:
        config = _config(home, upstream)
        log.configure(config.log.level, config.log.format)
        gate = Gate(config)
        await gate.start()
        pauses.shorten()
        tidying = spawn(pauses.tidy(at_work), name="look for cycles")
        try:
            for name, body in BODIES.items():
                sender = await _sending(gate.address[1], name)
                async with Heartbeat(time.process_time, pause=0.0) as beat:
                    told, _ = await sender.communicate()
                _say(name, told, beat)
                if body.row:
                    rows[body.row] = max(rows.get(body.row, 0.0), beat.longest)
            for name, fault in FAULTS.items():
                sender = await _sending(gate.address[1], fault.body)
                # A clock on the wall: what waits for a process that hangs takes no CPU.
                async with Heartbeat() as beat, asyncio.TaskGroup() as group:
                    harm = group.create_task(_harm(fault))
                    told, _ = await sender.communicate()
                    harm.cancel()
                _say(name, told, beat)
                rows["hold faults"] = max(rows.get("hold faults", 0.0), beat.longest)
        finally:
            tidying.cancel()
            await gate.stop(drain=1.0)
    return rows


def _say(name: str, told: bytes, beat: Heartbeat) -> None:
    print(f"{name:26} {told.decode().strip():4} {1000 * beat.longest:7.1f} ms", file=sys.stderr)


async def _harm(fault: Fault) -> None:
    """Do it to every process of that program, also to those that are started instead, until cancelled."""
    while True:
        await asyncio.to_thread(_strike, fault)
        await asyncio.sleep(0.05)


def _strike(fault: Fault) -> None:
    for pid in processes.tree(os.getpid()):
        with contextlib.suppress(OSError):
            if fault.program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, fault.signal)


async def _sending(port: int, name: str) -> asyncio.subprocess.Process:
    """A process that sends a body, and says the status of the answer."""
    command = [sys.executable, "-m", "bench.holding", "--send", name, "--port", str(port)]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=_ROOT)


def _sent(port: int, body: Body) -> int:
    try:
        raw = body.make()
        with socket.create_connection(("127.0.0.1", port), _PATIENCE) as line:
            head = (
                f"POST {body.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n{body.headers}\r\n\r\n"
            )
            line.sendall(head.encode())
            line.sendall(raw)
            return int(line.recv(64).split()[1])
    except (OSError, ValueError, IndexError):
        return 0


@click.command()
@click.option("--send", type=click.Choice(list(BODIES)), help="Only send this body.")
@click.option("--port", type=int, default=0, help="Where to.")
def main(send: str | None, port: int) -> None:
    """Measure and print. The exit code is 1 when the loop was held for longer than it may be."""
    if send is None:
        rows = uvloop.run(measure())
        print(json.dumps(rows))
        sys.exit(max(rows.values()) > BOUND)
    else:
        print(_sent(port, BODIES[send]))


if __name__ == "__main__":
    main()
