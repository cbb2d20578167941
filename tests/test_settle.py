"""What is left of a finished request: one log line and its metrics, and never a failure."""

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from ollama_gate.observe import log
from ollama_gate.observe.metrics import Metrics
from ollama_gate.requests import PromptCount, Rung
from ollama_gate.settle import Settler
from ollama_gate.turn import Phase, Turn, Verdict
from ollama_gate.upstream.relay import Passage
from ollama_gate.wire.ndjson import StreamEnd, TailObserver

DONE = {"done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3}
MODEL = "registry.ollama.ai/library/m:latest"


def settled(turn: Turn, told: dict[str, Any] | bytes | None = None, **passage: Any) -> Metrics:
    """Settle a turn whose answer was this."""
    metrics, observer = Metrics(), TailObserver()
    if told is not None:
        raw = told if isinstance(told, bytes) else json.dumps(told).encode() + b"\n"
        observer.feed(raw)
        passage = {"bytes": len(raw), "whole": True, "first_byte_at": 12.0, **passage}
    Settler(metrics, log.logger(), lambda: 20.0).settle(turn, Passage(**passage), observer)
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"ollama_gate_{name}", labels)


def turn(id: str = "a-1", **more: Any) -> Turn:  # noqa: A002 - as the field is called
    return Turn(id, "/api/chat", 10.0, **{"model": MODEL, "verdict": Verdict.ADMIT, "status": 200, **more})


def line(written: io.StringIO) -> dict[str, Any]:
    [found] = [json.loads(one) for one in written.getvalue().splitlines()]
    assert found["event"] == "request"
    return dict(found)


def test_a_whole_answer_is_told_with_its_numbers(written_log: io.StringIO) -> None:
    one = turn(phase=Phase.DONE, sent_at=11.0, wait_seconds=0.5, budget=100, window=200, body_bytes=42)
    one.counted(PromptCount(7, 7, Rung.EXACT), 0.01)
    metrics = settled(one, DONE)
    told = line(written_log)
    expected = {
        "id": "a-1",
        "route": "/api/chat",
        "model": MODEL,
        "verdict": "admit",
        "status": 200,
        "seconds": 10.0,
        "body_bytes": 42,
        "rung": "exact",
        "prompt_tokens": 7,
        "budget": 100,
        "window": 200,
        "count_seconds": 0.01,
        "wait_seconds": 0.5,
        "first_byte_seconds": 1.0,
        "prompt_eval_count": 7,
        "eval_count": 3,
        "ended": "stop",
    }
    assert expected.items() <= told.items()
    assert value(metrics, "requests_total", route="/api/chat", model=MODEL, verdict="admit") == 1
    assert value(metrics, "output_tokens_total", model=MODEL) == 3
    assert value(metrics, "prompt_tokens_sum", model=MODEL) == 7
    assert value(metrics, "endings_total", model=MODEL, ending="stop") == 1
    assert value(metrics, "first_byte_seconds_sum", route="/api/chat") == 1.0
    assert value(metrics, "wait_seconds_sum", model=MODEL) == 0.5
    assert value(metrics, "count_seconds_sum", rung="exact") == 0.01


def test_a_refusal_is_counted_by_its_reason(written_log: io.StringIO) -> None:
    one = turn(verdict=Verdict.REFUSE, status=400, code="context_length_exceeded", phase=Phase.COUNTING)
    metrics = settled(one)
    assert value(metrics, "refusals_total", route="/api/chat", code="context_length_exceeded") == 1
    assert line(written_log)["code"] == "context_length_exceeded"
    assert value(metrics, "output_tokens_total", model=MODEL) is None


def test_a_stream_that_broke_is_an_error_of_ollamas_and_no_refusal(written_log: io.StringIO) -> None:
    metrics = settled(turn(code="upstream_broken", phase=Phase.STREAMING), b'{"done":false}\n', whole=False)
    assert value(metrics, "upstream_errors_total", kind="upstream_broken") == 1
    assert value(metrics, "refusals_total", route="/api/chat", code="upstream_broken") is None
    assert "ended" not in line(written_log)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_client_that_left_is_counted_by_its_phase(written_log: io.StringIO, phase: Phase) -> None:
    metrics = settled(turn(left=True, phase=phase))
    assert value(metrics, "client_gone_total", phase=phase.value) == 1
    assert line(written_log)["client_gone"] == phase.value


def test_an_answer_that_just_stops_is_said_to(written_log: io.StringIO) -> None:
    settled(turn(), {"done": False})
    assert line(written_log)["ended"] == "without done"


def test_an_error_inside_an_answer_is_counted(written_log: io.StringIO) -> None:
    metrics = settled(turn(), {"error": "runner stopped: SECRET"})
    assert value(metrics, "upstream_errors_total", kind="error_in_answer") == 1
    told = line(written_log)
    assert told["error_in_answer"] is True
    assert "SECRET" not in json.dumps(told)


@pytest.mark.parametrize(("limit", "ending"), [(3, "limit"), (4, "window"), (None, "window")])
def test_a_full_window_is_told_from_an_asked_length(written_log: io.StringIO, limit: int | None, ending: str) -> None:
    metrics = settled(turn(limit=limit), {**DONE, "done_reason": "length"})
    assert value(metrics, "endings_total", model=MODEL, ending=ending) == 1
    assert line(written_log)["ended"] == ending


def test_what_was_avoided_and_clamped_is_counted() -> None:
    metrics = settled(turn(reload_avoided=True, clamped=True), DONE)
    assert value(metrics, "reloads_avoided_total", model=MODEL) == 1
    assert value(metrics, "output_clamped_total", model=MODEL) == 1


def test_a_model_that_nobody_has_gets_no_label_of_its_own() -> None:
    metrics = settled(turn(model=None, verdict=Verdict.UNCOUNTED, status=404))
    assert value(metrics, "requests_total", route="/api/chat", model="unknown", verdict="uncounted") == 1


def test_the_number_of_labels_is_bounded() -> None:
    metrics = Metrics()
    names = {metrics.model(f"m{number}") for number in range(500)}
    assert len(names) < 250
    assert "other" in names
    assert metrics.model("m0") == "m0"


def test_observing_never_fails_a_request(written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("full")

    monkeypatch.setattr(Settler, "_count", broken)
    settled(turn(), DONE)
    [told] = [json.loads(one) for one in written_log.getvalue().splitlines()]
    assert (told["level"], told["event"]) == ("error", "a finished request could not be recorded")


def test_who_wants_ollamas_count_is_told_before_the_line_is_written(written_log: io.StringIO) -> None:
    one = turn()

    def hear(tokens: int) -> None:
        one.signals = {"prompt-standstill": tokens}

    one.reported = hear
    metrics = settled(one, DONE)
    assert line(written_log)["signals"] == {"prompt-standstill": 7}
    assert value(metrics, "signals_total", model=MODEL, signal="prompt-standstill") == 1


def test_an_answer_without_a_count_is_told_to_nobody(written_log: io.StringIO) -> None:
    heard: list[int] = []
    settled(turn(reported=heard.append), {"done": False})
    assert heard == []
    assert "signals" not in line(written_log)


def put_off(settler: Settler, one: Turn, learn: Callable[[StreamEnd], None]) -> None:
    """Settle a turn later, whose answer was whole."""
    observer = TailObserver()
    observer.feed(raw := json.dumps(DONE).encode() + b"\n")
    settler.later(one, Passage(12.0, len(raw), whole=True), observer, learn)


async def test_what_is_put_off_is_settled_by_itself_in_order_and_as_of_then(written_log: io.StringIO) -> None:
    metrics, now, done = Metrics(), [20.0], asyncio.get_running_loop().create_future()
    settler = Settler(metrics, log.logger(), lambda: now[0])
    many = 40
    for number in range(many):
        last = number == many - 1
        put_off(settler, turn(id=f"a-{number}"), done.set_result if last else lambda _: None)
    now[0] = 99.0
    assert not written_log.getvalue()
    async with asyncio.timeout(10):
        end = await done
    assert end.prompt_eval_count == 7
    await asyncio.sleep(0)
    told = [json.loads(one) for one in written_log.getvalue().splitlines()]
    assert [one["id"] for one in told] == [f"a-{number}" for number in range(many)]
    assert {one["seconds"] for one in told} == {10.0}
    assert value(metrics, "requests_total", route="/api/chat", model=MODEL, verdict="admit") == many


async def test_others_get_a_turn_while_many_are_settled() -> None:
    settler, settled_between, loop = Settler(Metrics(), log.logger(), lambda: 20.0), [0], asyncio.get_running_loop()
    between: list[int] = []
    done = loop.create_future()

    def learn(_: StreamEnd) -> None:
        if not settled_between[0]:
            loop.call_soon(lambda: between.append(settled_between[0]))
        settled_between[0] += 1
        if settled_between[0] == 100:
            done.set_result(None)

    for _ in range(100):
        put_off(settler, turn(), learn)
    async with asyncio.timeout(10):
        await done
    assert between
    assert between[0] < 50


async def test_who_catches_up_sees_all_of_it_once(written_log: io.StringIO) -> None:
    metrics, heard = Metrics(), list[StreamEnd]()
    settler = Settler(metrics, log.logger(), lambda: 20.0)
    put_off(settler, turn(), heard.append)
    settler.catch_up()
    assert value(metrics, "requests_total", route="/api/chat", model=MODEL, verdict="admit") == 1
    settler.catch_up()
    assert len(heard) == len(written_log.getvalue().splitlines()) == 1


async def test_one_that_cannot_be_settled_takes_no_other_with_it(written_log: io.StringIO) -> None:
    def broken(_: StreamEnd) -> None:
        raise RuntimeError("full")

    settler = Settler(Metrics(), log.logger(), lambda: 20.0)
    put_off(settler, turn(id="a-1"), broken)
    put_off(settler, turn(id="a-2"), lambda _: None)
    settler.catch_up()
    told = [json.loads(one) for one in written_log.getvalue().splitlines()]
    assert sorted(one.get("id", one["event"]) for one in told) == [
        "a finished request could not be recorded",
        "a-1",
        "a-2",
    ]
