"""What is measured of each target, round after round, so that every ratio is one of neighbours in time."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Final

from bench import load, processes
from bench.http11 import post
from bench.load import Pool
from bench.script import Script
from bench.targets import Target
from bench.upstream import MODEL

_BLOCKS: Final = 10
"""First bytes and small requests are taken in so many turns of all targets: they are the most easily disturbed."""


_PAUSED: Final = Script(first=5_000)
"""One token, after a pause as no model is without."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int = 5
    first_bytes: int = 300
    requests: int = 3000
    paced_streams: int = 100
    paced_tokens: int = 200
    paced_gap: int = 15_000
    """Microseconds between two tokens of a stream."""
    slow_streams: int = 200
    slow_tokens: int = 60
    slow_gap: int = 100_000


QUICK: Final = Plan(rounds=2, first_bytes=100, requests=1000, paced_tokens=80, slow_tokens=20)
TINY: Final = Plan(1, first_bytes=10, requests=64, paced_streams=4, paced_tokens=5, slow_streams=4, slow_tokens=3)
"""Only shows that everything runs."""


@dataclass(slots=True)
class Record:
    """Values by measure and target, one a round."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, measure: str, target: str, value: float) -> None:
        """Note one value."""
        self.values.setdefault(measure, {}).setdefault(target, []).append(value)


_SYSTEM: Final = (
    "You are a careful assistant for a small team of engineers. You answer in plain words, you say what you do not "
    "know, and you never invent an interface that does not exist. When code is asked for, you give the whole function "
    "with its types, and one sentence that says why it is written that way. "
) * 2
_QUESTION: Final = (
    "Here is the failing line: `assert window.num_ctx % 256 == 0`. The window is declared as 8000 tokens in the "
    "configuration, and the slot that the engine makes is larger than that. What is the shortest honest fix?"
)


def chat(*, stream: bool, script: Script | None = None, model: str = MODEL, path: str = "/api/chat") -> bytes:
    """A chat request of about 1 KB, whose byte bound is far inside the default budget."""
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}]
    body: dict[str, object] = {"model": model, "messages": messages, "stream": stream}
    wishes: dict[str, object] = {"temperature": 0.2}
    if script is not None:
        wishes["stop_sequences" if path == "/v1/messages" else "stop"] = [script.mark]
    body |= {"options": wishes} if path == "/api/chat" else {**wishes, "max_tokens": 1000}
    return post(path, json.dumps(body, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Lane:
    """A streaming route that the gate translates, and what stands before each token's text in its answer."""

    name: str
    path: str
    marker: bytes


TRANSLATED: Final = (
    Lane("OpenAI", "/v1/chat/completions", b'"content":"'),
    Lane("Anthropic", "/v1/messages", b'"text":"'),
)


async def spoken(target: Target, lane: Lane) -> bool:
    """Whether a target translates a route; a version that does not yet answers 501."""
    request = chat(stream=True, script=Script(), path=lane.path)
    status, _ = await load.ask(target.port, request)
    return status == 200


async def warm(target: Target) -> None:
    """Let a target do once what it does only once."""
    async with Pool(target.port, 16) as pool:
        await load.small_requests(pool, chat(stream=False), 64)
        await load.streams(pool, [chat(stream=True, script=Script(3, 5000, 5000))] * 16, 3)


async def one_round(targets: Sequence[Target], plan: Plan, lanes: Sequence[Lane], record: Record) -> None:
    """Measure everything once on every target."""
    await _first_bytes(targets, plan, record, "first byte")
    await _first_bytes(targets, plan, record, "first byte at once", Script())
    for concurrency in (16, 64):
        await _small(targets, plan, concurrency, record)
    for target in targets:
        cost = await _paced(target, plan, record, "paced", "/api/chat", b'"content":"')
        if target.name != "gate":
            continue
        for lane in lanes:
            translated = await _paced(target, plan, record, f"paced {lane.name}", lane.path, lane.marker)
            record.add(f"translated {lane.name}", "gate", translated / cost)
    for target in targets:
        await _slow(target, plan, record)


async def _first_bytes(
    targets: Sequence[Target], plan: Plan, record: Record, measure: str, script: Script = _PAUSED
) -> None:
    request = chat(stream=True, script=script)
    waits: dict[str, list[float]] = {target.name: [] for target in targets}
    for _ in range(_BLOCKS):
        for target in targets:
            async with Pool(target.port, 1) as pool:
                await load.first_bytes(pool, request, 3)
                waits[target.name] += await load.first_bytes(pool, request, max(1, plan.first_bytes // _BLOCKS))
    for name, seen in waits.items():
        record.add(measure, name, median(seen))


async def _small(targets: Sequence[Target], plan: Plan, concurrency: int, record: Record) -> None:
    """In small blocks, the targets in turn; of its blocks the lower quartile is taken.

    What else runs on the machine can only make a block dearer (it empties the caches), never cheaper.
    """
    request, each = chat(stream=False), max(concurrency, plan.requests // _BLOCKS)
    costs: dict[str, list[float]] = {target.name: [] for target in targets}
    seconds: dict[str, list[float]] = {target.name: [] for target in targets}
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(Pool(target.port, concurrency)) for target in targets]
        for _ in range(_BLOCKS):
            for target, pool in zip(targets, pools, strict=True):
                await load.small_requests(pool, request, concurrency)
                async with _cpu(target) as spent:
                    seconds[target.name].append(await load.small_requests(pool, request, each))
                costs[target.name].append(spent.cpu / each)
    for target in targets:
        if target.pid is not None:
            record.add(f"request c{concurrency}", target.name, _quartile(costs[target.name]))
        record.add(f"rate c{concurrency}", target.name, each / _quartile(seconds[target.name]))


def _quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


async def _paced(target: Target, plan: Plan, record: Record, measure: str, path: str, marker: bytes) -> float:
    script = Script(plan.paced_tokens, plan.paced_gap, 50_000)
    requests = [chat(stream=True, script=script, path=path)] * plan.paced_streams
    tokens = plan.paced_streams * plan.paced_tokens
    async with Pool(target.port, plan.paced_streams) as pool, _cpu(target) as spent:
        await load.streams(pool, requests, plan.paced_tokens, marker)
    if target.pid is not None:
        record.add(measure, target.name, spent.cpu / tokens)
    return spent.cpu / tokens


async def _slow(target: Target, plan: Plan, record: Record) -> None:
    # They all begin at once, but their tokens are spread over time, as those of many conversations are.
    pauses = [100_000 + number * plan.slow_gap // plan.slow_streams for number in range(plan.slow_streams)]
    requests = [chat(stream=True, script=Script(plan.slow_tokens, plan.slow_gap, pause)) for pause in pauses]
    async with Pool(target.port, plan.slow_streams) as pool:
        seen = await load.streams(pool, requests, plan.slow_tokens)
    record.add("latest token", target.name, max(seen.late))
    record.add("late p99", target.name, quantiles(seen.late, n=100, method="inclusive")[98])
    record.add("latest first token", target.name, max(seen.late_first))


@dataclass(slots=True)
class _Spent:
    """CPU time, in seconds, that a target took for what happened inside; 0 where there is no proxy."""

    cpu: float = 0.0


@asynccontextmanager
async def _cpu(target: Target) -> AsyncIterator[_Spent]:
    spent = _Spent()
    if target.pid is None:
        yield spent
        return
    processes.settled(target.pid)
    before = processes.cpu_seconds(target.pid)
    yield spent
    spent.cpu = processes.cpu_seconds(target.pid) - before
