"""Who is loaded, who waits, who must go (`server/sched.go`, v0.33)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from ollama_gate.rehearsal import errors
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.journal import Entry
from ollama_gate.rehearsal.models import Model
from ollama_gate.rehearsal.options import Options
from ollama_gate.rehearsal.runner import Runner

_SERIAL_FAMILIES = {
    "mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe",
    "nemotron_h", "nemotron_h_moe", "nemotron_h_omni",
}  # fmt: skip
"""Families that Ollama forces to one slot."""


class Scheduler:
    """Loads one model at a time; the others that need a load wait in a bounded queue."""

    def __init__(
        self,
        *,
        parallel: int,
        max_queue: int,
        max_loaded: int,
        keep_alive: float,
        load_seconds: float,
        changed: Callable[[], None],
    ) -> None:
        """Take the settings that Ollama has as environment variables, how long a load takes, and whom to tell."""
        self.parallel = parallel
        self.max_queue = max_queue
        self.max_loaded = max_loaded
        self.keep_alive = keep_alive
        self.load_seconds = load_seconds
        self.runners: dict[str, Runner] = {}
        """By blob digest."""
        self.loads: Counter[str] = Counter()
        """Loads so far by model name, reloads included."""
        self.unloads: Counter[str] = Counter()
        self._changed = changed
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def use(
        self, model: Model, options: Options, *, shift: bool | None, keep_alive: float | None, entry: Entry
    ) -> AsyncIterator[Runner]:
        """A runner that fits the request, loaded if need be, that stays until the block ends.

        Without a `keep_alive` that of the request before holds on (`server/sched.go:useLoadedRunner`).

        Raises:
            StatusError: 503 when too many requests wait for a load.
        """
        runner = await self._get(model, options, entry, shift=model.shift if shift is None else shift)
        self._hold(runner)
        if keep_alive is not None:
            runner.keep_alive = keep_alive
        try:
            yield runner
        finally:
            self._release(runner)

    def unload(self, model: Model) -> None:
        """`keep_alive: 0` without a prompt: gone as soon as nobody uses it."""
        runner = self.runners.get(model.blob_digest)
        if runner is None:
            return
        runner.keep_alive = 0
        if not runner.refs:
            self._drop(runner)

    def die(self, runner: Runner) -> None:
        """The process is gone; the next request loads again."""
        self._drop(runner)

    def clear(self) -> None:
        """Unload everything and forget the counts."""
        for runner in tuple(self.runners.values()):
            self._drop(runner)
        self.loads.clear()
        self.unloads.clear()

    def loaded(self) -> Sequence[Runner]:
        """Who is loaded, the latest to expire first."""
        return sorted(self.runners.values(), key=Runner.expires_at, reverse=True)

    def state(self) -> Mapping[str, object]:
        """For `GET /rehearsal/state`."""
        return {
            "loads": dict(self.loads),
            "unloads": dict(self.unloads),
            "waiting": self._waiting,
            "runners": [
                {
                    "model": runner.model.name,
                    "num_ctx": runner.num_ctx,
                    "slot_size": runner.slot_size,
                    "shift": runner.shift,
                    "jinja": runner.jinja,
                    "parallel": runner.parallel,
                    "in_use": runner.refs,
                    "busy_slots": sum(slot.busy for slot in runner.slots),
                    "context_shifts": runner.shifts,
                }
                for runner in self.loaded()
            ],
        }

    async def _get(self, model: Model, options: Options, entry: Entry, *, shift: bool) -> Runner:
        options = self._effective(model, options)
        runner = self.runners.get(model.blob_digest)
        if runner is not None and not _needs_reload(runner, options, shift=shift):
            return runner
        if self._waiting > self.max_queue:
            raise StatusError(503, errors.BUSY)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._load(model, options, entry, shift=shift)
        finally:
            self._waiting -= 1

    async def _load(self, model: Model, options: Options, entry: Entry, *, shift: bool) -> Runner:
        runner = self.runners.get(model.blob_digest)
        if runner is not None:
            if not _needs_reload(runner, options, shift=shift):
                return runner
            entry.notes.append("reload")
            await runner.idle.wait()
            self._drop(runner)
        else:
            entry.notes.append("load")
        while len(self.runners) >= self.max_loaded:
            oldest = min(self.runners.values(), key=lambda one: (one.refs > 0, one.expires))
            await oldest.idle.wait()
            self._drop(oldest)
        await asyncio.sleep(self.load_seconds)  # a client that leaves now aborts the load
        runner = Runner(model, options, shift, self._slots(model), keep_alive=self.keep_alive)
        self.runners[model.blob_digest] = runner
        self.loads[model.name] += 1
        self._changed()
        return runner

    def _effective(self, model: Model, options: Options) -> Options:
        """The num_ctx that is really used: at least 4, 2048 for vision, at most what the model was trained for."""
        num_ctx = max(options.num_ctx, 2048 if "vision" in model.capabilities else 4)
        return replace(options, num_ctx=min(num_ctx, model.context_length))

    def _slots(self, model: Model) -> int:
        serial = "completion" not in model.capabilities or model.family in _SERIAL_FAMILIES
        return 1 if serial else self.parallel

    def _hold(self, runner: Runner) -> None:
        runner.refs += 1
        runner.idle.clear()
        if runner.timer is not None:
            runner.timer.cancel()

    def _release(self, runner: Runner) -> None:
        runner.refs -= 1
        if runner.refs:
            return
        runner.idle.set()
        runner.expires = runner.goes_at()
        if runner.keep_alive <= 0:
            self._drop(runner)
        elif runner.keep_alive != float("inf"):
            runner.timer = asyncio.get_running_loop().call_later(runner.keep_alive, self._drop, runner)

    def _drop(self, runner: Runner) -> None:
        if runner.timer is not None:
            runner.timer.cancel()
        if self.runners.get(runner.model.blob_digest) is runner:
            del self.runners[runner.model.blob_digest]
            self.unloads[runner.model.name] += 1
            self._changed()


def _needs_reload(runner: Runner, wanted: Options, *, shift: bool) -> bool:
    """`server/sched.go:needsReload`: another launch attribute, unless both sides left it to Ollama."""
    if runner.shift != shift:
        return True
    if wanted.num_gpu >= 0 and wanted.num_gpu != runner.options.num_gpu:
        return True
    ours = runner.options
    if ours.num_ctx_automatic and wanted.num_ctx_automatic:
        wanted = replace(wanted, num_ctx=ours.num_ctx)
    if ours.num_batch_automatic and wanted.num_batch_automatic:
        wanted = replace(wanted, num_batch=ours.num_batch)
    return ours.launch() != wanted.launch()
