"""Names that share one GGUF file in different modes: a native one never runs on what a rendered one has loaded.

Names over one file share one runner, and it keeps the mode of the name that loaded it (`server/sched.go:needsReload`
does not look at the mode, Ollama v0.33). Loaded by a name that Ollama renders for, it writes the prompts of a native
name in llama.cpp's own ChatML and refuses tools: another text, another count. So before a native request goes out the
runner is unloaded, once those that run on it are done, and nobody else loads it in between. The other way round all is
well.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from ollama_gate.admission.hold import Hold
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.errors import Refusal, Refused, UpstreamBroken

_POLL: Final = 0.05
"""Seconds between two looks, while a runner is made free."""
_NATIVE: Final = (Mode.JINJA, Mode.CHATML)
_PATIENCE: Final = 30.0
"""Seconds in which Ollama has to unload an idle runner."""


class SharedRunners:
    """Runners that are used by native and by rendered names. It lives on one event loop."""

    def __init__(
        self,
        *,
        loader: Callable[[str], Awaitable[ModelCard | None]],
        running: Callable[[str], int],
        unload: Callable[[str], Awaitable[object]],
        deadline: Callable[[], float],
        late: Callable[[ModelCard, float], Refusal],
    ) -> None:
        """Begin with none.

        Args:
            loader: whose name a runner was loaded by; None when it is not loaded. Raises UpstreamError.
            running: how many requests hold a slot of it.
            unload: tells Ollama to unload it. Raises UpstreamError.
            deadline: how many seconds a request may wait, in the queue and here.
            late: what is said to one that has waited so many seconds, which is as long as it may.
        """
        self._loader = loader
        self._running = running
        self._unload = unload
        self._deadline = deadline
        self._late = late
        self._kinds: dict[str, set[bool]] = {}
        self.mixed: set[str] = set()
        """Runners of which names of both kinds were met."""
        self._changes: dict[str, tuple[SharedHold, asyncio.Event]] = {}
        """Runners that are being made native, by whom; the others wait for the event."""
        self._held_back: Counter[str] = Counter()

    def met(self, card: ModelCard) -> None:
        """Note who uses a runner."""
        kinds = self._kinds.setdefault(card.runner, set())
        kinds.add(is_native(card))
        if len(kinds) > 1:
            self.mixed.add(card.runner)

    def forget(self, left: Collection[str]) -> None:
        """Let go of all runners but those that are left."""
        self._kinds = {runner: kinds for runner, kinds in self._kinds.items() if runner in left}
        self.mixed &= self._kinds.keys()

    def hold(self, card: ModelCard, lease: Hold, *, slots: int) -> Hold:
        """The lease on a mixed runner, made to wait where that has to be loaded anew for it, or is for another.

        Args:
            card: whose request it is.
            lease: what it holds; it takes so many `slots` of a loaded runner.
            slots: 1, or 0 for a preload.
        """
        return SharedHold(self, card, lease, slots)

    async def enter(self, hold: "SharedHold") -> None:
        """Come back when the request can go out.

        Raises:
            Refused: it has waited as long as it may.
            UpstreamError: Ollama does not answer, or does not unload it.
        """
        deadline = self._deadline()
        try:
            async with asyncio.timeout(deadline - hold.waited):
                await self._enter(hold)
        except TimeoutError:
            raise Refused(self._late(hold.card, deadline)) from None

    async def _enter(self, hold: "SharedHold") -> None:
        runner = hold.card.runner
        while (change := self._changes.get(runner)) is not None:
            self._held_back[runner] += 1
            try:
                await change[1].wait()
            finally:
                self._held_back[runner] -= 1
        if not is_native(hold.card):
            return
        self._changes[runner] = hold, asyncio.Event()
        try:
            await self._make_free(hold, runner)
        except BaseException:
            self.done(hold)
            raise

    async def _make_free(self, hold: "SharedHold", runner: str) -> None:
        loader = await self._loader(runner)
        if loader is None:
            return  # it will be loaded natively, by this very request: whoever else wants it waits for that
        if is_native(loader):
            self.done(hold)
            return
        while self._running(runner) - self._held_back[runner] > hold.slots:  # noqa: ASYNC110 - rare: nobody tells
            await asyncio.sleep(_POLL)
        await self._unload(runner)
        try:
            async with asyncio.timeout(_PATIENCE):
                while await self._loader(runner) is not None:  # noqa: ASYNC110 - Ollama does not tell
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise UpstreamBroken(f"Ollama did not unload {loader.name}, which shares its file") from None

    def done(self, hold: "SharedHold") -> None:
        """The runner is native now, or the request is over: let the others go on."""
        change = self._changes.get(hold.card.runner)
        if change is not None and change[0] is hold:
            del self._changes[hold.card.runner]
            change[1].set()


class SharedHold(Hold):
    """A lease on a runner that names of both kinds use."""

    __slots__ = ("_lease", "_runners", "card", "slots", "waited")

    def __init__(self, runners: SharedRunners, card: ModelCard, lease: Hold, slots: int) -> None:
        """Join the two; see `SharedRunners.hold`."""
        self.waited = 0.0
        self._runners = runners
        self._lease = lease
        self.card = card
        self.slots = slots

    def answered(self) -> None:
        """Ollama has begun to answer: the runner is loaded."""
        self._lease.answered()
        self._runners.done(self)

    def failed(self) -> None:
        """Ollama said that it could not load or run the model."""
        self._lease.failed()

    def unsent(self) -> None:
        """The request never reached Ollama."""
        self._lease.unsent()

    def enter(self) -> Awaitable[None]:
        """Wait for the turn, and for the runner."""
        return self._enter()

    async def _enter(self) -> None:
        try:
            await self._lease.__aenter__()
        finally:
            self.waited = self._lease.waited
        try:
            await self._runners.enter(self)
        except BaseException:
            self._lease.unsent()
            self._lease.leave()
            raise

    def leave(self) -> None:
        """Free everything."""
        self._runners.done(self)
        self._lease.leave()


def serves(loader: ModelCard, card: ModelCard) -> bool:
    """Whether a runner that was loaded by one name serves another as it would serve itself."""
    return loader.runner == card.runner and (is_native(loader) or not is_native(card))


def is_native(card: ModelCard) -> bool:
    """Whether llama-server renders this name's chats."""
    return card.mode in _NATIVE
