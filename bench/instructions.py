"""Instructions instead of seconds: what a request and a token cost the gate, the same on an idle and on a busy machine.

The gate runs under valgrind's callgrind, which counts every instruction outside the kernel. It is fifty times slower
there, so this says nothing about time; it says whether the code has become more expensive.

Timers and the garbage collector run in between, and only ever add. So requests are counted in blocks, and streams of
two lengths several times, and the lower quartile is taken of each; a token is what a longer stream takes more than a
shorter one. Each token is sent when the one before has come through, so that none is read together with another.
Counts of another Python, or of another processor, are no measure for these: they are not compared.
"""

import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench import load, speed, targets
from bench.http11 import get
from bench.load import LoadError, Pool
from bench.script import WHEN_ASKED, Script
from bench.targets import Target

INSTALL_VALGRIND: Final = "apt-get update && apt-get install -y valgrind"
BASELINE: Final = Path(__file__).parent / "instructions.json"
TOLERANCE: Final = 0.10
"""Share by which a count may grow."""
_STARTING: Final = 240.0
_BLOCKS: Final = 8
_REQUESTS: Final = 25
"""In each block."""
_STREAMS: Final = 6
_SHORT: Final = 50
_LONG: Final = 250
"""Tokens of the shorter and of the longer ones."""
_TOTALS: Final = re.compile(r"^totals: (\d+)$", re.MULTILINE)


async def count(home: Path, command: Sequence[str]) -> dict[str, int]:
    """Instructions of one small request and of one streamed token.

    Raises:
        LoadError: valgrind is not there, or did not count.
    """
    if shutil.which("valgrind") is None:
        raise LoadError(f"valgrind is not installed: {INSTALL_VALGRIND}")
    out = home / "callgrind.%p"
    under = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", *_program(command)]
    os.environ["PYTHONHASHSEED"] = "0"  # the same dictionaries every time
    targets.STARTING = _STARTING
    async with (
        targets.upstream(home, 0, None) as upstream,
        targets.gate(home, 0, upstream.port, under) as gate,
        Pool(gate.port, 1) as pool,
    ):
        await _known(gate, pool)
        counter = _Callgrind(home, gate)
        requests = [await _requests(counter, pool, _REQUESTS) / _REQUESTS for _ in range(_BLOCKS + 1)]
        del requests[0]  # the first one still warms up
        await _stream(counter, pool, _LONG, upstream.port)
        short, long = [], []
        for _ in range(_STREAMS):
            short.append(await _stream(counter, pool, _SHORT, upstream.port))
            long.append(await _stream(counter, pool, _LONG, upstream.port))
    tokens = (_undisturbed(long) - _undisturbed(short)) / (_LONG - _SHORT)
    return {"request": round(_undisturbed(requests)), "token": round(tokens)}


def _undisturbed(counts: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(counts)[len(counts) // 4]


async def _requests(counter: "_Callgrind", pool: Pool, number: int) -> int:
    await load.small_requests(pool, speed.chat(stream=False), number)
    return counter.since_last()


async def _stream(counter: "_Callgrind", pool: Pool, tokens: int, upstream: int) -> int:
    await load.stepped(pool, speed.chat(stream=True, script=Script(tokens, WHEN_ASKED, 20_000)), tokens, upstream)
    return counter.since_last()


def made_by() -> dict[str, str]:
    """What makes counts comparable at all: the interpreter, how it was built, and the processor's instructions."""
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    built = "with profile" if optimised else "without profile"
    return {"Python": platform.python_version(), "built": built, "machine": platform.machine()}


def packages() -> dict[str, str]:
    """What the counts depend on besides, and what a change of is worth knowing."""
    return {name: version(name) for name in ("aiohttp", "uvloop", "orjson")}


def incomparable() -> str | None:
    """Why counts made here cannot be held against the baseline; None when they can."""
    stored: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    if stored["made_by"] == made_by():
        return None
    ours, theirs = (", ".join(f"{name} {value}" for name, value in by.items()) for by in (made_by(), stored["made_by"]))
    return f"not counted: the baseline was made with {theirs}; this is {ours}"


def compare(found: dict[str, int]) -> tuple[bool, list[str]]:
    """Hold counts against the baseline: whether none has grown too much, and a line about each."""
    stored: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    fine, lines = True, []
    if stored["packages"] != packages():
        lines.append(f"the baseline was made with {stored['packages']}, this with {packages()}")
    for name, now in found.items():
        before = stored["instructions"][name]
        grown = now / before - 1
        fine = fine and grown <= TOLERANCE
        lines.append(f"instructions of a {name}: {now:,}, {grown:+.1%} on {before:,} (at most {TOLERANCE:+.0%})")
    return fine, lines


def save(found: dict[str, int]) -> None:
    """Make these counts the baseline."""
    stored = {"made_by": made_by(), "packages": packages(), "instructions": found}
    BASELINE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def _program(command: Sequence[str]) -> list[str]:
    """The command with its interpreter written out, because valgrind does not follow a script's first line."""
    script = Path(command[0])
    first = script.read_bytes()[:200].split(b"\n", 1)[0] if script.exists() else b""
    return [*(first[2:].decode().split() if first.startswith(b"#!") else []), *command]


async def _known(gate: Target, pool: Pool) -> None:
    """Let the gate meet its model, build its tokenizer and check itself."""
    for _ in range(120):
        await load.small_requests(pool, speed.chat(stream=False), 2)
        _, told = await load.ask(gate.port, get("/gate/status"))
        if b'"tokenizer":"ready"' in told.replace(b'": "', b'":"'):
            break
        await asyncio.sleep(1.0)
    await load.streams(pool, [speed.chat(stream=True, script=Script(5, 20_000, 20_000))], 5)
    await asyncio.sleep(3.0)


class _Callgrind:
    """Tells callgrind, which counts in the gate's process, from when to when."""

    def __init__(self, home: Path, gate: Target) -> None:
        """Begin to count."""
        self._out = home / f"callgrind.{gate.pid}"
        self._pid = gate.pid
        self._dumps = 0
        self._control("-i", "on")

    def since_last(self) -> int:
        """Instructions since the last time, or since the beginning."""
        self._control("-d")
        self._dumps += 1
        found = _TOTALS.search(Path(f"{self._out}.{self._dumps}").read_text(errors="replace"))
        if found is None:
            raise LoadError("callgrind counted nothing")
        return int(found[1])

    def _control(self, *what: str) -> None:
        command = ["callgrind_control", *what, str(self._pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadError(f"callgrind cannot be told {' '.join(what)}: {done.stdout}{done.stderr}")
