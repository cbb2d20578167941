"""Instructions instead of seconds: what a request and a token cost the gate, the same on an idle and on a busy machine.

The gate runs under valgrind's callgrind, which counts every instruction outside the kernel. It is fifty times slower
there, so this says nothing about time; it says whether the code has become more expensive.
"""

import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench import load, speed, targets
from bench.http11 import get
from bench.load import LoadError, Pool
from bench.script import Script
from bench.targets import Target

INSTALL_VALGRIND: Final = "apt-get update && apt-get install -y valgrind"
BASELINE: Final = Path(__file__).parent / "instructions.json"
TOLERANCE: Final = 0.10
"""Share by which a count may grow."""
_STARTING: Final = 240.0
_REQUESTS: Final = 100
_TOKENS: Final = 1000
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
        request = speed.chat(stream=False)
        await load.small_requests(pool, request, 20)
        _control(gate, "-i", "on")
        await load.small_requests(pool, request, _REQUESTS)
        _control(gate, "-d")
        # Nothing but tokens is counted: what their request costs is counted above.
        script = Script(_TOKENS, 10_000, 4_000_000)
        streaming = asyncio.get_running_loop().create_task(
            load.streams(pool, [speed.chat(stream=True, script=script)], _TOKENS)
        )
        await asyncio.sleep(2.0)
        _control(gate, "-d")
        await streaming
        _control(gate, "-d")
        parts = [_total(home, gate, number) for number in (1, 3)]
    return {"request": parts[0] // _REQUESTS, "token": parts[1] // _TOKENS}


def versions() -> dict[str, str]:
    """What the counts depend on besides the gate's own code."""
    return {"Python": platform.python_version(), **{name: version(name) for name in ("aiohttp", "uvloop", "orjson")}}


def compare(found: dict[str, int]) -> tuple[bool, list[str]]:
    """Hold counts against the baseline: whether none has grown too much, and a line about each."""
    if not BASELINE.exists():
        return False, ["there is no baseline; --save makes one"]
    stored: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    fine, lines = True, []
    if stored["versions"] != versions():
        lines.append(f"the baseline was made with {stored['versions']}, this with {versions()}")
    for name, now in found.items():
        before = stored["instructions"][name]
        grown = now / before - 1
        fine = fine and grown <= TOLERANCE
        lines.append(f"instructions of a {name}: {now:,}, {grown:+.1%} on {before:,} (at most {TOLERANCE:+.0%})")
    return fine, lines


def save(found: dict[str, int]) -> None:
    """Make these counts the baseline."""
    stored = {"versions": versions(), "instructions": found}
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


def _control(gate: Target, *what: str) -> None:
    done = subprocess.run(["callgrind_control", *what, str(gate.pid)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadError(f"callgrind cannot be told {' '.join(what)}: {done.stdout}{done.stderr}")


def _total(home: Path, gate: Target, part: int) -> int:
    found = _TOTALS.search((home / f"callgrind.{gate.pid}.{part}").read_text(errors="replace"))
    if found is None:
        raise LoadError("callgrind counted nothing")
    return int(found[1])
