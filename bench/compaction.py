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
from ollama_gate.compaction.compactor import Compactor
from ollama_gate.compaction.outcome import Case, Outcome
from ollama_gate.compaction.process import WorkerProcess
from ollama_gate.compaction.remembered import RememberedCheckpoints
from ollama_gate.config.compaction import Compaction
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.store import TokenizerSource, TokenizerStore
from ollama_gate.dialects import native
from ollama_gate.window import Window, Wish, resolve

_BUDGET: Final = 13_000


_ROOM: Final[Window] = resolve(
    Wish(16_384, _BUDGET), modelfile_num_ctx=None, default_num_ctx=16_384, trained=None, vision=False
)


async def _seconds(
    counter: Counter, card: ModelCard, compactor: Compactor, messages: list[dict[str, str]], outcome: Outcome
) -> float:
    """Seconds from a request over the budget to the one that goes out, its first count included.

    Raises:
        RuntimeError: something else became of it.
    """
    body: dict[str, Any] = {"model": card.name, "messages": messages}
    request = native.parse("/api/chat", body, session=None)
    began = perf_counter()
    await counter.count(request, card, _ROOM, in_parts=False)
    done = await compactor.compact(Case(request, card, _ROOM, None, 1 << 20))
    seconds = perf_counter() - began
    if done.outcome is not outcome or done.count.at_most > _BUDGET:
        raise RuntimeError(f"{done.outcome}, {done.count.tokens} tokens")
    return seconds


async def measure(path: Path) -> dict[str, float | str]:
    """Everything that is measured of one vocabulary; times in seconds, memory in bytes."""
    store = TokenizerStore()
    tokenizer = await store.get(TokenizerSource(path.stem, path.stem, blob=path))
    counter = counter_of(tokenizer)
    card = talk_card(gguf.read(path, tensors=False).metadata)
    settings = Compaction()
    worker = WorkerProcess(settings.memory)
    first, second = (
        Compactor(settings, counter=counter, checkpoints=RememberedCheckpoints(), worker=worker) for _ in range(2)
    )
    system = [{"role": "system", "content": text_of(903, 400)}]
    try:
        talk = [*system, *conversation(tokenizer), {"role": "user", "content": "Which budget has ledger_77?"}]
        await counter.count(native.parse("/api/chat", {"model": card.name, "messages": system}), card, _ROOM)
        async with Heartbeat() as heart:
            cold = await _seconds(counter, card, first, talk, Outcome.NEW)
        memory = _peak(worker)
        longer = [*talk, {"role": "assistant", "content": "None."}, {"role": "user", "content": "And ledger_78?"}]
        reuse = await _seconds(counter, card, first, longer, Outcome.REUSED)
        # With the worker running and the messages counted before: what an agent's next compaction takes.
        again = await _seconds(counter, card, second, longer, Outcome.NEW)
    finally:
        await worker.close()
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
