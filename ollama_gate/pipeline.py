"""The life of a guarded request, top to bottom: read, understand, count, judge, wait, send, hand on, settle.

Each stage takes what the one before made, and either returns its own result or raises `Refused`. Whatever happens, the
turn is settled exactly once, and nothing that only observes can fail a request.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import web

from ollama_gate import refusals
from ollama_gate.admission.hold import Hold
from ollama_gate.admitting import Admission
from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.catalog.versions import Features
from ollama_gate.config import Config
from ollama_gate.counting.counter import Counter
from ollama_gate.dialects.lane import Lane
from ollama_gate.dialects.translation import Stamp
from ollama_gate.errors import CountingError, Refusal, Refused, UpstreamError, UpstreamUnreachable
from ollama_gate.forcing import force
from ollama_gate.judging import Judge, Judged
from ollama_gate.observe.watch import Watch
from ollama_gate.policies import Applied, Policies
from ollama_gate.receive import (
    Received,
    body_limit,
    client_of,
    elsewhere,
    has_left,
    outgoing,
    read_form,
    receive,
    received_at_hand,
)
from ollama_gate.refused_before import RefusedBefore
from ollama_gate.requests import AnswerFacts, AnswerWriter, InferenceRequest, Json, Kind, PromptCount, Rung
from ollama_gate.routes import refused
from ollama_gate.settle import Settler
from ollama_gate.shortening import Shortener
from ollama_gate.tasks import spawn
from ollama_gate.turn import Phase, Turn, Verdict
from ollama_gate.upstream.client import Upstream
from ollama_gate.upstream.connection import Answer
from ollama_gate.upstream.headers import for_upstream
from ollama_gate.upstream.overflow import overflow_of
from ollama_gate.upstream.relay import Passage, give_back, relay, relay_marked, relay_whole
from ollama_gate.upstream.translate import SIGNS_EVERY, Translation
from ollama_gate.wire.body import decode_json, encode_json
from ollama_gate.wire.ndjson import BLIND, StreamEnd, TailObserver
from ollama_gate.wire.payloads import StandIns

# An enum's members are slow to get (Python 3.11).
_QUEUED, _FIRST_BYTE, _EMBED, _ADMIT, _BOUND = Phase.QUEUED, Phase.FIRST_BYTE, Kind.EMBED, Verdict.ADMIT, Rung.BOUND

_COUNT_WITHIN: Final = 5.0
"""Seconds for which a stream, or its first sign of life, waits for the count that it begins with."""


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
        self._clock = clock
        self._body_limit = body_limit(config)
        self.judge = Judge(
            self.policies,
            counter=counter,
            shortener=shortener,
            remember=config.refusals.remember,
            grace=config.refusals.grace,
            refused_before=refused_before,
            clock=clock,
        )
        self._watch = Watch(config.signals, clock) if config.signals.enabled else None
        self.signs_every = SIGNS_EVERY
        """Seconds of silence after which an open stream shows a sign of life."""

    async def handle(self, request: web.BaseRequest, lane: Lane, turn: Turn) -> web.StreamResponse:
        """Take one guarded request from its first byte to its last."""
        passage, observer = Passage(), TailObserver()
        learn: Callable[[StreamEnd], None] | None = None
        foreseen = False
        counting: asyncio.Task[PromptCount] | None = None
        try:
            received, body, inference = self._at_hand(request, lane, turn) or await self._read(request, lane, turn)
            caller, name = turn.caller, inference.model
            if caller is not None and name:
                caller.require_model(name)
            card = self._catalog.at_hand(name)
            if card is None and name:
                card = await self._catalog.card(name)
            if card is not None:
                turn.model = key = card.key
                taken = self.judge.taken(inference, card)
                inference = taken if isinstance(taken, InferenceRequest) else await taken
            else:
                key = self._catalog.key(name) if name else ""
            judged = self.judge.at_once(inference, card, key, turn)
            if card is not None and (judged.open or caller is not None):
                judged = await self._judge(judged, inference, card, turn, received)
            if self._watch is not None:
                self._watch.look(inference, turn, compacted=judged.shorter is not None)
            inference = judged.shorter or inference
            if judged.applied.shifts and card is not None:
                inference = await self.judge.keeping(inference, card)
            stand_ins = received.stand_ins
            del received  # it may be large, and an answer takes long
            if caller is not None:
                caller.book(judged.count)
                client, priority = caller.key.id, caller.key.priority
            else:
                client, priority = client_of(request), 0
            turn.phase = _QUEUED
            lease = self._admission.lease(card, judged.applied, client, inference.control, priority=priority)
            if (waiting := lease.enter()) is not None:
                try:
                    await waiting
                finally:
                    turn.wait_seconds = lease.waited
            try:
                turn.wait_seconds = lease.waited
                sending = self._send(request, inference, body, stand_ins, judged, turn, lease=lease)
                if inference.as_it_came:  # what Ollama reports is the sum of several prompts: nothing to learn from
                    return await relay(
                        request, await sending, turn=turn, observer=BLIND, passage=passage, clock=self._clock
                    )
                marked = inference.kind is not _EMBED and not inference.body.get("_debug_render_only")
                if lane.writer is None:
                    answer = await sending
                    streamed = inference.stream and answer.status == 200
                    hand_on = (relay_marked if marked else relay) if streamed else relay_whole
                    response = await hand_on(
                        request, answer, turn=turn, observer=observer, passage=passage, clock=self._clock
                    )
                else:
                    counting = self._counting(lane, inference, card, judged)
                    translation = Translation(
                        request,
                        make_writer=self._writer(lane, inference, body, judged, turn, counting),
                        turn=turn,
                        observer=observer,
                        passage=passage,
                        clock=self._clock,
                        signs_every=self.signs_every,
                    )
                    if inference.stream:
                        response = await translation.stream(sending)
                    else:
                        response = await translation.whole(await sending, marked=marked)
            finally:
                lease.leave()
            room, count = judged.applied.window, judged.count
            if card is not None and room is not None and count is not None and passage.whole:
                learn = partial(self._counter.learn, inference, card, room, count)
                foreseen = caller is None and turn.reported is None and _foreseen(count, passage.end(observer))
            return response
        except Refused as no:
            return await _refuse(request, no.refusal, turn)
        except UpstreamError as failure:
            return await _refuse(request, refusals.upstream_failed(failure, self.config.upstream.url), turn)
        except (asyncio.CancelledError, Exception) as ended:
            turn.left = isinstance(ended, asyncio.CancelledError | ConnectionError) and has_left(request)
            if isinstance(ended, Exception) and not turn.left:
                turn.broke()  # a ConnectionError towards Ollama would be an UpstreamError
            raise
        finally:
            if counting is not None:
                counting.cancel()  # nobody waits for it any more
            if learn is not None and foreseen:
                self._settler.later(turn, passage, observer, learn)
            else:
                self._settler.settle(turn, passage, observer, learn)

    async def judge_only(self, inference: InferenceRequest) -> tuple[PromptCount, Applied, ModelCard]:
        """Count a request as if it were to be sent, with its parts; for /gate/count and the dialects' own counters.

        Raises:
            Refused: 404 for a model that Ollama does not have, 400 for one that cannot be counted.
        """
        card = await self._catalog.card(inference.model)
        if card is None:
            raise Refused(refusals.not_counted(inference.model, remote=False))
        return *await self.judge.only(inference, card), card

    def _at_hand(
        self, request: web.BaseRequest, lane: Lane, turn: Turn
    ) -> tuple[Received, Json, InferenceRequest] | None:
        """The same as `_read` gives, where nothing has to be waited for, as nearly always; None where something has."""
        received = None if lane.form else received_at_hand(request, self._body_limit)
        if received is None:
            return None
        self.judge.recall(received, turn)
        tools = self.config.dialects.server_tools
        return received, *lane.read(decode_json(received.text), request.headers, tools)

    async def _read(self, request: web.BaseRequest, lane: Lane, turn: Turn) -> tuple[Received, Json, InferenceRequest]:
        """What the client sent, its body decoded and folded, and the native request that it means."""
        tools = self.config.dialects.server_tools
        if lane.form:
            form, files = await read_form(request, self.config.server.max_body)
            return Received(b"", stand_ins=files), form, lane.parse(form, request.headers, tools)
        received = await receive(request, self._body_limit)
        self.judge.recall(received, turn)
        return received, *await received.understood(lambda body: lane.read(body, request.headers, tools))

    async def _judge(
        self, judged: Judged, inference: InferenceRequest, card: ModelCard, turn: Turn, received: Received
    ) -> Judged:
        """The verdict by the count, where the bytes did not settle it or a quota goes by it."""
        if judged.open:
            self._settler.catch_up()  # counts go by what was learned
            judged = await self.judge.by_count(inference, card, judged.applied, turn, received)
        caller, count = turn.caller, judged.count
        if caller is not None and count is not None and turn.verdict is _ADMIT and caller.short_of(count):
            # A bound that was enough for the verdict would use up a quota that the prompt may leave room in.
            judged = await self.judge.by_count(inference, card, judged.applied, turn, received, exactly=True)
        return judged

    async def _send(
        self,
        request: web.BaseRequest,
        inference: InferenceRequest,
        body: Json,
        stand_ins: StandIns | None,
        judged: Judged,
        turn: Turn,
        *,
        lease: Hold,
    ) -> Answer:
        """Send the gate's own body, or the client's (`body`) as it came; returns with Ollama's status line."""
        path, sent = inference.path, body
        if inference.as_it_came:
            path = turn.route
        else:
            forced = force(inference, judged.applied.window, judged.output)
            sent, turn.reload_avoided = forced.body, forced.reload_avoided
            if judged.output.clamped:
                turn.notes.append(f"asked output clamped to {judged.output.num_predict}")
        authorization = self.config.upstream.forward_authorization
        lines = for_upstream(request.raw_headers, own_body=True, authorization=authorization)
        turn.phase, turn.sent_at = _FIRST_BYTE, self._clock()
        try:
            text = encode_json(sent) if inference.weight is None else await elsewhere(partial(encode_json, sent))
            out = outgoing(text, stand_ins, lines)
            turn.evaluated = True
            answer = await self._upstream.send("POST", path, lines, out, meanwhile=turn.prepare)
        except UpstreamUnreachable:
            turn.evaluated = False
            lease.unsent()  # after every other failure a load may still be under way
            raise
        if answer.status < 500:
            lease.answered()
        else:
            lease.failed()
        if answer.status >= 400:
            turn.evaluated = False
            try:
                await self._refused_for_length(answer, inference, judged)
            except BaseException as failure:
                if isinstance(failure, Refused):
                    lease.answered()  # only a loaded model can say that a prompt does not fit
                answer.close()
                raise
        return answer

    def _counting(
        self, lane: Lane, inference: InferenceRequest, card: ModelCard | None, judged: Judged
    ) -> asyncio.Task[PromptCount] | None:
        """The count of a prompt that bytes have settled, made while Ollama works, where the dialect tells it first."""
        count, room = judged.count, judged.applied.window
        wanted = lane.needs_count and inference.stream and count is not None and count.rung is _BOUND
        if not wanted or card is None or room is None:
            return None
        images = judged.applied.policy.image_tokens
        return spawn(
            self._counter.count(inference, card, room, image_tokens=images), name="count for a stream", quiet=True
        )

    def _writer(
        self,
        lane: Lane,
        inference: InferenceRequest,
        body: Json,
        judged: Judged,
        turn: Turn,
        counting: asyncio.Task[PromptCount] | None,
    ) -> Callable[[], Awaitable[AnswerWriter]]:
        """Who writes this answer."""
        count, room = judged.count, judged.applied.window

        async def make() -> AnswerWriter:
            tokens = count.tokens if count is not None and count.rung is not _BOUND else None
            if counting is not None:
                try:
                    async with asyncio.timeout(_COUNT_WITHIN):
                        tokens = (await counting).tokens
                except (CountingError, Refused, UpstreamError, TimeoutError):
                    tokens = None
            facts = AnswerFacts(prompt_tokens=tokens, window=room.num_ctx if room is not None else None)
            stamp = Stamp(int(time.time()), turn.id.replace("-", ""))
            if lane.writer is None:
                raise TypeError("this lane has no writer")
            return lane.writer(inference, body, stamp, facts)

        return make

    async def _refused_for_length(self, answer: Answer, inference: InferenceRequest, judged: Judged) -> None:
        """Turn Ollama's own "does not fit" into the gate's refusal: clients understand that one."""
        found = await overflow_of(answer)
        if found is None or judged.applied.window is None:
            return
        give_back(answer, whole=True)
        card = self._catalog.last_known(inference.model)
        if card is not None and judged.count is not None:
            self._counter.contradicted(inference, card, judged.count, found.tokens)
        raise Refused(refusals.refused_upstream(inference, found.tokens, found.limit, judged.applied.window))


def _foreseen(count: PromptCount, end: StreamEnd) -> bool:
    """Whether Ollama's own count only says what let the prompt pass: that it takes no more than its bytes allow."""
    return count.rung is _BOUND and end.prompt_eval_count is not None and end.prompt_eval_count <= count.tokens


async def _refuse(request: web.BaseRequest, refusal: Refusal, turn: Turn) -> web.StreamResponse:
    """Send a refusal, before the turn is settled."""
    response = refused(refusal, turn)
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        turn.left = has_left(request)
        raise
    return response
