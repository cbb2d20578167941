"""Admission put to work: what the configuration's keys make of a model's memory and of the limit."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
import structlog

from ollama_gate.admission.launching import memory_policy
from ollama_gate.admission.memory import Footprint
from ollama_gate.admitting import Admission
from ollama_gate.catalog.card import ModelCard, card_from_show
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.config import Config
from ollama_gate.observe.metrics import Metrics
from ollama_gate.policies import Policies
from ollama_gate.requests import Control, Json
from ollama_gate.tasks import spawn
from ollama_gate.upstream.client import Upstream, UpstreamSettings
from support.shows import PUBLISHED

GIB = 1024**3


class Ps:
    """An Ollama that only tells what is loaded."""

    def __init__(self) -> None:
        self.rows: list[Json] = []

    async def get_json(self, path: str, *, within: float = 10.0) -> Any:
        assert within > 0
        return {"models": self.rows} if path == "/api/ps" else {"version": "0.33.0"}

    async def exchange(self, method: str, path: str, payload: Json | None, *, within: float) -> tuple[int, bytes]:
        assert (method, path, payload, within > 0) == ("GET", "/api/tags", None, True)
        return 200, b'{"models":[]}'


def admission(ollama: Ps | None = None, **sections: Any) -> Admission:
    return Admission(
        Config.model_validate(sections),
        upstream=Upstream(UpstreamSettings()),
        catalog=Catalog(ollama or Ps(), clock=lambda: 0.0),
        metrics=Metrics(),
        log=structlog.get_logger(),
        clock=lambda: 0.0,
    )


def takes(published: str, **sections: Any) -> Footprint:
    """What a published model takes with a window of 8192 under some configuration."""
    card = card_from_show("k", "n", "d", PUBLISHED[published], size=5 * GIB)
    applied = Policies(Config.model_validate(sections)).for_card(card)
    return admission(**sections).demand(card, applied).footprint


@pytest.mark.parametrize(
    ("model", "section", "key", "value", "part"),
    [
        ("llama-8b", "upstream", "num_parallel", 4, "kv_full"),
        ("llama-8b", "upstream", "kv_cache_type", "f32", "kv_full"),
        ("llama-8b", "upstream", "flash_attention", False, "compute_bound"),
        ("llama-8b", "memory", "host_cache_per_model", "9GiB", "host_cache_bound"),
        ("gemma3-4b", "memory", "checkpoints", 64, None),
        ("llama-8b", "memory", "gpus", 2, "headroom"),
        ("llama-8b", "defaults", "num_ctx", 16384, "kv_full"),
        ("llama-8b", "defaults", "num_batch", 4096, "compute_bound"),
        ("gemma3-4b", "upstream", "swa_full", True, "kv_sliding"),
    ],
)
def test_each_key_changes_what_is_booked(model: str, section: str, key: str, value: Any, part: str | None) -> None:
    before, after = takes(model), takes(model, **{section: {key: value}})
    if part is None:
        assert after.checkpoints == before.checkpoints > takes(model, memory={"checkpoints": 1}).checkpoints > 0
    else:
        assert getattr(after, part) > getattr(before, part)


@pytest.mark.parametrize(
    ("memory", "gpus", "counts_host"),
    [
        ({}, 0, True),
        ({}, 1, False),
        ({"counts_host": True}, 2, True),
        ({"counts_host": False}, 0, False),
    ],
)
def test_without_a_gpu_of_its_own_memory_the_host_counts(
    memory: dict[str, Any], gpus: int, *, counts_host: bool
) -> None:
    policy = memory_policy(Config.model_validate({"memory": memory}), machine=5, gpus=gpus)
    assert (policy.limit, policy.counts_host) == (None, counts_host)


def test_a_limit_of_auto_is_the_machine_less_the_reserve() -> None:
    config = Config.model_validate({"memory": {"limit": "auto", "reserve": "1MiB"}})
    assert memory_policy(config, machine=GIB, gpus=0).limit == GIB - 1024**2
    hopeless = Config.model_validate({"memory": {"limit": "auto", "reserve": "1024TiB"}})
    assert memory_policy(hopeless, machine=GIB, gpus=0).limit == 0


@pytest.mark.parametrize(
    ("configured", "size_vram", "gpus"), [("auto", 0, 0), ("auto", 5, 1), (0, 5, 0), (3, 0, 3), (3, 5, 3)]
)
async def test_a_gpu_is_seen_by_the_video_memory_in_use(configured: Any, size_vram: int, gpus: int) -> None:
    ollama = Ps()
    one = admission(ollama, memory={"gpus": configured, "limit": "24GiB"})
    ollama.rows = [{"model": "x", "size": 10, "size_vram": size_vram, "context_length": 4096}]
    [found] = await one._residents()
    assert (found.model, found.size_vram) == ("x", size_vram)
    card = card_from_show("k", "n", "d", PUBLISHED["llama-8b"], size=5 * GIB)
    demand = one.demand(card, Policies(Config()).for_card(card))
    assert one.gpus == gpus
    assert one.gatekeeper.scheduler.ledger.policy.counts_host == (gpus == 0)
    assert demand.plan is not None
    assert demand.plan.gpus == gpus


def named(digest: str, show: Json = PUBLISHED["llama-8b"]) -> ModelCard:
    return card_from_show(f"key-{digest}", f"name-{digest}", digest, show, size=5 * GIB)


async def test_models_that_are_no_longer_listed_are_forgotten_unless_something_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ollama = Ps()
    one = admission(ollama)
    applied = Policies(Config()).for_card(named("x"))
    listed: list[ModelCard] = []
    monkeypatch.setattr(Catalog, "known", lambda _: listed)
    for number in range(300):  # each digest is pulled, used once, and replaced by the next
        card = named(str(number))
        listed[:] = [card]
        async with one.lease(card, applied, "client", Control.NONE) as lease:
            lease.unsent()
        await one._residents()
    assert len(one._cards) == len(one._demands) == len(one.gatekeeper.scheduler.queues) == 1
    assert one._shared._kinds.keys() == {"299"}

    running, waiting, loaded = named("running"), named("waiting"), named("loaded")
    async with one.lease(loaded, applied, "client", Control.NONE) as lease:
        lease.answered()
    await one.lease(running, applied, "client", Control.NONE).__aenter__()
    first = one.lease(waiting, applied, "client", Control.NONE)
    await first.__aenter__()
    second = spawn(one.lease(waiting, applied, "client", Control.NONE).__aenter__(), name="waiting")
    await asyncio.sleep(0)
    await one._residents()
    assert one._cards.keys() == {"299", "running", "waiting", "loaded"}
    assert one._called("loaded") == "name-loaded"
    listed.clear()
    await one._residents()
    assert len(one._cards) == 4, "an empty list is one that is being read"
    first.leave()
    lease = await second
    lease.leave()
    assert one.gatekeeper.scheduler.queues["waiting"].running == 0
    one.gatekeeper.close()


async def test_a_runner_is_called_by_a_name_that_ollama_still_has(monkeypatch: pytest.MonkeyPatch) -> None:
    file = {**PUBLISHED["llama-8b"], "modelfile": "FROM /models/blobs/sha256-aa\n"}
    gone, there = named("gone", file), named("there", file)
    assert gone.runner == there.runner
    one = admission()
    listed = [there, gone]
    monkeypatch.setattr(Catalog, "known", lambda _: listed)
    async with one.lease(gone, Policies(Config()).for_card(gone), "client", Control.NONE) as lease:
        lease.answered()
    assert one._called(gone.runner) == "name-gone"
    del listed[1]
    await one._residents()
    assert one._called(gone.runner) == "name-there"


async def test_ever_new_windows_of_one_model_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    one, card = admission(), named("x")
    monkeypatch.setattr(Catalog, "known", lambda _: [card])
    monkeypatch.setattr("ollama_gate.admitting._MOST_DEMANDS", 5)
    for num_ctx in range(1000, 1100):
        one._demand(card, num_ctx)
        await one._residents()
        assert len(one._demands) <= 5


async def test_who_waits_for_a_slot_gets_it_as_soon_as_a_reload_says_that_there_are_more() -> None:
    told = admission()
    card = card_from_show("k", "n", "d", PUBLISHED["llama-8b"], size=5 * GIB)
    config = Config.model_validate({"upstream": {"num_parallel": 3}})
    applied = Policies(Config()).for_card(card)
    leases = [told.lease(card, applied, "a", Control.NONE) for _ in range(4)]
    turns = [turn for lease in leases if (turn := lease.enter()) is not None]
    waiting = [spawn(wait(turn), name="waiting") for turn in turns]
    queue = told.gatekeeper.scheduler.queues[card.runner]
    assert (queue.running, queue.waiting) == (1, 3)
    told.configure(config, upstream=Upstream(UpstreamSettings()), catalog=Catalog(Ps(), clock=lambda: 0.0))
    assert (queue.running, queue.waiting) == (3, 1)
    for lease in leases[:3]:
        lease.leave()
    await asyncio.gather(*waiting)
    leases[3].leave()
    told.gatekeeper.close()


async def wait(turn: Awaitable[object]) -> None:
    await turn
