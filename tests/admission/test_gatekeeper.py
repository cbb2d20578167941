import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from ollama_gate.admission import gatekeeper as gatekeeper_module
from ollama_gate.admission.alerts import Alert, LoadedElsewhere, MemoryUnknown
from ollama_gate.admission.gatekeeper import Gatekeeper
from ollama_gate.admission.holdings import MemoryPolicy, OnFull
from ollama_gate.admission.queue import QueuePolicy
from ollama_gate.admission.residents import Reported
from ollama_gate.errors import Refused, UpstreamBroken, UpstreamUnreachable
from ollama_gate.requests import Control
from ollama_gate.tasks import spawn
from support.demands import GIB, takes


class Ollama:
    """The two calls that the gatekeeper makes."""

    def __init__(self) -> None:
        self.loaded: dict[str, Reported] = {}
        self.unloaded: list[str] = []
        self.asked = 0
        self.reachable = True
        self.speaks = True
        self.unloads = asyncio.Event()
        self.unloads.set()

    async def residents(self) -> Sequence[Reported]:
        self.asked += 1
        if not self.reachable:
            raise UpstreamUnreachable("nobody there")
        if not self.speaks:
            raise UpstreamBroken("that is no list")
        return list(self.loaded.values())

    async def unload(self, model: str) -> None:
        await self.unloads.wait()
        if not self.reachable:
            raise UpstreamUnreachable("nobody there")
        self.unloaded.append(model)
        self.loaded.pop(model, None)


@pytest.fixture
def ollama() -> Ollama:
    return Ollama()


Make = Callable[..., Gatekeeper]


@pytest.fixture
async def make(ollama: Ollama) -> AsyncIterator[Make]:
    made: list[Gatekeeper] = []

    def build(
        limit: float | None = None, depth: int = 8, deadline: float = 240.0, on_full: OnFull = OnFull.EVICT
    ) -> Gatekeeper:
        alerts: list[Alert] = []
        gatekeeper = Gatekeeper(
            QueuePolicy(depth, deadline),
            MemoryPolicy(None if limit is None else int(limit * GIB), on_full),
            residents=ollama.residents,
            unload=ollama.unload,
            on_alert=alerts.append,
        )
        made.append(gatekeeper)
        return gatekeeper

    yield build
    for gatekeeper in made:
        gatekeeper.close()


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def hold(gatekeeper: Gatekeeper, model: str, until: asyncio.Event, gib: float = 1, num_ctx: int = 4096) -> float:
    async with gatekeeper.lease(model, "a", takes(gib, num_ctx)) as lease:
        lease.answered()
        await until.wait()
        return lease.waited


def slots(gatekeeper: Gatekeeper, model: str) -> tuple[int, int]:
    """(running, waiting)"""
    queue = gatekeeper.scheduler.queues[model]
    return queue.running, queue.waiting


async def test_a_free_slot_costs_no_trip_through_the_loop(make: Make) -> None:
    gatekeeper = make()
    entering = gatekeeper.lease("m", "a", takes(1)).__aenter__()
    with pytest.raises(StopIteration):
        entering.send(None)
    assert slots(gatekeeper, "m") == (1, 0)


async def test_the_next_runs_when_the_one_before_has_left(make: Make) -> None:
    gatekeeper, first, second = make(), asyncio.Event(), asyncio.Event()
    tasks = [spawn(hold(gatekeeper, "m", event), name="holder") for event in (first, second)]
    await settle()
    assert slots(gatekeeper, "m") == (1, 1)
    first.set()
    await settle()
    assert slots(gatekeeper, "m") == (1, 0)
    second.set()
    waited = await asyncio.gather(*tasks)
    assert waited[0] == 0.0
    assert waited[1] > 0.0
    assert slots(gatekeeper, "m") == (0, 0)


async def test_a_full_queue_is_a_refusal(make: Make) -> None:
    gatekeeper = make(depth=0)
    async with gatekeeper.lease("m", "a", takes(1)):
        with pytest.raises(Refused) as no:
            async with gatekeeper.lease("m", "b", takes(1)):
                pass
    assert (no.value.refusal.status, no.value.refusal.code) == (503, "queue_full")
    async with gatekeeper.lease("m", "b", takes(1)) as lease:
        assert lease.waited == 0.0


async def test_a_waiter_is_refused_at_its_deadline(make: Make) -> None:
    gatekeeper = make(deadline=0.01)
    async with gatekeeper.lease("m", "a", takes(1)):
        with pytest.raises(Refused) as no:
            async with gatekeeper.lease("m", "b", takes(1)):
                pass
    assert no.value.refusal.code == "queue_timeout"


async def test_a_cancelled_waiter_is_gone_at_once(make: Make) -> None:
    gatekeeper, done = make(), asyncio.Event()
    holder = spawn(hold(gatekeeper, "m", done), name="holder")
    await settle()
    waiter = spawn(hold(gatekeeper, "m", done), name="waiter")
    await settle()
    waiter.cancel()
    await settle()
    assert waiter.cancelled()
    assert slots(gatekeeper, "m") == (1, 0)
    done.set()
    await holder


async def test_a_waiter_cancelled_at_the_moment_of_its_turn_gives_the_slot_on(make: Make) -> None:
    gatekeeper, done, forever = make(), asyncio.Event(), asyncio.Event()
    holder = spawn(hold(gatekeeper, "m", done), name="holder")
    await settle()
    unlucky, next_one = (spawn(hold(gatekeeper, "m", forever), name="waiter") for _ in range(2))
    await settle()
    done.set()
    await holder  # the slot is the unlucky one's now, but its task has not run yet
    unlucky.cancel()
    await settle()
    assert unlucky.cancelled()
    assert slots(gatekeeper, "m") == (1, 0)
    forever.set()
    await next_one
    assert slots(gatekeeper, "m") == (0, 0)


async def test_a_waiter_whose_cancellation_is_under_way_when_its_turn_comes_gives_the_slot_on(make: Make) -> None:
    gatekeeper, forever = make(), asyncio.Event()
    lease = gatekeeper.lease("m", "a", takes(1))
    await lease.__aenter__()
    unlucky, next_one = (spawn(hold(gatekeeper, "m", forever), name="waiter") for _ in range(2))
    await settle()
    unlucky.cancel()
    await lease.__aexit__(None, None, None)  # its future is cancelled, its task does not know yet
    await settle()
    assert unlucky.cancelled()
    assert slots(gatekeeper, "m") == (1, 0)
    forever.set()
    await next_one


async def test_a_holder_that_fails_or_is_cancelled_frees_its_slot(make: Make) -> None:
    gatekeeper, never = make(), asyncio.Event()
    with pytest.raises(ZeroDivisionError):
        async with gatekeeper.lease("m", "a", takes(1)):
            raise ZeroDivisionError
    assert slots(gatekeeper, "m") == (0, 0)
    holder = spawn(hold(gatekeeper, "m", never), name="holder")
    await settle()
    holder.cancel()
    await settle()
    assert slots(gatekeeper, "m") == (0, 0)


async def test_an_idle_model_is_unloaded_for_the_next_one(make: Make, ollama: Ollama) -> None:
    gatekeeper = make(limit=10)
    async with gatekeeper.lease("a", "x", takes(6)) as lease:
        ollama.loaded["a"] = Reported("a", 4 * GIB, 0, 4096)
        lease.answered()
    async with gatekeeper.lease("b", "x", takes(6)):
        assert ollama.unloaded == ["a"]
        assert gatekeeper.scheduler.ledger.held <= 10 * GIB


async def test_a_load_waits_until_ps_no_longer_lists_what_was_told_to_go(make: Make, ollama: Ollama) -> None:
    gatekeeper, done = make(limit=10), asyncio.Event()
    done.set()
    ollama.loaded["a"] = stuck = Reported("a", 4 * GIB, 0, 4096)
    await hold(gatekeeper, "a", done, 6)
    ollama.unloads.clear()
    waiter = spawn(hold(gatekeeper, "b", done, 6), name="waiter")
    await settle()
    assert (slots(gatekeeper, "b"), ollama.unloaded) == ((0, 1), [])
    ollama.unloads.set()
    await asyncio.wait_for(waiter, 5)
    assert stuck.model in ollama.unloaded


async def test_an_unreachable_ollama_loses_nobody(make: Make, ollama: Ollama) -> None:
    gatekeeper, done = make(limit=10), asyncio.Event()
    done.set()
    await hold(gatekeeper, "a", done, 6)
    ollama.reachable = False
    waiter = spawn(hold(gatekeeper, "b", done, 6), name="waiter")
    await settle()
    assert slots(gatekeeper, "b") == (0, 1)
    ollama.reachable = True
    await asyncio.wait_for(waiter, 5)


async def test_nobody_waits_long_for_the_memory_of_an_ollama_that_has_gone(
    make: Make, ollama: Ollama, monkeypatch: pytest.MonkeyPatch
) -> None:
    gatekeeper, done = make(limit=10), asyncio.Event()
    done.set()
    await hold(gatekeeper, "a", done, 6)
    ollama.reachable = False
    monkeypatch.setattr("ollama_gate.admission.gatekeeper.PATIENCE", 0.0)
    waiter = spawn(hold(gatekeeper, "b", done, 6), name="waiter", quiet=True)
    with pytest.raises(Refused) as no:
        await asyncio.wait_for(waiter, 5)
    assert (no.value.refusal.status, no.value.refusal.code) == (503, "upstream_unreachable")
    assert slots(gatekeeper, "b") == (0, 0)
    ollama.reachable = True
    await asyncio.wait_for(hold(gatekeeper, "b", done, 6), 5)


async def test_nobody_waits_long_for_the_memory_of_an_ollama_that_does_not_say_what_is_loaded(
    make: Make, ollama: Ollama, monkeypatch: pytest.MonkeyPatch
) -> None:
    gatekeeper, done, never = make(limit=10), asyncio.Event(), asyncio.Event()
    done.set()
    running = spawn(hold(gatekeeper, "a", never, 6), name="running", quiet=True)
    await settle()
    for_a_slot = spawn(hold(gatekeeper, "a", done, 6), name="waits for a slot")
    ollama.speaks = False
    monkeypatch.setattr("ollama_gate.admission.gatekeeper.PATIENCE", 0.0)
    with pytest.raises(Refused) as no:
        await asyncio.wait_for(hold(gatekeeper, "b", done, 6), 5)
    refusal = no.value.refusal
    assert (refusal.status, refusal.code, refusal.headers["Retry-After"]) == (503, "memory_unknown", "15")
    assert "that is no list" in refusal.message
    assert slots(gatekeeper, "b") == (0, 0)
    assert slots(gatekeeper, "a") == (1, 1), "what is loaded is served"
    never.set()
    await asyncio.wait_for(asyncio.gather(running, for_a_slot), 5)


async def test_that_ollama_does_not_say_what_is_loaded_is_told_once_and_forgotten_when_it_does(ollama: Ollama) -> None:
    told: list[Alert] = []
    gatekeeper = Gatekeeper(
        QueuePolicy(),
        MemoryPolicy(),
        residents=ollama.residents,
        unload=ollama.unload,
        on_alert=told.append,
        clock=lambda: now,
    )
    ledger, now = gatekeeper.scheduler.ledger, 100.0

    async def look() -> tuple[Alert, ...]:
        gatekeeper.look()
        await settle()
        return ledger.alerts

    assert await look() == ()
    ollama.loaded["theirs"] = Reported("theirs", GIB, 0, 4096)
    [stranger] = await look()
    ollama.speaks = False
    assert await look() == (stranger,), "it may be about to say"
    now += gatekeeper_module.PATIENCE
    assert await look() == (MemoryUnknown(100.0, "that is no list"),)
    ollama.speaks, ollama.reachable = True, False
    now += 5.0
    assert await look() == (MemoryUnknown(100.0, "nobody there"),)
    ollama.reachable = True
    assert await look() == (stranger,)
    assert told == [stranger, MemoryUnknown(100.0, "that is no list")]
    ollama.speaks = False
    now += 1.0
    assert await look() == (stranger,)
    now += gatekeeper_module.PATIENCE
    [again] = await look()
    assert told[2:] == [again]


async def test_a_shorter_deadline_holds_for_those_who_wait_already(make: Make) -> None:
    gatekeeper, never = make(), asyncio.Event()
    running = spawn(hold(gatekeeper, "a", never), name="running", quiet=True)
    await settle()
    waiter = spawn(hold(gatekeeper, "a", never), name="waiter", quiet=True)
    await settle()
    gatekeeper.configure(QueuePolicy(8, deadline=0.0), MemoryPolicy(), 1)
    with pytest.raises(Refused) as no:
        await asyncio.wait_for(waiter, 5)
    assert no.value.refusal.code == "queue_timeout"
    running.cancel()


async def test_waiting_for_memory_looks_again_and_again_but_not_in_a_tight_loop(make: Make, ollama: Ollama) -> None:
    gatekeeper, done = make(limit=10, on_full=OnFull.WAIT), asyncio.Event()
    holder = spawn(hold(gatekeeper, "a", done, 6), name="holder")
    await settle()
    waiter = spawn(hold(gatekeeper, "b", done, 6), name="waiter")
    for _ in range(20):
        await settle()
    assert ollama.asked == 1
    done.set()
    await holder
    await asyncio.wait_for(waiter, 5)
    assert ollama.asked < 5


async def test_who_first_waited_for_a_slot_and_then_for_memory_is_looked_after_too(make: Make, ollama: Ollama) -> None:
    gatekeeper, first, done = make(limit=10, on_full=OnFull.WAIT), asyncio.Event(), asyncio.Event()
    done.set()
    ollama.loaded["b"] = Reported("b", 4 * GIB, 0, 4096)
    await hold(gatekeeper, "b", done, 6)
    holder = spawn(hold(gatekeeper, "a", first, 3), name="holder")
    await settle()
    waiter = spawn(hold(gatekeeper, "a", done, 9, num_ctx=8192), name="waiter")
    await settle()
    first.set()
    await holder
    await settle()
    assert gatekeeper.scheduler.line == ("a",)
    ollama.loaded.clear()
    await asyncio.wait_for(waiter, 5)


async def test_a_deadline_at_the_moment_of_a_cancellation_is_harmless(make: Make) -> None:
    gatekeeper, done = make(), asyncio.Event()
    holder = spawn(hold(gatekeeper, "m", done), name="holder")
    await settle()
    waiter = spawn(hold(gatekeeper, "m", done), name="waiter")
    await settle()
    waiter.cancel()
    gatekeeper.scheduler.tick(time.monotonic() + 1000)
    await settle()
    assert waiter.cancelled()
    assert slots(gatekeeper, "m") == (1, 0)
    done.set()
    await holder


async def test_a_model_that_does_not_fit_is_a_refusal(make: Make) -> None:
    with pytest.raises(Refused) as no:
        async with make(limit=10).lease("m", "a", takes(11)):
            pass
    assert no.value.refusal.code == "model_does_not_fit"


async def test_what_was_never_sent_frees_its_memory_and_a_vanished_client_does_not(make: Make) -> None:
    gatekeeper = make(limit=10)
    async with gatekeeper.lease("a", "x", takes(6)) as lease:
        lease.unsent()
    assert gatekeeper.scheduler.ledger.held == 0
    async with gatekeeper.lease("b", "x", takes(6)):
        pass
    assert gatekeeper.scheduler.ledger.held > 0


async def test_unloads_pass(make: Make) -> None:
    gatekeeper = make(depth=0)
    unloads = gatekeeper.lease("m", "a", takes(1), control=Control.UNLOAD)
    async with gatekeeper.lease("m", "a", takes(1)), unloads as unload:
        unload.answered()
    assert slots(gatekeeper, "m") == (0, 0)


async def test_the_guard_looks_on_a_timer_and_tells_of_strangers(ollama: Ollama) -> None:
    told: asyncio.Queue[Alert] = asyncio.Queue()
    gatekeeper = Gatekeeper(
        QueuePolicy(),
        MemoryPolicy(),
        residents=ollama.residents,
        unload=ollama.unload,
        on_alert=told.put_nowait,
    )
    guard = spawn(gatekeeper.guard(0.005), name="guard")
    await settle()
    ollama.loaded["theirs"] = Reported("theirs", GIB, 0, 4096)
    assert await asyncio.wait_for(told.get(), 5) == LoadedElsewhere("theirs", GIB)
    guard.cancel()


async def test_a_storm_of_clients_leaves_nothing_behind(make: Make, ollama: Ollama) -> None:
    gatekeeper = make(limit=10, depth=1000)

    async def client(number: int) -> None:
        model = "ab"[number % 2]
        async with gatekeeper.lease(model, f"client-{number % 7}", takes(6)) as lease:
            ollama.loaded[model] = Reported(model, 4 * GIB, 0, 4096)
            lease.answered()
            await asyncio.sleep(0)

    clients = [spawn(client(number), name="client") for number in range(60)]
    await settle()
    for one in clients[10::5]:
        one.cancel()
    await asyncio.wait_for(asyncio.gather(*clients, return_exceptions=True), 20)
    assert slots(gatekeeper, "a") == slots(gatekeeper, "b") == (0, 0)
    assert not gatekeeper._turns
    assert not any(holding.users for holding in gatekeeper.scheduler.ledger)
