"""One loaded model: its launch attributes, its slots and what each slot remembers (llama-server, b10488)."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ollama_gate.rehearsal.models import Mode, Model
from ollama_gate.rehearsal.options import Options
from ollama_gate.rehearsal.window import slot_size


@dataclass(slots=True)
class Slot:
    """One of the model's parallel places; it keeps the tokens of its last request for the next one."""

    cached: Sequence[int] = ()
    busy: bool = False


@dataclass(slots=True)
class Runner:
    """A llama-server process, as far as anyone outside can tell."""

    model: Model
    """The name that loaded it; other names over the same blob use it too."""
    options: Options
    shift: bool
    parallel: int
    jinja: bool = field(init=False)
    """Whether it was started with the GGUF's chat template: decided by whoever loaded it first."""
    slots: list[Slot] = field(init=False)
    free: asyncio.Semaphore = field(init=False)
    refs: int = 0
    """Requests that use it."""
    keep_alive: float = 300.0
    expires: float = 0.0
    """Wall clock, seconds; worked out when nobody uses it any more, 0 before that."""
    timer: asyncio.TimerHandle | None = None
    idle: asyncio.Event = field(init=False)
    shifts: int = 0
    """Context shifts done: each silently forgot tokens."""

    def __post_init__(self) -> None:
        """Build the slots."""
        self.jinja = self.model.mode is Mode.JINJA
        self.slots = [Slot() for _ in range(self.parallel)]
        self.free = asyncio.Semaphore(self.parallel)
        self.idle = asyncio.Event()
        self.idle.set()

    def goes_at(self) -> float:
        """When it goes if nobody uses it from now on; wall clock, seconds."""
        return time.time() + min(self.keep_alive, 10 * 365 * 86400.0)

    def expires_at(self) -> float:
        """The same as `/api/ps` has it: while its first request runs from now on, then by the last end of one."""
        return self.expires or self.goes_at()

    @property
    def num_ctx(self) -> int:
        """Context of one slot as Ollama knows it."""
        return self.options.num_ctx

    @property
    def slot_size(self) -> int:
        """Cells that one slot really has."""
        return slot_size(self.options.num_ctx)

    @property
    def shifts_context(self) -> bool:
        """Whether a full slot goes on by forgetting."""
        return self.shift and self.model.can_shift and not self.model.projector

    @property
    def batch(self) -> int:
        """`num_batch`: an embedder takes the whole input at once, so it is also its limit."""
        if self.model.embeds and self.options.num_batch_automatic:
            return min(2048, self.options.num_ctx)
        return self.options.num_batch

    @property
    def size(self) -> int:
        """Bytes in memory as `/api/ps` tells them: the sum of the buffers that llama-server logs."""
        cells = self.slot_size
        if self.model.embeds:  # an encoder keeps no cache, and attends within its batch
            return self.model.size + self.model.buffer_bytes(self.batch, self.batch, 0)
        tokens = self.num_ctx * self.parallel
        batch = 2048 if tokens > 32768 else 1024 if tokens > 4096 else 512  # `llm/llama_server.go`
        if not self.options.num_batch_automatic:
            batch = self.options.num_batch
        cache = self.model.kv_bytes(cells, self.parallel)
        return self.model.size + cache + self.model.buffer_bytes(min(batch, tokens), cells, self.parallel)

    @asynccontextmanager
    async def slot_for(self, prompt: Sequence[int]) -> AsyncIterator[tuple[Slot, int]]:
        """Wait for a slot; give it and how many tokens of `prompt` it already holds.

        The free slot with the longest common beginning is taken. Of a prompt that is held whole, one token is
        evaluated again.
        """
        async with self.free:
            free = [slot for slot in self.slots if not slot.busy]
            slot = max(free, key=lambda one: common_prefix(one.cached, prompt))
            slot.busy = True
            try:
                yield slot, min(common_prefix(slot.cached, prompt), len(prompt) - 1)
            finally:
                slot.busy = False


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two prompts have in common at their beginning."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
