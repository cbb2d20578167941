"""One compaction from end to end: an old checkpoint or a new plan, the archive, and the exact count of what comes out.

Nothing here is trusted: what goes out was made by the gate from places in the client's own messages, has passed the
checks, and was counted as every prompt is. Whatever fails, takes too long or is in doubt ends in `NotCompacted`, and
the request is refused as it would have been.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

from ollama_gate.catalog.card import ModelCard
from ollama_gate.compaction.checks import CheckFailed
from ollama_gate.compaction.identity import conversation_of
from ollama_gate.compaction.originals import Archive, ArchiveFailed, Checkpoint, Checkpoints
from ollama_gate.compaction.outcome import Case, Compacted, NotCompacted, Outcome
from ollama_gate.compaction.process import WorkerFailed, WorkerProcess
from ollama_gate.compaction.reuse import Made, continues, made, resumed
from ollama_gate.compaction.terms import Terms
from ollama_gate.compaction.weighing import results_in
from ollama_gate.config.compaction import Compaction
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.measuring import Meter
from ollama_gate.errors import CountingError, Refusal, Refused
from ollama_gate.requests import InferenceRequest, PromptCount

MOST_MESSAGES: Final = 4096
"""Messages of a conversation that is compacted at all."""
MOST_WAIT: Final = 30.0
"""Seconds that one compaction waits for others at most; this is not its own time, and clients wait a minute."""
_ROUNDS: Final = 3
_PLACES: Final = 4
"""Conversations of one name whose checkpoints are kept beside each other; one more takes the last one's place."""
_SLICE: Final = 32 << 10
"""Characters that are counted in one go; then other requests' counts have their turn."""
_PROBE: Final = ({"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Noted."})

Meanings = Callable[[str, Sequence[str]], Awaitable[list[float | None] | None]]
"""How much texts mean the same as a question; None where nobody can tell."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the checkpoint of a conversation is kept."""

    name: str
    checkpoint: Checkpoint | None = None
    """What is there already of this conversation; None where there is nothing, or another's."""


class Compactor:
    """Compacts the conversations of one configuration. It lives on one event loop."""

    def __init__(
        self,
        settings: Compaction,
        *,
        counter: Counter,
        checkpoints: Checkpoints,
        archive: Archive | None = None,
        meanings: Meanings | None = None,
        worker: WorkerProcess | None = None,
    ) -> None:
        """Put it together; the worker is started when it is first needed.

        Args:
            settings: what the operator wants.
            counter: counts what comes out, as it counts every prompt.
            checkpoints: where checkpoints are.
            archive: where originals are kept; None keeps none.
            meanings: compares texts by meaning, where an embedding model is configured.
            worker: the process that makes plans.
        """
        self._settings = settings
        self._counter = counter
        self._checkpoints = checkpoints
        self._archive = archive
        self._meanings = meanings
        self.worker = worker if worker is not None else WorkerProcess(settings.memory)
        self._turn = asyncio.Lock()
        """Held by the one conversation that the worker is at."""
        self._anew_now: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By conversation and model, held by the one request that compacts it anew."""
        self._preview: asyncio.Timeout | None = None
        """Ends the one that only is to be seen."""

    async def close(self) -> None:
        """End the worker."""
        await self.worker.close()

    async def preview(self, case: Case) -> Compacted:
        """What `compact` would make of a request, to be seen only: nothing is kept, and no request waits for it.

        There is one at a time. It does not wait for the worker, and ends when a request wants that.

        Args:
            case: the request.

        Raises:
            Refused: 503 `compaction_busy`.
            NotCompacted: it would be refused.
        """
        if self._preview is not None or self._turn.locked():
            raise Refused(_busy(self._settings.deadline))
        try:
            async with asyncio.timeout(None) as self._preview:
                return await self.compact(case, keeps=False)
        except TimeoutError:
            raise Refused(_busy(self._settings.deadline)) from None
        finally:
            self._preview = None

    async def compact(self, case: Case, *, keeps: bool = True) -> Compacted:
        """A request over its budget, made to fit it within the deadline.

        A model that has to be loaded, and the compactions before this one, come on top.

        Args:
            case: the request.
            keeps: put originals and checkpoint away, as before it is sent; not for a `preview`.

        Raises:
            NotCompacted: it is to be refused.
        """
        try:
            self._check_size(case)
            # The first count may have to wait until Ollama has loaded the model, which is not compaction's time.
            await self._counted(case, _with(case.request, _PROBE[:1]))
            async with asyncio.timeout(self._settings.deadline) as clock:
                place = await self._place(case)
                reused = await self._reused(case, place, keeps=keeps)
                if reused is not None:
                    return reused
                return await (
                    self._anew_once(case, place, clock) if keeps else self._anew(case, place, clock, keeps=False)
                )
        except _Crowded:
            raise NotCompacted(Outcome.DEADLINE, f"others were compacted for longer than {MOST_WAIT:g} s") from None
        except TimeoutError:
            why = f"it took longer than {self._settings.deadline:g} s"
            raise NotCompacted(Outcome.DEADLINE, why) from None
        except NotCompacted:
            raise
        except Exception as failure:  # whatever it is, the request is refused as it would have been
            raise NotCompacted(Outcome.FAILED, f"{failure!r}"[:500]) from failure

    # --- checkpoints

    async def _place(self, case: Case) -> _Place:
        """Where this conversation's checkpoint is, or is to be.

        Conversations that begin alike and do not name themselves have one name together, agents that work side by side
        on one task for example; each has a place of its own, as long as there are not more of them than places.
        """
        name, taken = conversation_of(case.request), ""
        for number in range(_PLACES):
            taken = f"{name}~{number}" if number else name
            checkpoint = await self._checkpoints.latest_checkpoint(taken, case.card.key)
            if checkpoint is None:
                return _Place(taken)
            if await asyncio.to_thread(continues, case.messages, checkpoint):
                return _Place(taken, checkpoint)
        return _Place(taken)

    async def _reused(self, case: Case, place: _Place, *, keeps: bool) -> Compacted | None:
        if place.checkpoint is None:
            return None
        try:
            done = await asyncio.to_thread(resumed, case.messages, place.checkpoint, self._terms(0.0, 0.0))
        except ValueError:
            return None
        if done is None:
            return None
        request = _with(case.request, done.messages)
        count = await self._counted(case, request)
        if count.at_most > case.room.budget:
            return None
        if keeps:
            await self._keep(place.name, case.card.key, done)
        return Compacted(request, count, Outcome.REUSED, done.replaced)

    # --- a new plan

    async def _anew_once(self, case: Case, place: _Place, clock: asyncio.Timeout) -> Compacted:
        """A new plan; or, behind a request of the same conversation that makes one, the checkpoint that it leaves."""
        name = conversation_of(case.request), case.card.key
        turn = self._anew_now.setdefault(name, asyncio.Lock())
        behind = turn.locked()
        async with _waited_for(turn, clock):
            reused = None
            if behind:
                place = await self._place(case)
                reused = await self._reused(case, place, keeps=True)
            return reused if reused is not None else await self._anew(case, place, clock, keeps=True)

    async def _anew(self, case: Case, place: _Place, clock: asyncio.Timeout, *, keeps: bool) -> Compacted:
        if keeps and self._preview is not None and not self._preview.expired():
            self._preview.reschedule(0.0)  # long ago: it gives way at once; one that is about to cannot be told again
        done, request, count = await self._planned(case, await self._measured(case), clock)
        if keeps:
            await self._keep(place.name, case.card.key, done)
            await self._checkpoints.keep_checkpoint(place.name, case.card.key, done.checkpoint)
        return Compacted(request, count, Outcome.NEW, done.replaced)

    async def _planned(
        self, case: Case, terms: Terms, clock: asyncio.Timeout
    ) -> tuple[Made, InferenceRequest, PromptCount]:
        """The best of three plans at most: each is counted exactly, and the difference moves the next target.

        Raises:
            NotCompacted: none fits the budget.
        """
        goal = self._settings.target * case.room.budget
        job = {"terms": terms.to_json(), "meanings": self._meanings is not None}
        target, more = terms.target, 0.0
        best: tuple[Made, InferenceRequest, PromptCount] | None = None
        async with _waited_for(self._turn, clock):
            for number in range(_ROUNDS):
                try:
                    if number:
                        payload = orjson.dumps({"target": target, "more": more})
                    else:
                        payload = await asyncio.to_thread(_job, case.messages, {**job, "target": target})
                    told = await self._told(case, payload)
                    done = await asyncio.to_thread(made, case.messages, told["plan"].encode(), terms)
                except NotCompacted:
                    if best is None:
                        raise
                    break
                except CheckFailed as wrong:
                    raise NotCompacted(Outcome.CHECK_FAILED, f"its result did not pass the checks: {wrong}") from wrong
                except ValueError as odd:
                    raise NotCompacted(Outcome.NOT_COUNTED, str(odd)) from odd
                request = _with(case.request, done.messages)
                count = await self._counted(case, request)
                more = 0.0
                if count.at_most > case.room.budget:
                    # Templates may add more to a tool's result than to other messages, which the estimate learns here.
                    missed = count.at_most - (case.room.budget - terms.most) - told["tokens"]
                    more = missed / (results_in(done.messages) or len(done.messages))
                    continue
                if best is None or _nearer(count, best[2], goal):
                    best = done, request, count
                full = told["tokens"] >= 0.9 * target
                if told["tokens"] > target:
                    break  # what has to stay takes more than the target, and a smaller one changes nothing
                if count.at_most <= goal and (count.at_most >= 0.9 * goal or not full):
                    break
                target = max(target - (count.at_most - goal) * (1.05 if count.at_most > goal else 0.95), 1.0)
        if best is None:
            raise NotCompacted(Outcome.DOES_NOT_FIT, "what has to stay takes more than the budget")
        return best

    async def _told(self, case: Case, payload: bytes) -> dict[str, Any]:
        """The worker's answer to a job: a plan and the tokens that it estimates for it."""
        try:
            told = await self.worker.ask(payload, lambda asked: self._answer(case, asked))
        except WorkerFailed as failure:
            raise NotCompacted(Outcome.FAILED, str(failure)) from failure
        if isinstance(told.get("plan"), str) and isinstance(told.get("tokens"), int | float):
            return told
        try:
            outcome = Outcome(str(told.get("outcome")))
        except ValueError:
            outcome = Outcome.FAILED
        raise NotCompacted(outcome, str(told.get("cannot") or "the worker said what cannot be understood"))

    async def _answer(self, case: Case, asked: Mapping[str, Any]) -> bytes:
        if "count" in asked:
            return orjson.dumps({"tokens": await self._tokens(case.card, asked["count"])})
        likeness = None
        if self._meanings is not None:
            likeness = await self._meanings(str(asked.get("question")), asked["similar"])
        return orjson.dumps({"likeness": likeness})

    # --- counts

    async def _measured(self, case: Case) -> Terms:
        """The terms, in which tools and template are taken off the budget.

        Two short prompts are counted, of one message and of three: their difference shows what the template adds to a
        message (`each`), and what is left of the first is what tools and template take in any case (`fixed`).
        """
        user, assistant = _PROBE
        one, three = (_with(case.request, list(said)) for said in ((user,), (user, assistant, user)))
        least, more = await self._counted(case, one), await self._counted(case, three)
        if least.at_most >= case.room.budget:
            why = "tools and template alone take more than the budget"
            raise NotCompacted(Outcome.DOES_NOT_FIT, why)
        own_user, own_assistant = await self._tokens(case.card, [str(said["content"]) for said in _PROBE])
        scale = max(least.at_most / max(least.tokens, 1), 1.0)
        each = max((more.at_most - least.at_most) / 2 - scale * (own_user + own_assistant) / 2, 0.0)
        fixed = max(least.at_most - scale * own_user - each, 0.0)
        image = self._counter.known(case.card).image_cost(case.image_tokens)
        budget = case.room.budget
        return replace(
            self._terms(max(self._settings.target * budget - fixed, 1.0), budget - fixed),
            each=each,
            image=image * scale,
            scale=scale,
        )

    def _terms(self, target: float, most: float) -> Terms:
        settings = self._settings
        return Terms(target, most, settings.keep_last, settings.exempt_roles, settings.exempt_tools)

    async def _counted(self, case: Case, request: InferenceRequest) -> PromptCount:
        try:
            return await self._counter.count(
                request, case.card, case.room, image_tokens=case.image_tokens, in_parts=False
            )
        except (CountingError, Refused) as failure:
            raise NotCompacted(Outcome.NOT_COUNTED, f"the shorter prompt cannot be counted: {failure}") from failure

    async def _tokens(self, card: ModelCard, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, or its bytes where there is no vocabulary."""
        found: list[int] = []
        for some in _slices(texts):
            try:
                found += await self._counter.work(card, partial(_inputs, some))
            except CountingError:
                return [len(text.encode("utf-8", "surrogatepass")) for text in texts]
        return found

    # --- limits and stores

    def _check_size(self, case: Case) -> None:
        if len(case.messages) > MOST_MESSAGES:
            raise NotCompacted(Outcome.TOO_LARGE, f"it has more than {MOST_MESSAGES} messages")
        limit = self._settings.max_input
        images = sum(len(image) for each in case.messages for image in each.get("images") or ())
        if case.size - images > limit:
            raise NotCompacted(Outcome.TOO_LARGE, f"its text is larger than {limit} bytes (compaction.max_input)")

    async def _keep(self, conversation: str, model: str, done: Made) -> None:
        if self._archive is None or not done.originals:
            return
        try:
            await self._archive.keep(conversation, model, done.originals)
        except ArchiveFailed as failure:
            raise NotCompacted(Outcome.ARCHIVE_FAILED, f"its originals could not be archived: {failure}") from failure


class _Crowded(Exception):
    """Others took the compactor for too long."""


@asynccontextmanager
async def _waited_for(lock: asyncio.Lock, clock: asyncio.Timeout) -> AsyncIterator[None]:
    """Hold a lock; while it is waited for a compaction's clock stands still.

    Raises:
        _Crowded: it did not come within `MOST_WAIT`.
    """
    now, ends = asyncio.get_running_loop().time, clock.when()
    since = now()
    if lock.locked() and ends is not None:
        clock.reschedule(None)
        try:
            async with asyncio.timeout(MOST_WAIT):
                await lock.acquire()
        except TimeoutError:
            raise _Crowded from None
        clock.reschedule(ends + now() - since)
    else:
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _busy(deadline: float) -> Refusal:
    seconds = math.ceil(deadline)
    return Refusal(
        503,
        "compaction_busy",
        f"The gate compacts another conversation, and requests come before this. Try again in {seconds} s.",
        type="overloaded_error",
        headers={"Retry-After": str(seconds)},
    )


def _with(request: InferenceRequest, messages: Sequence[Mapping[str, Any]]) -> InferenceRequest:
    return replace(request, body={**request.body, "messages": list(messages)})


def _job(messages: Sequence[Mapping[str, Any]], job: Mapping[str, Any]) -> bytes:
    """The first frame of a job. The worker gets no pictures, only how many there are."""
    try:
        # One by one: each holds the interpreter while it is written, and everybody's answers wait for that.
        bare = b",".join(orjson.dumps(_without_pictures(each)) for each in messages)
        return orjson.dumps(job)[:-1] + b',"messages":[' + bare + b"]}"
    except orjson.JSONEncodeError as odd:
        raise ValueError(f"a message cannot be written as JSON: {odd}") from odd


def _without_pictures(message: Mapping[str, Any]) -> Mapping[str, Any]:
    images = message.get("images")
    return {**message, "images": [""] * len(images)} if images else message


def _slices(texts: Sequence[str]) -> list[list[str]]:
    """The texts in groups of no more than a slice; a longer text is a group of its own."""
    groups: list[list[str]] = []
    room = 0
    for text in texts:
        if not groups or len(text) > room:
            groups.append([])
            room = _SLICE
        groups[-1].append(text)
        room -= len(text)
    return groups


def _inputs(texts: Sequence[str], meter: Meter) -> list[int]:
    return meter.inputs(texts)


def _nearer(one: PromptCount, other: PromptCount, goal: float) -> bool:
    """Whether a count is better than another: within the goal first, then the larger; beyond it the smaller."""
    if (one.at_most <= goal) != (other.at_most <= goal):
        return one.at_most <= goal
    return one.at_most > other.at_most if one.at_most <= goal else one.at_most < other.at_most
