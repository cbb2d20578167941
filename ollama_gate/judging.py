"""The verdict on a request: sent on as it is, counted first, compacted, let through on grace, or refused.

Where bytes settle it, nothing waits for anything; only what lies between is counted before it may go on.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from ollama_gate import refusals, window
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.compaction.outcome import Case, NotCompacted
from ollama_gate.conversations import conversation_key, prompt_key
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.roles import Roles, Shown, strange
from ollama_gate.dialects.native import inputs
from ollama_gate.dialects.translation import without_thinking
from ollama_gate.errors import CountingError, Refusal, Refused, TemplateRefused
from ollama_gate.forcing import overruled
from ollama_gate.policies import Applied, Policies, first_leg
from ollama_gate.receive import Received, elsewhere
from ollama_gate.refused_before import RefusalMemory, RefusedBefore, Repeated
from ollama_gate.requests import Control, InferenceRequest, Kind, PromptCount, Rung
from ollama_gate.shortening import Shortener, told
from ollama_gate.turn import Phase, Turn, Verdict
from ollama_gate.values import frozen
from ollama_gate.window import Output, Window

_AS_ASKED: Final = Output(None)
# An enum's members are slow to get (Python 3.11).
_COUNTING, _EMBED, _NONE, _ADMIT, _BOUND = Phase.COUNTING, Kind.EMBED, Control.NONE, Verdict.ADMIT, Rung.BOUND


@frozen
class Judged:
    """A request that may go on."""

    applied: Applied
    count: PromptCount | None = None
    output: Output = _AS_ASKED
    open: bool = False
    """Whether it has to be counted before it may."""
    shorter: InferenceRequest | None = None
    """What goes on in its place, where it was compacted."""


class Judge:
    """Judges requests under one configuration."""

    def __init__(
        self,
        policies: Policies,
        *,
        counter: Counter,
        shortener: Shortener,
        remember: float,
        grace: bool,
        refused_before: RefusedBefore,
        clock: Callable[[], float],
    ) -> None:
        """Begin with nobody refused.

        Args:
            policies: what each model gets.
            counter: counts what has to be counted.
            shortener: compacts, where the operator allows it.
            remember: seconds in which a refused body is refused again without being read.
            grace: whether a conversation may pass once over its budget after a refusal.
            refused_before: conversations that were refused, under this configuration or another.
            clock: steady seconds.
        """
        self._policies = policies
        self._counter = counter
        self._shortener = shortener
        self._grace = grace
        self._clock = clock
        self._roles = Roles()
        self._refused = RefusalMemory(remember)
        self.refused_before = refused_before

    def recall(self, got: Received, turn: Turn) -> None:
        """Refuse a body again that was refused a moment ago.

        Raises:
            Refused: as it was then.
        """
        turn.body_bytes = got.size
        again = self._refused.recall(turn.route, got.identity, self._clock())
        if again is not None:
            turn.verdict, turn.model = Verdict.REFUSE, again.model
            turn.notes.extend(again.notes)
            raise Refused(again.refusal)

    def models_changed(self) -> None:
        """A name may stand for another model now: what was refused may fit."""
        self._refused.forget()

    def taken(
        self, inference: InferenceRequest, card: ModelCard
    ) -> InferenceRequest | Coroutine[Any, Any, InferenceRequest]:
        """The request as its model takes it: without thinking where it cannot think, and no role unheard in silence.

        It is to be waited for only where a template meets a role for the first time.
        """
        if "think" in inference.body and not card.thinks:
            inference = without_thinking(inference)
        if roles := strange(inference, card):
            if (learn := self._roles.to_learn(card, roles)) is not None:
                return self._learnt(inference, card, roles, learn)
            inference = self._roles.heard(inference, card, roles)
        return inference

    async def _learnt(
        self, inference: InferenceRequest, card: ModelCard, roles: frozenset[str], learn: Callable[[], Shown]
    ) -> InferenceRequest:
        self._roles.learn(await elsewhere(learn))
        return self._roles.heard(inference, card, roles)

    def at_once(self, inference: InferenceRequest, card: ModelCard | None, key: str, turn: Turn) -> Judged:
        """The verdict as far as it can be had without counting: sent on, refused, or open.

        Args:
            inference: the request.
            card: its model, None where Ollama has none of that name.
            key: the model's canonical name, where it has no card; empty for no name.
            turn: the request's record.

        Raises:
            Refused: whatever its length, it is none for this model.
        """
        turn.phase = _COUNTING
        turn.asked_output = turn.limit = inference.asked_output
        turn.notes.extend(inference.notes)
        if card is None:
            turn.verdict = Verdict.UNCOUNTED
            return Judged(self._policies.unknown(key))
        applied = self._policies.for_card(card)
        if inference.as_it_came:
            applied = first_leg(applied, card)
        room = applied.window
        if room is None:
            turn.verdict = Verdict.UNCOUNTED
            return Judged(applied)
        turn.notes.extend(overruled(inference, room))
        embeds = inference.kind is _EMBED
        if embeds and not card.embeds:
            raise Refused(refusals.cannot_embed(card.name))
        if applied.policy.on_load_option == "refuse":
            refusals.check_load_options(inference, room)
        turn.window, turn.budget = room.num_ctx, room.budget
        if inference.control is not _NONE:
            turn.verdict = Verdict.CONTROL
            return Judged(applied)
        if embeds:
            return Judged(applied, open=True)
        bound = self._counter.bound(inference, card, applied.policy.image_tokens)
        if bound is None or bound > room.budget or _strict(inference, card, applied, room):
            return Judged(applied, open=True)
        turn.verdict, turn.rung, turn.prompt_tokens = _ADMIT, _BOUND, bound
        return Judged(applied, PromptCount(bound, bound, _BOUND))

    async def by_count(
        self,
        inference: InferenceRequest,
        card: ModelCard,
        applied: Applied,
        turn: Turn,
        got: Received,
        *,
        exactly: bool = False,
    ) -> Judged:
        """The verdict where bytes do not settle it; or, `exactly`, where they do and the count matters all the same.

        Raises:
            Refused: it does not fit.
        """
        room = applied.window
        if inference.kind is _EMBED or room is None:
            return await self._judge_inputs(inference, card, applied, turn, got, exactly=exactly)
        asked, images = _asked(inference, card, room), applied.policy.image_tokens
        began, case = self._clock(), self._shortener.case(inference, card, applied, room, len(got.text))
        try:
            count = await self._counter.count(inference, card, room, image_tokens=images, in_parts=case is None)
        except TemplateRefused as bad:
            turn.verdict = Verdict.UNCOUNTED
            turn.notes.append(f"not counted: {bad}")
            return Judged(applied)
        turn.counted(count, self._clock() - began)
        turn.verdict = Verdict.ADMIT
        shorter: InferenceRequest | None = None
        if count.at_most > room.budget:
            # An agent's own compaction passes whole: nothing is lost, and its summary is made of everything.
            if self._on_grace(inference, count, room):
                turn.verdict = Verdict.GRACE
                turn.notes.append(f"over the budget of {room.budget}, let through once after a refusal")
            elif case is None:
                raise self._refused_for_length(inference, refusals.prompt_too_long(inference, count, room), turn, got)
            else:
                shorter, count = await self._shortened(case, count, turn, got)
        strict = _strict(inference, card, applied, room)
        if strict and asked is not None and window.too_long_with_reply(asked, count.tokens, room):
            raise self._refused_for_length(inference, refusals.reply_too_long(asked, count, room), turn, got)
        output = window.clamp_output(asked, count.tokens if room.guarded else count.at_most, room)
        turn.clamped = output.clamped  # the limit stays what was asked: where room ends an answer, the window does
        return Judged(applied, count, output, shorter=shorter)

    async def _shortened(
        self, case: Case, count: PromptCount, turn: Turn, got: Received
    ) -> tuple[InferenceRequest, PromptCount]:
        """A chat over its budget in a form that fits, and its count; or the refusal, which says that it was tried."""
        try:
            done = await self._shortener.shorten(case, count, turn)
        except NotCompacted as no:
            whole, room = case.request, case.room
            counted = await self._counter.count(whole, case.card, room, image_tokens=case.image_tokens)
            refusal = told(refusals.prompt_too_long(whole, counted, room), no)
            raise self._refused_for_length(whole, refusal, turn, got, for_good=not no.passing) from no
        return done.request, done.count

    async def _judge_inputs(
        self,
        inference: InferenceRequest,
        card: ModelCard,
        applied: Applied,
        turn: Turn,
        got: Received,
        *,
        exactly: bool,
    ) -> Judged:
        limit = applied.embeds
        if limit is None:
            raise Refused(refusals.cannot_embed(card.name))
        turn.budget = limit.tokens
        began = self._clock()
        count = await self._counter.count_inputs(inputs(inference), card, limit.tokens, exactly=exactly)
        turn.counted(count, self._clock() - began)
        for index, tokens in enumerate(count.items):
            if tokens > limit.tokens:
                refusal = refusals.input_too_long(inference, index, tokens, limit, count.rung, why=count.why)
                raise self._refused_for_length(inference, refusal, turn, got)
        turn.verdict = Verdict.ADMIT
        return Judged(applied, count)

    def _on_grace(self, inference: InferenceRequest, count: PromptCount, room: Window) -> bool:
        if not self._grace or count.at_most > window.grace_limit(room):
            return False
        conversation, prompt = conversation_key(inference), prompt_key(inference)
        return self.refused_before.grace.take(conversation, prompt, self._clock())

    def _refused_for_length(
        self, inference: InferenceRequest, refusal: Refusal, turn: Turn, got: Received, *, for_good: bool = True
    ) -> Refused:
        now, conversation = self._clock(), conversation_key(inference)
        # Only where an agent names its conversation: a person who tries one prompt in many ways is not going round.
        rounds = 0
        if inference.session:
            rounds = self.refused_before.loops.refused(conversation, turn.prompt_tokens or 0, now)
            if rounds > refusals.ROUNDS:
                return Refused(refusals.hopeless(refusal))
        # From the second round on a body that comes again may be another round, and has to be noted as one.
        if for_good and got.identity and rounds < 2:
            self._refused.keep(turn.route, got.identity, Repeated(refusal, turn.model, tuple(turn.notes)), now)
        self.refused_before.grace.grant(conversation, prompt_key(inference), now)
        return Refused(refusal)

    async def keeping(self, inference: InferenceRequest, card: ModelCard) -> InferenceRequest:
        """A request for a model that may shift its context, told to keep its system prompt when it does (`num_keep`).

        Left as it is where its length is not known here.
        """
        if inference.kind is _EMBED or inference.control is not _NONE or inference.as_it_came:
            return inference
        try:
            opening = await self._counter.opening(inference, card)
        except CountingError:
            return inference
        options = dict(inference.body.get("options") or {})
        asked = options.get("num_keep") or 0
        if not 0 <= asked < opening:
            return inference  # the client keeps more; below 0 it is all of the prompt
        options["num_keep"] = opening
        return replace(inference, body={**inference.body, "options": options})

    async def only(self, inference: InferenceRequest, card: ModelCard) -> tuple[PromptCount, Applied]:
        """Count a request as if it were to be sent, with its parts; for /gate/count and the dialects' own counters.

        Raises:
            Refused: 400 for a model that cannot be counted.
        """
        if card.mode is Mode.REMOTE:
            raise Refused(refusals.not_counted(inference.model, remote=True))
        applied = self._policies.for_card(card)
        if inference.control is not Control.NONE:
            return PromptCount(0, 0, Rung.EXACT, why="it loads or unloads the model and has no prompt"), applied
        images = applied.policy.image_tokens
        taken = self.taken(inference, card)
        inference = taken if isinstance(taken, InferenceRequest) else await taken
        if inference.kind is Kind.EMBED:
            if applied.embeds is None:
                raise Refused(refusals.cannot_embed(card.name))
            texts = inputs(inference)
            return await self._counter.count_inputs(texts, card, applied.embeds.tokens, exactly=True), applied
        room = applied.window
        if room is None:
            raise Refused(refusals.not_counted(inference.model, remote=True))
        try:
            count = await self._counter.count(inference, card, room, image_tokens=images, exactly=True)
        except TemplateRefused as bad:
            raise Refused(Refusal(400, "template_refused", f"Ollama will refuse this request: {bad}")) from bad
        return count, applied


def _asked(inference: InferenceRequest, card: ModelCard, room: Window) -> int | None:
    """The answer's length in force: an Ollama that cuts is held to the Modelfile's where nothing is asked."""
    asked = inference.asked_output
    return card.num_predict if asked is None and not room.guarded else asked


def _strict(inference: InferenceRequest, card: ModelCard, applied: Applied, room: Window) -> bool:
    """Whether the length that is asked of the answer decides too."""
    return applied.policy.on_long_reply == "refuse" and (_asked(inference, card, room) or 0) > 0
