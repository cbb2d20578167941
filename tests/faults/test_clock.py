"""A wall clock that jumps by years, in both directions, while requests wait, count against quotas and hold memory."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings
from support.faultfront import MODEL, TALK
from support.gate import metric, running_gate
from support.http import ask
from support.keyring import add_key, bearer
from support.waiting import until

YEARS = 10 * 365 * 86400.0
CHAT = {"model": MODEL, "messages": TALK, "stream": False}
both_ways = pytest.mark.parametrize("jump", [YEARS, -YEARS], ids=["forward", "back"])


@contextmanager
def jumped(seconds: float) -> Iterator[None]:
    """The wall clock is off by so much; the steady one is not, as when ntpd or somebody sets it."""
    true = time.time
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", lambda: true() + seconds)
        yield


@pytest.fixture
async def ollama() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Settings()) as rehearsal:
        yield rehearsal


def waiting(gate: Gate) -> int:
    """Requests that wait for a slot."""
    return sum(queue.waiting for queue in gate.wiring.admission.gatekeeper.scheduler.queues.values())


@both_ways
async def test_nobody_who_waits_is_refused_or_forgotten_for_it(ollama: Rehearsal, jump: float) -> None:
    ollama.fault("slow", path="/api/chat", seconds=0.3, times=1)
    async with running_gate(ollama.url, queue={"deadline": "60s"}) as gate:
        running = asyncio.ensure_future(ask(gate.address, "POST", "/api/chat", CHAT))
        await ollama.journal.until(lambda journal: bool(journal.to("/api/chat")))
        second = asyncio.ensure_future(ask(gate.address, "POST", "/api/chat", CHAT))
        await until(lambda: waiting(gate) == 1)
        with jumped(jump):
            replies = await asyncio.gather(running, second)
            assert [reply.status for reply in replies] == [200, 200]
            assert float(replies[1].gate("wait") or 0) < 60
            assert metric(gate, "in_flight") == 0
            status = (await ask(gate.address, "GET", "/gate/status")).json
    assert 0 <= status["uptime_seconds"] < 60


@both_ways
async def test_a_deadline_is_kept_all_the_same(ollama: Rehearsal, jump: float) -> None:
    ollama.fault("hang", path="/api/chat", times=1)
    async with running_gate(ollama.url, queue={"deadline": 0.3}) as gate:
        running = asyncio.ensure_future(ask(gate.address, "POST", "/api/chat", CHAT))
        await ollama.journal.until(lambda journal: bool(journal.to("/api/chat")))
        with jumped(jump):
            late = await ask(gate.address, "POST", "/api/chat", CHAT)
        assert (late.status, late.json["code"]) == (503, "queue_timeout")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@both_ways
async def test_a_quota_is_neither_given_back_nor_used_up(ollama: Rehearsal, tmp_path: Path, jump: float) -> None:
    keys = tmp_path / "keys.json"
    shown = bearer(add_key(keys, limits={"requests_per_minute": 2}))
    async with running_gate(ollama.url, access={"keys": str(keys)}) as gate:
        assert (await ask(gate.address, "POST", "/api/chat", CHAT, shown)).status == 200
        with jumped(jump):
            assert (await ask(gate.address, "POST", "/api/chat", CHAT, shown)).status == 200
            over = await ask(gate.address, "POST", "/api/chat", CHAT, shown)
        assert over.status == 429
        assert 0 < int(over.header("Retry-After") or 0) <= 62  # a window is told to its slot


async def test_a_key_ends_by_the_wall_clock_for_that_is_what_it_was_given(ollama: Rehearsal, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    shown = bearer(add_key(keys, expires=time.time() + 3600))
    async with running_gate(ollama.url, access={"keys": str(keys)}) as gate:
        assert (await ask(gate.address, "POST", "/api/chat", CHAT, shown)).status == 200
        door, true = gate.entrance.door, time.time
        door._wall = lambda: true() + 7200
        assert (await ask(gate.address, "POST", "/api/chat", CHAT, shown)).status == 401
        door._wall = true
        assert (await ask(gate.address, "POST", "/api/chat", CHAT, shown)).status == 200


@both_ways
async def test_what_is_loaded_stays_booked(ollama: Rehearsal, jump: float) -> None:
    """Ollama's times of expiry come from the same clock, and from before the jump."""
    async with running_gate(ollama.url, memory={"limit": "64GiB"}) as gate:
        assert (await ask(gate.address, "POST", "/api/chat", CHAT)).status == 200
        gatekeeper = gate.wiring.admission.gatekeeper
        held = gatekeeper.scheduler.ledger.held
        with jumped(jump):
            gatekeeper.look()
            await until(lambda: not gatekeeper._looking)
            assert gatekeeper.scheduler.ledger.held == held > 0
            assert (await ask(gate.address, "POST", "/api/chat", CHAT)).status == 200
        assert ollama.loads(MODEL) == 1
        assert not gatekeeper.scheduler.ledger.alerts
