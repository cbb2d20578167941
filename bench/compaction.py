"""What compacting costs, in a process of its own: times, the worker's memory, and how long the event loop is held.

python -m bench.compaction --vocabulary FILE.gguf     prints one JSON object
"""

import json
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import click
import uvloop

from bench.counting import Heartbeat, conversation, counter_of, talk_card, text_of
from ollama_gate.catalog import gguf
from ollama_gate.catalog.card import ModelCard
from ollama_gate.compaction.compactor import Case, Compactor, Outcome
from ollama_gate.compaction.originals import Checkpoints
from ollama_gate.compaction.process import WorkerProcess
from ollama_gate.compaction.remembered import RememberedCheckpoints
from ollama_gate.config.compaction import Compaction
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.store import TokenizerSource, TokenizerStore
from ollama_gate.dialects import native
from ollama_gate.window import Window, Wish, resolve

_BUDGET: Final = 13_000


class _Bench:
    """One gate's parts, as far as a compaction needs them."""

    def __init__(self, counter: Counter, card: ModelCard) -> None:
        self._counter = counter
        self._card = card
        self.room: Window = resolve(
            Wish(16_384, _BUDGET), modelfile_num_ctx=None, default_num_ctx=16_384, trained=None, vision=False
        )

    async def compact(self, compactor: Compactor, messages: list[dict[str, str]], outcome: Outcome) -> float:
        """Seconds from a request over the budget to the one that goes out, its first count included.

        Raises:
            RuntimeError: something else became of it.
        """
        body: dict[str, Any] = {"model": self._card.name, "messages": messages}
        request = native.parse("/api/chat", body, session=None)
        began = perf_counter()
        await self._counter.count(request, self._card, self.room, in_parts=False)
        done = await compactor.compact(Case(request, self._card, self.room, None, 1 << 20))
        seconds = perf_counter() - began
        if done.outcome is not outcome or done.count.at_most > _BUDGET:
            raise RuntimeError(f"{done.outcome}, {done.count.tokens} tokens")
        return seconds

    async def compactor(self, checkpoints: Checkpoints, worker: WorkerProcess) -> Compactor:
        """A compactor as the gate makes one."""
        return Compactor(Compaction(), counter=self._counter, checkpoints=checkpoints, worker=worker)


async def measure(path: Path) -> dict[str, float | str]:
    """Everything that is measured of one vocabulary; times in seconds, memory in bytes."""
    store = TokenizerStore()
    tokenizer = await store.get(TokenizerSource(path.stem, path.stem, blob=path))
    counter = counter_of(tokenizer)
    card = talk_card(gguf.read(path, tensors=False).metadata)
    bench, checkpoints, worker = _Bench(counter, card), RememberedCheckpoints(), WorkerProcess(Compaction().memory)
    compactor = await bench.compactor(checkpoints, worker)
    system = [{"role": "system", "content": text_of(903, 400)}]
    try:
        talk = [*system, *conversation(tokenizer), {"role": "user", "content": "Which budget has ledger_77?"}]
        await counter.count(native.parse("/api/chat", {"model": card.name, "messages": system}), card, bench.room)
        async with Heartbeat() as heart:
            cold = await bench.compact(compactor, talk, Outcome.NEW)
        memory = _peak(worker)
        longer = [*talk, {"role": "assistant", "content": "None."}, {"role": "user", "content": "And ledger_78?"}]
        reuse = await bench.compact(compactor, longer, Outcome.REUSED)
        # With the worker running and the messages counted before: what an agent's next compaction takes.
        again = await bench.compact(await bench.compactor(RememberedCheckpoints(), worker), longer, Outcome.NEW)
    finally:
        await compactor.close()
        counter.close()
        await store.close()
    return {
        "vocabulary": path.stem,
        "compact cold": cold,
        "compact again": again,
        "compact reuse": reuse,
        "compact loop gap": heart.longest,
        "compact memory": float(memory),
    }


def _peak(worker: WorkerProcess) -> int:
    """The most memory that the worker held so far."""
    if worker.process is None:
        return 0
    status = Path(f"/proc/{worker.process.pid}/status").read_text("ascii")
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), "0")
    return int(peak) * 1024


@click.command()
@click.option("--vocabulary", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
def main(vocabulary: Path) -> None:
    """Measure and print."""
    print(json.dumps(uvloop.run(measure(vocabulary))))


if __name__ == "__main__":
    main()
