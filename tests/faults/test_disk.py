"""A disk that takes nothing more: requests go on, counts stay exact, and nothing half-written is left."""

import io
import resource
from pathlib import Path
from typing import Literal

import psutil  # type: ignore[import-untyped]
import pytest

from ollama_gate.observe import log
from ollama_gate.rehearsal import Rehearsal, Settings
from support.faultfront import MODEL, TALK, WAYS
from support.gate import running_gate
from support.gateprocess import GateProcess, gate_process
from support.http import Client, ask


async def rung(gate: GateProcess) -> object:
    """How the gate counts now."""
    counted = await ask(gate.address, "POST", "/gate/count", {"model": MODEL, "messages": TALK})
    assert counted.status == 200, counted.body
    return counted.json["rung"]


@pytest.mark.slow
async def test_tokenizers_that_cannot_be_kept_count_all_the_same(tmp_path: Path) -> None:
    async with Rehearsal(Settings()) as ollama, gate_process(tmp_path, ollama.url) as gate:
        cache = tmp_path / "cache"
        # As on a full disk a file can be made, and what is written into it is refused.
        psutil.Process(gate.pid).rlimit(resource.RLIMIT_FSIZE, (32_768, resource.RLIM_INFINITY))
        for way in WAYS.values():
            reply = await ask(gate.address, "POST", way.path, way.body())
            assert (reply.status, reply.complete) == (200, True)
        assert await rung(gate) == "exact"
        assert [path.name for path in cache.iterdir() if not path.name.startswith("learned-")] == []
        psutil.Process(gate.pid).rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        gate.process.terminate()  # type: ignore[union-attr]
        assert await gate.ended() == 0
        await gate.start()
        assert await rung(gate) == "exact"
        assert len([path for path in cache.iterdir() if path.suffix == ".tokenizer"]) == 1
        assert not gate.told("internal error")


@pytest.mark.slow
@pytest.mark.parametrize("style", ["json", "console"])
async def test_a_log_that_takes_nothing_fails_nobody(style: Literal["json", "console"]) -> None:
    """Neither requests, which go on over the same connection, nor what runs beside them: the tokenizer, the guard."""
    with io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as full:  # no space left on device
        log.configure("debug", style, full)
        await _served_over_one_connection()


async def _served_over_one_connection() -> None:
    async with (
        Rehearsal(Settings()) as ollama,
        running_gate(ollama.url, memory={"limit": "64GiB"}) as gate,
        await Client.connect(gate.address) as client,
    ):
        for way in WAYS.values():
            await client.send("POST", way.path, way.body())
            reply = await client.rest(await client.head())
            assert (reply.status, reply.complete) == (200, True)
        await client.send("POST", "/gate/count", {"model": MODEL, "messages": TALK})
        counted = await client.rest(await client.head())
        assert counted.json["rung"] == "exact"
