"""Signals on their way out: header, log, metric, and the refusal where that is wanted."""

import io
import json
from typing import Any

import pytest

from ollama_gate.config.signals import SignalKind, Signals
from ollama_gate.errors import Refused
from ollama_gate.observe.signals import Signal, SignalBook
from ollama_gate.observe.watch import Watch, blocked
from ollama_gate.requests import InferenceRequest, Kind
from ollama_gate.turn import Turn, Verdict
from support.cases import case

MESSAGES = case("32-repeated-tool-call")["messages"]
REQUEST = InferenceRequest(Kind.CHAT, "/api/chat", "m", {"messages": MESSAGES}, True)


def turn() -> Turn:
    return Turn("a-1", "/api/chat", 0.0)


def test_a_turn_is_told_what_its_conversation_shows() -> None:
    one = turn()
    Watch(Signals(), lambda: 0.0).look(REQUEST, one)
    assert one.signals == {"repeated-call": 6}
    assert one.headers()["x-ollama-gate-signals"] == "repeated-call=6 (shell)"


def test_a_tools_name_cannot_write_headers() -> None:
    one = turn()
    messages = json.loads(json.dumps(MESSAGES).replace('"shell"', '"a\\r\\nx-evil: 1"'))
    Watch(Signals(), lambda: 0.0).look(InferenceRequest(Kind.CHAT, "/api/chat", "m", {"messages": messages}, True), one)
    assert one.headers()["x-ollama-gate-signals"] == "repeated-call=6 (a??x-evil: 1)"


def test_a_signal_is_blocked_only_where_the_operator_says_so() -> None:
    Watch(Signals(block=("reread",)), lambda: 0.0).look(REQUEST, turn())
    with pytest.raises(Refused) as no:
        Watch(Signals(block=("repeated-call",)), lambda: 0.0).look(REQUEST, turn())
    assert (no.value.refusal.status, no.value.refusal.code) == (400, "signal_blocked")
    assert "the same tool call was made 6 times in a row (shell)" in no.value.refusal.message


@pytest.mark.parametrize("kind", SignalKind)
def test_a_blocked_signal_starts_no_compaction_and_no_retry(kind: SignalKind) -> None:
    said = blocked(Signal(kind, 7, "here")).message.lower()
    for word in ("context", "too long", "too many", "maximum", "tokens >", "limit", "timeout", "rate"):
        assert word not in said.replace("evaluated", ""), word


def test_of_a_compacted_conversation_ollamas_count_says_nothing() -> None:
    watch, one, other = Watch(Signals(), lambda: 0.0), turn(), turn()
    watch.look(REQUEST, one)
    watch.look(REQUEST, other, compacted=True)
    assert one.reported is not None
    assert other.reported is None
    assert other.signals == {"repeated-call": 6}


def test_a_large_body_that_nothing_counted_is_not_looked_at() -> None:
    one = turn()
    one.verdict, one.body_bytes = Verdict.UNCOUNTED, 5 * 1024**2
    Watch(Signals(block=("repeated-call",)), lambda: 0.0).look(REQUEST, one)
    assert one.signals == {}


def test_a_failure_of_watching_fails_nothing_and_is_said_once(
    written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(SignalBook, "look", broken)
    watch, one = Watch(Signals(block=("repeated-call",)), lambda: 0.0), turn()
    watch.look(REQUEST, one)
    watch.look(REQUEST, one)
    assert one.signals == {}
    assert written_log.getvalue().count("could not be watched") == 1
