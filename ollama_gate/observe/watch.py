"""Signals in the way of a request: looked for before it is sent, told in its answer, and refused where that is wanted.

Observing fails open: whatever goes wrong here is logged once, and the request goes on.
"""

from collections.abc import Callable
from typing import Final

from ollama_gate.config.signals import SignalKind, Signals
from ollama_gate.errors import Refusal, Refused
from ollama_gate.observe.log import logger
from ollama_gate.observe.signals import Look, Signal, SignalBook
from ollama_gate.requests import InferenceRequest
from ollama_gate.turn import Turn, Verdict

CODE: Final = "signal_blocked"
_MOST_UNCOUNTED: Final = 4 * 1024**2
"""Bytes of a body above which it is not looked at, where no count has bounded what is in it."""
_SEEN: Final = {
    SignalKind.REPEATED_CALL: "the same tool call was made {amount} times in a row{where}",
    SignalKind.REREAD: "{amount} of the last 20 tool calls fetched what had been fetched before",
    SignalKind.GOAL_RESTATED: "the model told the request again {amount} times",
    SignalKind.CALL_AS_TEXT: "the model wrote tool calls as text in {amount} of its last 8 answers",
    SignalKind.FEW_CHANGES: "{amount} turns with tool calls went by for each file that was changed",
    SignalKind.PROMPT_STANDSTILL: "the conversation grew for {amount} turns, and the prompt that was evaluated did not",
    SignalKind.PREFIX_BREAK: "{amount} tokens have to be evaluated again, because something before them changed{where}",
}
_ADVICE: Final = {
    SignalKind.REPEATED_CALL: "Tell the model in a new message what came of the call, or begin a new conversation.",
    SignalKind.REREAD: "Begin a new conversation with a short summary.",
    SignalKind.GOAL_RESTATED: "Begin a new conversation with a short summary.",
    SignalKind.CALL_AS_TEXT: "Begin a new conversation, with fewer tools.",
    SignalKind.FEW_CHANGES: "Ask for something smaller in a new conversation.",
    SignalKind.PROMPT_STANDSTILL: "Something cuts the prompt behind the gate: look at Ollama's version and log.",
    SignalKind.PREFIX_BREAK: "Keep what stands first (system prompt, tools, old messages) the same in every turn.",
}


class Watch:
    """Looks at each conversation as its requests pass."""

    def __init__(self, limits: Signals, clock: Callable[[], float]) -> None:
        """Watch with these thresholds; the clock gives seconds and never goes back."""
        self.book = SignalBook(limits)
        self._block = frozenset(limits.block)
        self._clock = clock
        self._failed = False

    def look(self, request: InferenceRequest, turn: Turn, *, compacted: bool = False) -> None:
        """Note on the turn what its conversation shows.

        Args:
            request: the conversation as the client sent it.
            turn: the record of this request.
            compacted: Ollama gets it in a shorter form, so that its prompt count is not that of these messages.

        Raises:
            Refused: 400, where the operator blocks one of these signals.
        """
        if turn.body_bytes > _MOST_UNCOUNTED and turn.verdict is Verdict.UNCOUNTED:
            return
        try:
            look = self.book.look(request, self._clock())
        except Exception as failure:  # noqa: BLE001 - observing must never fail a request
            self._complain(failure)
            return
        if look is None:
            return
        if look.signals:
            _tell(turn, look)
        if compacted:
            look.not_counted()
        else:
            turn.reported = lambda tokens: _hear(turn, look, tokens)
        if self._block:
            for signal in look.signals:
                if signal.kind in self._block:
                    raise Refused(blocked(signal))

    def _complain(self, failure: Exception) -> None:
        if not self._failed:
            self._failed = True
            logger().error("a conversation could not be watched; this is said once", exc_info=failure)


def _tell(turn: Turn, look: Look) -> None:
    turn.signals = {signal.kind.value: signal.amount for signal in look.signals}
    turn.signals_told = ", ".join(map(str, look.signals))


def _hear(turn: Turn, look: Look, tokens: int) -> None:
    before = look.signals
    look.answered(tokens)
    if look.signals is not before:
        _tell(turn, look)


def blocked(signal: Signal) -> Refusal:
    """What a client is told whose conversation shows a signal that the operator blocks."""
    where = f" ({signal.where})" if signal.where else ""
    seen = _SEEN[signal.kind].format(amount=signal.amount, where=where)
    return Refusal(
        status=400,
        code=CODE,
        message=f"This conversation is stuck: {seen}. {_ADVICE[signal.kind]} (The operator of the gate blocks the "
        f"signal {signal.kind}.)",
        param="messages",
        reason="Conversation Is Stuck",
        details={"signal": signal.kind.value, "amount": signal.amount},
        headers={"x-should-retry": "false"},
    )
