"""The life of a guarded request, top to bottom: read, understand, count, judge, wait, send, hand on, settle.

Each stage takes what the one before made, and either returns its own result or raises `Refused`. Whatever happens, the
turn is settled exactly once, and nothing that only observes can fail a request.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from ollama_gate import refusals, window
from ollama_gate.admission.hold import Hold
from ollama_gate.admitting import Admission
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.catalog.names import InvalidName
from ollama_gate.catalog.versions import Features
from ollama_gate.compaction.compactor import Case, NotCompacted
from ollama_gate.config import Config
from ollama_gate.counting.counter import Counter
from ollama_gate.dialects.native import inputs
from ollama_gate.dialects.translation import Stamp, without_thinking
from ollama_gate.errors import CountingError, Refusal, Refused, TemplateRefused, UpstreamError, UpstreamUnreachable
from ollama_gate.forcing import force
from ollama_gate.loops import LoopBook, hopeless
from ollama_gate.observe.watch import Watch
from ollama_gate.policies import Applied, Policies, first_leg
from ollama_gate.receive import Came, Received, body_limit, client_of, outgoing, read_form, receive, received_at_hand
from ollama_gate.requests import AnswerFacts, AnswerWriter, Control, InferenceRequest, Json, Kind, PromptCount, Rung
from ollama_gate.routes import Lane
from ollama_gate.settle import Settler
from ollama_gate.shortening import Shortener, told
from ollama_gate.tasks import spawn
from ollama_gate.turn import Phase, Turn, Verdict
from ollama_gate.upstream.client import Upstream
from ollama_gate.upstream.connection import Answer
from ollama_gate.upstream.headers import for_upstream
from ollama_gate.upstream.outlet import SERVER
from ollama_gate.upstream.overflow import overflow_of
from ollama_gate.upstream.relay import Passage, give_back, relay, relay_whole
from ollama_gate.upstream.translate import SIGNS_EVERY, Translation
from ollama_gate.values import frozen
from ollama_gate.window import Output, Window
from ollama_gate.wire.body import encode_json
from ollama_gate.wire.ndjson import BLIND, TailObserver

_AS_ASKED: Final = Output(None)
# An enum's members are slow to get (Python 3.11).
_COUNTING, _QUEUED, _FIRST_BYTE = Phase.COUNTING, Phase.QUEUED, Phase.FIRST_BYTE
_EMBED, _NONE, _ADMIT, _BOUND = Kind.EMBED, Control.NONE, Verdict.ADMIT, Rung.BOUND


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


@dataclass(frozen=True, slots=True)
class RefusedBefore:
    """Conversations that were refused: who may pass on grace, and who goes round in circles."""

    grace: refusals.GraceBook = field(default_factory=refusals.GraceBook)
    loops: LoopBook = field(default_factory=LoopBook)


class Pipeline:
    """Everything that a guarded request passes through, for one configuration."""

    def __init__(
        self,
        config: Config,
        *,
        upstream: Upstream,
        catalog: Catalog,
        counter: Counter,
        admission: Admission,
        settler: Settler,
        shortener: Shortener,
        clock: Callable[[], float],
        refused_before: RefusedBefore,
    ) -> None:
        """Put the stages together; nothing is sent yet."""
        self.config = config
        self.policies = Policies(config, lambda: Features.of(catalog.version), catalog, admission.disputed)
        self._upstream = upstream
        self._catalog = catalog
        self._counter = counter
        self._admission = admission
        self._settler = settler
        self._shortener = shortener
        self._clock = clock
        self._body_limit = body_limit(config)
        self._refused = refusals.RefusalMemory(config.refusals.remember)
        self.refused_before = refused_before
        self._watch = Watch(config.signals, clock) if config.signals.enabled else None
        self.signs_every = SIGNS_EVERY
        """Seconds of silence after which an open stream shows a sign of life."""

    async def handle(self, request: web.BaseRequest, lane: Lane, turn: Turn) -> web.StreamResponse:
        """Take one guarded request from its first byte to its last."""
        passage, observer = Passage(), TailObserver()
        try:
            tools = self.config.dialects.server_tools
            if lane.form:
                form = await read_form(request, self.config.server.max_body)
                received, came, inference = Received(b""), Came(form), lane.parse(form, request.headers, tools)
            else:
                received = received_at_hand(request, self._body_limit) or await receive(request, self._body_limit)
                self._recall(received, turn)
                came, inference = await received.understood(lambda body: lane.read(body, request.headers, tools))
            if turn.caller is not None and inference.model:
                turn.caller.require_model(inference.model)
            card = self._catalog.at_hand(inference.model)
            if card is None and inference.model:
                card = await self._card(inference.model)
            if card is not None:
                turn.model = card.key
                if not card.thinks:
                    inference = without_thinking(inference)
            judged = self._judge(inference, card, turn)
            if judged.open and card is not None:
                judged = await self._judge_by_count(inference, card, judged.applied, turn, received)
            if self._watch is not None:
                self._watch.look(inference, turn, compacted=judged.shorter is not None)
            inference = judged.shorter or inference
            if (caller := turn.caller) is not None:
                caller.book(judged.count)
                client, priority = caller.key.id, caller.key.priority
            else:
                client, priority = client_of(request), 0
            turn.phase = _QUEUED
            lease = self._admission.lease(card, judged.applied, client, inference.control, priority=priority)
            if (waiting := lease.enter()) is not None:
                await waiting
            try:
                turn.wait_seconds = lease.waited
                sending = self._send(request, inference, judged, turn, lease, came)
                del received  # it may be large, and an answer takes long
                if inference.as_it_came:  # what Ollama reports is the sum of several prompts: nothing to learn from
                    return await relay(
                        request, await sending, turn=turn, observer=BLIND, passage=passage, clock=self._clock
                    )
                if lane.writer is None:
                    answer = await sending
                    hand_on = relay if inference.stream and answer.status == 200 else relay_whole
                    response = await hand_on(
                        request, answer, turn=turn, observer=observer, passage=passage, clock=self._clock
                    )
                else:
                    translation = Translation(
                        request,
                        make_writer=self._writer(lane, inference, came.body, card, judged, turn),
                        turn=turn,
                        observer=observer,
                        passage=passage,
                        clock=self._clock,
                        signs_every=self.signs_every,
                    )
                    if inference.stream:
                        response = await translation.stream(sending)
                    else:
                        response = await translation.whole(await sending)
            finally:
                lease.leave()
            room, count = judged.applied.window, judged.count
            if card is not None and room is not None and count is not None and passage.whole:
                self._counter.learn(inference, card, room, count, passage.end(observer))
            return response
        except Refused as no:
            return await self._refuse(request, no.refusal, lane, turn)
        except UpstreamError as failure:
            turn.failed(failure)
            return await self._refuse(request, refusals.upstream_failed(failure, self.config.upstream.url), lane, turn)
        except asyncio.CancelledError:
            turn.left = request.transport is None or request.transport.is_closing()
            raise
        finally:
            self._settler.settle(turn, passage, observer)

    async def judge_only(self, inference: InferenceRequest) -> tuple[PromptCount, Applied, ModelCard]:
        """Count a request as if it were to be sent, with its parts; for /gate/count and the dialects' own counters.

        Raises:
            Refused: 404 for a model that Ollama does not have, 400 for one that cannot be counted.
        """
        card = await self._card(inference.model)
        if card is None or card.mode is Mode.REMOTE:
            raise Refused(refusals.not_counted(inference.model, remote=card is not None))
        applied = self.policies.for_card(card)
        if inference.control is not Control.NONE:
            return PromptCount(0, 0, Rung.EXACT, why="it loads or unloads the model and has no prompt"), applied, card
        images = applied.policy.image_tokens
        if not card.thinks:
            inference = without_thinking(inference)
        if inference.kind is Kind.EMBED:
            if applied.embeds is None:
                raise Refused(refusals.cannot_embed(card.name))
            texts = inputs(inference)
            return await self._counter.count_inputs(texts, card, applied.embeds.tokens, exactly=True), applied, card
        room = applied.window
        if room is None:
            raise Refused(refusals.not_counted(inference.model, remote=True))
        try:
            count = await self._counter.count(inference, card, room, image_tokens=images, exactly=True)
        except TemplateRefused as bad:
            raise Refused(Refusal(400, "template_refused", f"Ollama will refuse this request: {bad}")) from bad
        return count, applied, card

    def models_changed(self) -> None:
        """A name may stand for another model now: what was refused may fit."""
        self._refused.forget()

    def _recall(self, got: Received, turn: Turn) -> None:
        """Refuse a body again that was refused a moment ago."""
        turn.body_bytes = got.size
        again = self._refused.recall(turn.route, got.identity, self._clock())
        if again is not None:
            turn.verdict = Verdict.REFUSE
            raise Refused(again)

    async def _card(self, name: str) -> ModelCard | None:
        """The model's card; None when Ollama has no such model, and then its own answer is the right one."""
        try:
            return await self._catalog.card(name)
        except InvalidName as bad:
            raise Refused(Refusal(400, "invalid_model_name", str(bad), param="model")) from bad

    def _judge(self, inference: InferenceRequest, card: ModelCard | None, turn: Turn) -> Judged:
        """The verdict as far as it can be had without counting: sent on, refused, or open."""
        turn.phase = _COUNTING
        turn.asked_output = turn.limit = inference.asked_output
        if card is None:
            turn.verdict = Verdict.UNCOUNTED
            return Judged(self.policies.unknown(self._catalog.key(inference.model) if inference.model else ""))
        applied = self.policies.for_card(card)
        if inference.as_it_came:
            applied = first_leg(applied, card)
        room = applied.window
        if room is None:
            turn.verdict = Verdict.UNCOUNTED
            return Judged(applied)
        embeds = inference.kind is _EMBED
        if embeds and not card.embeds:
            raise Refused(refusals.cannot_embed(card.name))
        if applied.policy.on_load_option == "refuse":
            refusals.check_load_options(inference)
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

    async def _judge_by_count(
        self, inference: InferenceRequest, card: ModelCard, applied: Applied, turn: Turn, got: Received
    ) -> Judged:
        """The verdict where bytes do not settle it."""
        room = applied.window
        if inference.kind is _EMBED or room is None:
            return await self._judge_inputs(inference, card, applied, turn, got)
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
        if strict and window.too_long_with_reply(asked, count.tokens, room):
            raise self._refused_for_length(inference, refusals.reply_too_long(inference, count, room), turn, got)
        output = window.clamp_output(asked, count.tokens if room.guarded else count.at_most, room)
        if output.num_predict is not None:
            turn.limit, turn.clamped = output.num_predict, output.clamped
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
            raise self._refused_for_length(whole, refusal, turn, got) from no
        return done.request, done.count

    async def _judge_inputs(
        self, inference: InferenceRequest, card: ModelCard, applied: Applied, turn: Turn, got: Received
    ) -> Judged:
        limit = applied.embeds
        if limit is None:
            raise Refused(refusals.cannot_embed(card.name))
        turn.budget = limit.tokens
        began = self._clock()
        count = await self._counter.count_inputs(inputs(inference), card, limit.tokens)
        turn.counted(count, self._clock() - began)
        for index, tokens in enumerate(count.items):
            if tokens > limit.tokens:
                refusal = refusals.input_too_long(inference, index, tokens, limit, count.rung, why=count.why)
                raise self._refused_for_length(inference, refusal, turn, got)
        turn.verdict = Verdict.ADMIT
        return Judged(applied, count)

    def _on_grace(self, inference: InferenceRequest, count: PromptCount, room: Window) -> bool:
        if not self.config.refusals.grace or count.at_most > window.grace_limit(room):
            return False
        conversation, prompt = refusals.conversation_key(inference), refusals.prompt_key(inference)
        return self.refused_before.grace.take(conversation, prompt, self._clock())

    def _refused_for_length(self, inference: InferenceRequest, refusal: Refusal, turn: Turn, got: Received) -> Refused:
        now, conversation = self._clock(), refusals.conversation_key(inference)
        # Only where an agent names its conversation: a person who tries one prompt in many ways is not going round.
        if inference.session and self.refused_before.loops.refused(conversation, turn.prompt_tokens or 0, now):
            return Refused(hopeless(refusal))
        if got.identity:
            self._refused.keep(turn.route, got.identity, refusal, now)
        self.refused_before.grace.grant(conversation, refusals.prompt_key(inference), now)
        return Refused(refusal)

    async def _send(
        self, request: web.BaseRequest, inference: InferenceRequest, judged: Judged, turn: Turn, lease: Hold, came: Came
    ) -> Answer:
        """Send the gate's own body; returns with Ollama's status line."""
        path, sent = inference.path, came.body
        if inference.as_it_came:
            path = turn.route
            turn.notes.extend(inference.notes)
        else:
            forced = force(inference, judged.applied.window, judged.output)
            sent = forced.body
            turn.notes.extend(forced.notes)
            turn.reload_avoided = forced.reload_avoided
        authorization = self.config.upstream.forward_authorization
        lines = for_upstream(request.raw_headers, own_body=True, authorization=authorization)
        turn.phase, turn.sent_at = _FIRST_BYTE, self._clock()
        try:
            out = outgoing(encode_json(sent), came.stand_ins, lines)
            answer = await self._upstream.send("POST", path, lines, out)
        except UpstreamUnreachable:
            lease.failed()  # after every other failure a load may still be under way
            raise
        if answer.status < 500:
            lease.answered()
        else:
            lease.failed()
        if answer.status >= 400:
            try:
                await self._understood(answer, inference, judged)
            except BaseException as failure:
                if isinstance(failure, Refused):
                    lease.answered()  # only a loaded model can say that a prompt does not fit
                answer.close()
                raise
        return answer

    def _writer(
        self, lane: Lane, inference: InferenceRequest, body: Json, card: ModelCard | None, judged: Judged, turn: Turn
    ) -> Callable[[], Awaitable[AnswerWriter]]:
        """Who writes this answer. Where the dialect tells the prompt count first, it is made while Ollama works."""
        counting: asyncio.Task[PromptCount] | None = None
        count, room = judged.count, judged.applied.window
        wanted = lane.needs_count and inference.stream and count is not None and count.rung is Rung.BOUND
        if wanted and card is not None and room is not None:
            images = judged.applied.policy.image_tokens
            counting = spawn(
                self._counter.count(inference, card, room, image_tokens=images), name="count for a stream", quiet=True
            )

        async def make() -> AnswerWriter:
            tokens = count.tokens if count is not None and count.rung is not Rung.BOUND else None
            if counting is not None:
                try:
                    tokens = (await counting).tokens
                except (CountingError, Refused):
                    tokens = None
            facts = AnswerFacts(prompt_tokens=tokens, window=room.num_ctx if room is not None else None)
            stamp = Stamp(int(time.time()), turn.id.replace("-", ""))
            if lane.writer is None:
                raise TypeError("this lane has no writer")
            return lane.writer(inference, body, stamp, facts)

        return make

    async def _understood(self, answer: Answer, inference: InferenceRequest, judged: Judged) -> None:
        """Turn Ollama's own "does not fit" into the gate's refusal: clients understand that one."""
        found = await overflow_of(answer)
        if found is None or judged.applied.window is None:
            return
        give_back(answer, whole=True)
        card = self._catalog.last_known(inference.model)
        if card is not None and judged.count is not None:
            self._counter.contradicted(inference, card, judged.count, found.tokens)
        raise Refused(refusals.refused_upstream(inference, found.tokens, found.limit, judged.applied.window))

    async def _refuse(self, request: web.BaseRequest, refusal: Refusal, lane: Lane, turn: Turn) -> web.StreamResponse:
        """Answer with a refusal in the caller's dialect."""
        turn.refused(refusal)
        body, content_type = lane.render_refusal(refusal)
        headers = {**turn.headers(), **refusal.headers, "Content-Type": content_type, "Server": SERVER}
        response = web.Response(status=refusal.status, reason=refusal.reason or None, body=body, headers=headers)
        await response.prepare(request)
        await response.write_eof()
        return response


def _asked(inference: InferenceRequest, card: ModelCard, room: Window) -> int | None:
    """The answer's length in force: an Ollama that cuts is held to the Modelfile's where nothing is asked."""
    asked = inference.asked_output
    return card.num_predict if asked is None and not room.guarded else asked


def _strict(inference: InferenceRequest, card: ModelCard, applied: Applied, room: Window) -> bool:
    """Whether the length that is asked of the answer decides too."""
    return applied.policy.on_long_reply == "refuse" and (_asked(inference, card, room) or 0) > 0
