"""Counting: the cheapest way that decides, and the exact one where the answer matters.

A bound from bytes settles most requests. Between the bounds the prompt is rendered here, or Ollama is asked for its
text, and tokenized with the model's own vocabulary, in a thread. Every answer's prompt_eval_count is then held against
the count, and what it says is believed over what was believed before.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.versions import Features
from ollama_gate.counting import bound
from ollama_gate.counting.beliefs import Ask, Beliefs, Report
from ollama_gate.counting.detail import Detail, detail
from ollama_gate.counting.facts import PUBLISHED
from ollama_gate.counting.known import Known, inputs_bounded, says_nothing
from ollama_gate.counting.learned import Learned, LearnedBook, merged, remembered_as
from ollama_gate.counting.measuring import Meter, Tokenizers, images_in
from ollama_gate.counting.normalise import R1, is_r1
from ollama_gate.counting.policy import CountingPolicy, uncountable
from ollama_gate.counting.remembered import RememberedCounts, key_of
from ollama_gate.counting.remote import WorkerGone
from ollama_gate.counting.rendering.local import load_engines
from ollama_gate.counting.trust import Trust
from ollama_gate.errors import CountingError, Refused, RenderError, TemplateRefused
from ollama_gate.requests import Basis, InferenceRequest, Kind, Parts, PromptCount, Rung
from ollama_gate.tasks import spawn
from ollama_gate.window import EMBED_SPECIALS, Window, grace_limit
from ollama_gate.wire.ndjson import StreamEnd

R = TypeVar("R")
_EMBED, _BYTES = Kind.EMBED, Basis.BYTES  # an enum's members are slow to get (Python 3.11)
_SAMPLE_EVERY: Final = 10.0
"""Seconds between two exact counts of one model that are made only to compare them with Ollama's."""


class Counter:
    """Counts prompts of every model. It lives on one event loop; the work is done in threads."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        *,
        ask: Ask,
        probe: Ask,
        loaded: Callable[[ModelCard], Awaitable[bool]],
        version: Callable[[], str | None],
        report: Report,
        demoted: Callable[[ModelCard, Trust], None],
        policy: CountingPolicy,
        book: LearnedBook,
        clock: Callable[[], float],
        threads: int = 1,
        now: Callable[[], datetime] = lambda: datetime.now(UTC).astimezone(),
    ) -> None:
        """Put the counter together.

        Args:
            tokenizers: where tokenizers come from.
            ask: asks Ollama for the text of a prompt.
            probe: the same, but only as long as the model is loaded; RenderError when it is not.
            loaded: whether Ollama has a model in memory.
            version: Ollama's version, if known.
            report: is told of every comparison with Ollama's number.
            demoted: is told when a model's counts are no longer believed.
            policy: the operator's wishes.
            book: what was learned of models before, and is kept.
            clock: steady seconds.
            threads: how many counts may run at once.
            now: local time where Ollama runs.
        """
        self._tokenizers = tokenizers
        self._ask = ask
        self._loaded = loaded
        self._version = version
        self._policy = policy
        self._book = book
        self._clock = clock
        self._now = now
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="count")
        self._models: dict[tuple[str, str, str], Known] = {}
        self._samples: set[asyncio.Task[None]] = set()
        self._counts = RememberedCounts()
        self._tell_demoted = demoted
        self._beliefs = Beliefs(
            book=book,
            probe=probe,
            may_ask=lambda: self.asks,
            loaded=loaded,
            report=report,
            changed=self._demoted,
            now=now,
        )

    def learned(self) -> dict[str, Learned]:
        """What is known of each model, those of earlier runs included, by what it is remembered by."""
        return self._book.all()

    def hear(self, theirs: Mapping[str, Learned]) -> None:
        """Take over what was learned elsewhere; of what is known here too, the worse counts."""
        for key, learned in theirs.items():
            mine = self._book.get(key)
            if mine is None:
                self._book.put(key, learned)
            elif (both := merged(mine, learned)) != mine:
                self._book.put(key, both)
        for known in self._models.values():
            if known.key in theirs:
                self._beliefs.take(known, theirs[known.key])

    def close(self) -> None:
        """Let the threads end; counts under way finish unheard, and comparisons in the background end."""
        checks = (known.checking for known in self._models.values() if known.checking is not None)
        for task in (*self._samples, *checks):
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def asks(self) -> bool:
        """Whether Ollama may be asked for the text of a prompt, and would tell it."""
        return self._policy.ask_upstream and self._features.shows_prompts

    @property
    def _features(self) -> Features:
        return Features.of(self._version())

    def known(self, card: ModelCard) -> Known:
        """What is known of a model; getting to know it begins when it is first asked for."""
        version = self._version()
        key = self._key(card)
        found = self._models.get(key)
        if found is not None and found.meter is not None:
            if found.meter.tokenizer.alive:
                return found
            found.meter = None  # its tokenizer was unloaded to make room, or its process died
        if found is None:
            if len(self._models) >= 256:
                self._models.pop(next(iter(self._models)))
            found = self._models[key] = Known.of(card, version)
            found.key = remembered_as(*key, self._tokenizers.mark(card))
            found.remember(self._book.get(found.key))
        retry = found.failed_at is not None and self._clock() - found.failed_at > 60.0
        if found.meter is None and found.preparing is None and (found.failed_at is None or retry):
            found.preparing = spawn(self._prepare(found), name=f"tokenizer of {card.name}", quiet=True)
        return found

    def met(self, card: ModelCard) -> Known:
        """What is known of a model so far; nothing is begun."""
        return self._models.get(self._key(card)) or Known(card)

    def _key(self, card: ModelCard) -> tuple[str, str, str]:
        """Digest, mode and Ollama's version, and the name where it changes the text."""
        digest = f"{card.digest} {R1}" if is_r1(card.name) else card.digest
        return digest, str(card.mode), self._version() or ""

    def bound(self, request: InferenceRequest, card: ModelCard, image_tokens: int | None) -> int | None:
        """The most tokens that a chat or generate prompt can have, from its bytes; None where nothing is proven."""
        known = self.known(card)
        if not known.trust.bound or not known.features.obeys:
            return None
        found = bound.most_bytes(request, known.cost)
        if found is None:
            return None
        size, images = found
        if (meter := known.meter) is not None and (facts := meter.tokenizer.facts).model != PUBLISHED:
            most = facts.byte_bound(size)
        else:
            most = bound.tokens_of_bytes(size, str(card.model_info.get("tokenizer.ggml.model")))
        if most is None or not images:
            return most
        return most + images * known.image_cost(image_tokens)

    async def count(
        self,
        request: InferenceRequest,
        card: ModelCard,
        room: Window,
        *,
        image_tokens: int | None = None,
        exactly: bool = False,
        in_parts: bool = True,
    ) -> PromptCount:
        """Count a chat or generate prompt as well as it can be counted.

        Args:
            request: what is counted.
            card: its model.
            room: the model's window.
            image_tokens: the configured cost of one image.
            exactly: count in full and with parts even where a lower bound already settles it.
            in_parts: say what a prompt over the budget is made of, which takes as long again.

        Raises:
            TemplateRefused: Ollama will refuse this request whatever its length.
            Refused: the operator wants prompts refused that cannot be counted, or this Ollama would cut what its
                template refuses.
        """
        try:
            try:
                count = await self._counted(request, card, room, image_tokens, exactly=exactly, in_parts=in_parts)
            except WorkerGone:  # unloaded at this very moment: once more, with a new one
                count = await self._counted(request, card, room, image_tokens, exactly=exactly, in_parts=in_parts)
        except TemplateRefused as bad:
            if room.guarded:
                raise
            raise Refused(uncountable(card, f"{bad}; this Ollama would cut it without a word")) from bad
        except CountingError as failure:
            count = self.known(card).bounded(request, image_tokens, str(failure))
        if room.guarded or count.rung is Rung.EXACT:
            return count
        why = f"{count.why}; this Ollama would cut it without a word, so it has to fit twice"
        return replace(count, at_most=2 * count.at_most, why=why)

    async def _counted(
        self,
        request: InferenceRequest,
        card: ModelCard,
        room: Window,
        image: int | None,
        *,
        exactly: bool,
        in_parts: bool,
    ) -> PromptCount:
        known = self.known(card)
        await self._ready(known)
        meter = known.meter
        if meter is None or not known.trust.vocabulary:
            return await self._without_vocabulary(request, known, image)
        least = bound.at_least(request, meter.tokenizer.facts.bytes_per_token)
        if not exactly and least > 2 * grace_limit(room):
            most = max(self.bound(request, card, image) or 0, (least + 1) * meter.tokenizer.facts.bytes_per_token)
            return PromptCount(least, most, Rung.BOUND, Parts(messages=least), why="it was not counted further")
        key = key_of(request, known.key, image, exactly=exactly)
        held = self._counts.find(key)
        if held is not None and not meter.renderer.dated:
            return held
        count = await self._count(request, known, meter, room, image)
        over = count.at_most > room.budget
        if exactly or (in_parts and over):
            parts = await self._in_thread(meter.parts, request, count.tokens, count.parts.media, self._now())
            count = PromptCount(count.tokens, count.at_most, count.rung, parts, why=count.why, basis=count.basis)
        # What is no exact count changes with what is learned: a margin, an image's cost.
        settled = count.rung is Rung.EXACT and (known.checked or count.basis is not Basis.HERE)
        if settled and (in_parts or not over):
            self._counts.keep(key, count)
        return count

    async def count_inputs(
        self, texts: list[str], card: ModelCard, limit: int, *, exactly: bool = False
    ) -> PromptCount:
        """Count each text to embed; an item's count is what Ollama holds against the limit, two specials included.

        Args:
            texts: what is embedded.
            card: the embedding model.
            limit: tokens of one item.
            exactly: count even where the bytes already settle it.
        """
        known = self.known(card)
        kind = str(card.model_info.get("tokenizer.ggml.model"))
        here = len(texts) < bound.MANY
        bounds = bound.of_inputs(texts, kind) if here else await self._in_thread(bound.of_inputs, texts, kind)
        surely = tuple([most or 0 for most in bounds])
        if not exactly and known.trust.bound and None not in bounds and max(surely, default=0) <= limit:
            return inputs_bounded(surely)
        await self._ready(known)
        meter, why, bare = known.meter, known.why or known.trust.why, list[int]()
        if meter is not None and known.trust.vocabulary:
            try:
                bare = await self._in_thread(meter.inputs, texts)
            except CountingError as failure:
                meter, why = None, str(failure)
        if meter is None or not known.trust.vocabulary:
            if self._policy.refuse_unknown:
                raise Refused(uncountable(card, why))
            # Where nothing is proven, Ollama's own refusal (truncate:false) is the guard.
            return inputs_bounded(surely, why)
        total = sum(bare) + meter.tokenizer.facts.adds * len(bare)
        items = tuple(tokens + EMBED_SPECIALS for tokens in bare)
        if known.unconfirmed:
            sure = 1 + known.trust.margin(self._policy.margin)
            items = tuple(math.ceil(tokens * sure) for tokens in items)
            return PromptCount(total, sum(items), Rung.ESTIMATE, Parts(total), items, known.unconfirmed, Basis.HERE)
        return PromptCount(total, total, Rung.EXACT, Parts(messages=total), items, basis=Basis.HERE)

    def rung(self, card: ModelCard) -> Rung:
        """What tokens of a bare text may be called that were counted with `work`."""
        return Rung.ESTIMATE if self.known(card).unconfirmed else Rung.EXACT

    async def detail(self, request: InferenceRequest, card: ModelCard) -> Detail:
        """What each message and tool of a chat takes.

        Raises:
            CountingError: this model's vocabulary is not known here, or not believed any more.
        """
        now = self._now()
        return await self.work(card, lambda meter: detail(meter, request, now))

    async def opening(self, request: InferenceRequest, card: ModelCard) -> int:
        """Tokens at the head of a chat's or completion's prompt that hold its system prompt; see `Meter.opening`.

        Raises:
            CountingError: that cannot be known here.
        """
        now = self._now()
        return await self.work(card, lambda meter: meter.opening(request, now))

    async def work(self, card: ModelCard, work: Callable[[Meter], R]) -> R:
        """Do something in a counting thread that needs a model's own tokens.

        Raises:
            CountingError: this model's vocabulary is not known here, or not believed any more.
        """
        known = self.known(card)
        await self._ready(known)
        if known.meter is None or not known.trust.vocabulary:
            raise CountingError(known.why or known.trust.why)
        return await self._in_thread(work, known.meter)

    def learn(
        self, request: InferenceRequest, card: ModelCard, room: Window, count: PromptCount, end: StreamEnd
    ) -> None:
        """Hold a count against what Ollama reported, and believe Ollama."""
        known = self.known(card)
        embeds = request.kind is _EMBED
        said = (end.done or embeds) and not says_nothing(request, card, known.features)
        reported = end.prompt_eval_count if said else None
        images = 0 if embeds else images_in(request)
        if images:
            self._beliefs.hear_images(known, count, images, reported)
            return
        self._beliefs.hear(known, count, reported)
        if reported is not None and not embeds:
            self._look_closer(request, known, room, count, reported)

    def contradicted(self, request: InferenceRequest, card: ModelCard, count: PromptCount, tokens: int | None) -> None:
        """Ollama refused a prompt for its length that was let pass; `tokens` is its own count, where it told it."""
        if request.kind is not Kind.EMBED and not images_in(request):
            self._beliefs.hear(self.known(card), count, tokens)

    def _look_closer(
        self, request: InferenceRequest, known: Known, room: Window, count: PromptCount, reported: int
    ) -> None:
        """The model is loaded now: compare renderings once, and count exactly now and then what bytes have settled."""
        if known.meter is None:
            return
        if not known.checked and not known.meter.renderer.why:
            self._beliefs.start_check(known, room)
        elif count.basis is _BYTES and self._clock() - known.sampled_at > _SAMPLE_EVERY:
            known.sampled_at = self._clock()
            sample = spawn(self._sample(request, known, room, reported), name=f"sample of {known.card.name}")
            self._samples.add(sample)
            sample.add_done_callback(self._samples.discard)

    def _demoted(self, card: ModelCard, trust: Trust) -> None:
        self._counts.clear()
        self._tell_demoted(card, trust)

    async def _sample(self, request: InferenceRequest, known: Known, room: Window, reported: int) -> None:
        try:
            if await self._loaded(known.card):  # it may have gone meanwhile, and is not loaded for this
                self._beliefs.hear(known, await self.count(request, known.card, room), reported)
        except (CountingError, Refused):
            return

    async def _count(
        self, request: InferenceRequest, known: Known, meter: Meter, room: Window, image_tokens: int | None
    ) -> PromptCount:
        why = meter.renderer.why
        if known.trust.rendering or request.body.get("raw"):
            try:
                tokens, images = await self._in_thread(meter.here, request, self._now())
                if await self._beliefs.agrees(known, room):
                    return known.counted(tokens, images, image_tokens, Basis.HERE, self._policy.margin)
            except TemplateRefused:
                raise
            except RenderError as failure:
                why = str(failure)
        why = known.trust.why or why
        if self.asks:
            least, images = await self._in_thread(meter.estimate, request)
            if least * 0.8 > grace_limit(room) and not await self._loaded(known.card):
                return known.estimated(
                    least, images, image_tokens, self._policy.margin, f"{why}; the model is not loaded"
                )
            try:
                text = await self._ask(request, known.card, room)
            except TemplateRefused:
                raise
            except RenderError as failure:
                why = f"{why}; {failure}"
            else:
                tokens, images = await self._in_thread(meter.asked, text, request)
                return known.counted(tokens, images, image_tokens, Basis.ASKED, self._policy.margin)
        tokens, images = await self._in_thread(meter.estimate, request)
        return known.estimated(tokens, images, image_tokens, self._policy.margin, why)

    async def _without_vocabulary(
        self, request: InferenceRequest, known: Known, image_tokens: int | None
    ) -> PromptCount:
        why = known.why or known.trust.why
        if self._policy.refuse_unknown:
            raise Refused(uncountable(known.card, why))
        if known.meter is not None:
            tokens, images = await self._in_thread(known.meter.estimate, request)
            return known.estimated(tokens, images, image_tokens, self._policy.margin, why)
        return known.bounded(request, image_tokens, why)

    async def _ready(self, known: Known) -> None:
        """Wait for the tokenizer, but not for ever: without it the bound decides."""
        task = known.preparing
        if known.meter is not None or task is None:
            return
        try:
            async with asyncio.timeout(self._policy.timeout):
                await asyncio.shield(task)
        except TimeoutError:
            known.why = known.why or "its tokenizer is still being built"

    async def _prepare(self, known: Known) -> None:
        loading = asyncio.get_running_loop().run_in_executor(self._pool, load_engines, known.card)
        try:
            tokenizer = await self._tokenizers.get(known.card)
            await loading
            known.meter = await self._in_thread(Meter.of, known.card, tokenizer, self._version())
            known.cost = await self._in_thread(known.meter.cost, self._now())
            known.why, known.failed_at = "", None
        except CountingError as failure:
            known.why, known.failed_at = str(failure), self._clock()
        except Exception as failure:
            known.why, known.failed_at = f"its tokenizer could not be made: {failure}", self._clock()
            raise
        finally:
            known.preparing = None

    async def _in_thread(self, work: Callable[..., R], *arguments: Any) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
