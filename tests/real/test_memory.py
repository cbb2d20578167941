"""What the gate books for a model stands beside the buffers that llama-server says it allocates.

Needs the log of that Ollama beside its address: OLLAMA_GATE_REAL_LOG is the file that it writes to. num_parallel and
kv_cache_type are taken from `OLLAMA_NUM_PARALLEL` and `OLLAMA_KV_CACHE_TYPE`, as the Ollama was started with.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from support.http import ask
from support.real import SUITE, direct, gate_before, installed

LOG: Final = os.environ.get("OLLAMA_GATE_REAL_LOG", "")
AS_STARTED: Final[dict[str, Any]] = {
    "num_parallel": int(os.environ.get("OLLAMA_NUM_PARALLEL", "1")),
    "kv_cache_type": os.environ.get("OLLAMA_KV_CACHE_TYPE") or "f16",
}
MIB: Final = 1024 * 1024
ROUNDING: Final = MIB // 100
"""The log has two decimals."""
WINDOWS: Final = (512, 2048, 8192, 32768)
_BUFFER: Final = re.compile(r"(model|KV|RS|compute|output) buffer size = +([0-9.]+) MiB")

pytestmark = [
    *SUITE,
    pytest.mark.skipif(not LOG, reason="needs the log of the real Ollama: set OLLAMA_GATE_REAL_LOG to its path"),
]


def logged(start: int) -> bytes:
    """The log from this byte on."""
    with Path(LOG).open("rb") as log:
        log.seek(start)
        return log.read()


def buffers(log: str) -> Counter[str]:
    """Bytes by kind, of the last model that the log says was loaded."""
    found: Counter[str] = Counter()
    for kind, mib in _BUFFER.findall(log.rpartition("starting llama-server")[2]):
        found[kind] += round(float(mib) * MIB)
    return found


async def files() -> dict[str, str]:
    """A name for each file of weights that this Ollama has."""
    found: dict[str, str] = {}
    for name in sorted(await installed()):
        shown = (await direct("POST", "/api/show", {"model": name})).json
        if not shown.get("remote_model"):
            weights = re.search(r"^FROM (/\S+)$", shown["modelfile"], re.MULTILINE)
            found.setdefault(weights[1] if weights else name, name)
    return found


@pytest.mark.parametrize("window", WINDOWS)
async def test_what_is_booked_is_what_is_allocated(window: int) -> None:
    for name in (await files()).values():
        start = len(logged(0))
        async with gate_before(name, window, fresh=True, upstream=AS_STARTED) as gate:
            (model,) = (
                entry
                for entry in (await ask(gate.address, "GET", "/gate/status")).json["models"]
                if entry["name"] == name and entry["memory"]["stage"] == "resident"
            )
        there = buffers(logged(start).decode("utf-8", "replace"))
        booked = Counter(model["memory"]["parts"])
        caches = sum(booked[part] for part in ("kv_full", "kv_sliding", "kv_indexer"))
        rest = booked["compute_bound"] + booked["output"]
        print(
            f"{name} {window}: weights {booked['weights']} for {there['model']}, caches {caches} for {there['KV']}, "
            f"states {booked['recurrent']} for {there['RS']}, buffers {rest} for {there['compute'] + there['output']}"
        )
        assert abs(caches - there["KV"]) <= 3 * ROUNDING
        assert abs(booked["recurrent"] - there["RS"]) <= ROUNDING
        assert rest >= there["compute"] + there["output"] - 2 * ROUNDING
        assert there["model"] > 0
