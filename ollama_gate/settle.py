"""What is left of a request when it is over: one log line and its metrics.

Nothing here can fail a request: whatever goes wrong while observing is logged once and counted. Most of it can wait for
a moment in which nobody's answer does, and costs less when it is done for several requests in a row.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from ollama_gate.observe import log as gate_log
from ollama_gate.observe.metrics import Metrics
from ollama_gate.turn import Phase, Turn
from ollama_gate.upstream.overflow import of_a_run
from ollama_gate.upstream.relay import Passage
from ollama_gate.window import ending
from ollama_gate.wire.ndjson import StreamEnd, TailObserver

_GATHERED: Final = 0.005
"""Seconds for which what can wait is gathered."""
_AT_A_TIME: Final = 16
"""Turns settled in a row, until the loop looks whether there is something for others: half a millisecond."""


_Over = tuple[Turn, Passage, TailObserver, Callable[[StreamEnd], None], float]
"""A turn with what `Settler.settle` takes, and when it was over."""


class Settler:
    """Writes each finished turn into the log and the metrics."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        """Keep where to write to."""
        self.metrics = metrics
        self._log = log
        self._clock = clock
        self._gathered: list[_Over] = []

    def later(self, turn: Turn, passage: Passage, observer: TailObserver, learn: Callable[[StreamEnd], None]) -> None:
        """Settle one turn within some milliseconds, or with the next `catch_up`: what it tells surprises nobody."""
        gathered = self._gathered
        if not gathered:
            asyncio.get_running_loop().call_later(_GATHERED, self._some)
        gathered.append((turn, passage, observer, learn, self._clock()))

    def catch_up(self) -> None:
        """Settle what was put off; whoever reads what it is written into sees all of it then."""
        gathered, self._gathered = self._gathered, []
        gate_log.write(b"".join([self._settled(*over) for over in gathered]))

    def _some(self) -> None:
        gathered = self._gathered
        if len(gathered) > _AT_A_TIME:
            self._gathered = gathered[:_AT_A_TIME]
            self.catch_up()
            self._gathered = gathered[_AT_A_TIME:]
            asyncio.get_running_loop().call_soon(self._some)
        else:
            self.catch_up()

    def settle(
        self,
        turn: Turn,
        passage: Passage,
        observer: TailObserver,
        learn: Callable[[StreamEnd], None] | None = None,
    ) -> None:
        """Settle one turn; it or `later` is called exactly once, after the last byte or whatever came instead.

        Args:
            turn: the request's record.
            passage: how its answer passed.
            observer: has seen the answer.
            learn: takes what the end of a whole answer says of the prompt's count.
        """
        gate_log.write(self._settled(turn, passage, observer, learn, self._clock()))

    def _settled(
        self,
        turn: Turn,
        passage: Passage,
        observer: TailObserver,
        learn: Callable[[StreamEnd], None] | None,
        ended_at: float,
    ) -> bytes:
        """The line of one more turn that is settled."""
        line = b""
        try:
            end = passage.end(observer) if passage.bytes else None
            if turn.caller is not None:
                reported, error = (None, None) if end is None else (end.prompt_eval_count, end.error)
                evaluated = turn.evaluated or (error is not None and of_a_run(error))
                turn.caller.settle(reported, evaluated=evaluated)
            ended = None
            if end is not None and end.done:
                ended = str(ending(end.done_reason, eval_count=end.eval_count, limit=turn.limit))
            self._count(turn, passage, end, ended)
            if turn.signals:
                self._signals(turn)
            line = gate_log.finished(_told(turn, passage, end, ended, ended_at))
            if learn is not None:
                learn(passage.end(observer))
        except Exception as failure:  # noqa: BLE001 - observing must never fail a request
            self._log.error("a finished request could not be recorded", exc_info=failure)
        return line

    def _count(self, turn: Turn, passage: Passage, end: StreamEnd | None, ended: str | None) -> None:
        metrics, model = self.metrics, self.metrics.model(turn.model)
        metrics.requests.by[turn.route, model, str(turn.verdict)].value += 1
        if turn.left:
            metrics.client_gone.labels(str(turn.phase)).inc()
        if turn.code is not None:
            if turn.code.startswith("upstream_"):
                metrics.upstream_errors.labels(turn.code).inc()
            if turn.phase is not Phase.STREAMING:
                metrics.refusals.labels(turn.route, turn.code).inc()
        if turn.count_seconds is not None and turn.rung is not None:
            metrics.count_seconds.labels(str(turn.rung)).observe(turn.count_seconds)
        if turn.wait_seconds is not None:
            metrics.wait_seconds.by[(model,)].observe(turn.wait_seconds)
        if turn.reload_avoided:
            metrics.reloads_avoided.labels(model).inc()
        if turn.clamped:
            metrics.clamped.labels(model).inc()
        if passage.first_byte_at is not None and turn.sent_at is not None:
            metrics.first_byte_seconds.by[(turn.route,)].observe(passage.first_byte_at - turn.sent_at)
        if end is None:
            return
        if end.error is not None and turn.status == 200:
            metrics.upstream_errors.labels("error_in_answer").inc()
        if end.prompt_eval_count is not None:
            if turn.reported is not None:
                turn.reported(end.prompt_eval_count)
            metrics.prompt_tokens.by[(model,)].observe(end.prompt_eval_count)
        if end.eval_count is not None:
            metrics.relayed.by[(model,)].value += end.eval_count
        if ended is not None:
            metrics.endings.by[model, ended].value += 1

    def _signals(self, turn: Turn) -> None:
        model = self.metrics.model(turn.model)
        for name in turn.signals:
            self.metrics.signals.labels(model, name).inc()


def _told(turn: Turn, passage: Passage, end: StreamEnd | None, ended: str | None, ended_at: float) -> dict[str, object]:
    """What the log says of a turn."""
    line: dict[str, object] = {
        "id": turn.id,
        "route": turn.route,
        "model": turn.model,
        "verdict": str(turn.verdict),
        "status": turn.status,
        "seconds": _places(ended_at - turn.started),
        "body_bytes": turn.body_bytes,
    }
    if turn.caller is not None:
        line["key"] = turn.caller.key.name
    if turn.code is not None:
        line["code"] = turn.code
    if turn.left:
        line["client_gone"] = str(turn.phase)
    if turn.rung is not None:
        line["rung"] = str(turn.rung)
        line["prompt_tokens"] = turn.prompt_tokens
    if turn.budget is not None:
        line["budget"] = turn.budget
        line["window"] = turn.window
    if turn.count_seconds is not None:
        line["count_seconds"] = round(turn.count_seconds, 5)
    if turn.compaction is not None and turn.compaction_seconds is not None:
        line["compaction"] = turn.compaction
        line["compaction_seconds"] = _places(turn.compaction_seconds)
        if turn.compacted_from is not None:
            line["compacted_from"] = turn.compacted_from
    if turn.wait_seconds is not None:
        line["wait_seconds"] = _places(turn.wait_seconds)
    if passage.first_byte_at is not None and turn.sent_at is not None:
        line["first_byte_seconds"] = _places(passage.first_byte_at - turn.sent_at)
        line["answer_bytes"] = passage.bytes
    if end is not None:
        line["prompt_eval_count"] = end.prompt_eval_count
        line["eval_count"] = end.eval_count
        if end.error is not None and turn.status == 200:
            line["error_in_answer"] = True
        if ended is not None:
            line["ended"] = ended
        elif end.error is None and passage.whole and turn.status == 200 and "/embed" not in turn.route:
            line["ended"] = "without done"
    if turn.signals:
        line["signals"] = dict(turn.signals)
    if turn.notes:
        line["notes"] = list(turn.notes)
    return line


def _places(seconds: float) -> float:
    """Seconds to four places; what `round` does takes ten times as long."""
    return int(seconds * 10_000 + 0.5) / 10_000
