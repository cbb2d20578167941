"""What a client is told of its request in headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.errors import Refusal, UpstreamBroken
from ollama_gate.requests import PromptCount, Rung
from ollama_gate.turn import Turn, Verdict, plain


def turn() -> Turn:
    return Turn("a-1", "/api/chat", 0.0)


def test_at_first_there_is_nothing_to_tell_but_the_id() -> None:
    assert turn().headers() == {"x-ollama-gate-request-id": "a-1", "x-ollama-gate-verdict": "failed"}


@pytest.mark.parametrize(("rung", "room"), [(Rung.EXACT, "24"), (Rung.BOUND, None), (Rung.ESTIMATE, None)])
def test_room_is_told_only_where_the_count_is_exact(rung: Rung, room: str | None) -> None:
    one = turn()
    one.window, one.budget = 1024, 800
    one.counted(PromptCount(1000, 1000, rung), 0.5)
    headers = one.headers()
    assert headers["x-ollama-gate-prompt-tokens"] == "1000"
    assert headers["x-ollama-gate-rung"] == rung.value
    assert (headers["x-ollama-gate-budget"], headers["x-ollama-gate-window"]) == ("800", "1024")
    assert headers.get("x-ollama-gate-room") == room


@pytest.mark.parametrize(("status", "verdict"), [(400, Verdict.REFUSE), (413, Verdict.REFUSE), (503, Verdict.FAILED)])
def test_a_refusal_for_what_the_client_sent_is_told_apart_from_a_failure(status: int, verdict: Verdict) -> None:
    one = turn()
    one.refused(Refusal(status, "why", "because"))
    assert (one.verdict, one.status, one.code) == (verdict, status, "why")


def test_a_failure_of_ollamas_has_its_code() -> None:
    one = turn()
    one.failed(UpstreamBroken("gone"))
    assert one.code == "upstream_broken"


@pytest.mark.parametrize(("seconds", "told"), [(None, None), (0.0, None), (0.0004, None), (1.23456, "1.235")])
def test_a_wait_is_told_when_there_was_one(seconds: float | None, told: str | None) -> None:
    one = turn()
    one.wait_seconds = seconds
    assert one.headers().get("x-ollama-gate-wait") == told


@given(st.text(max_size=60))
def test_no_text_of_a_clients_can_break_a_header(text: str) -> None:
    one = turn()
    one.notes.append(text)
    told = one.headers()["x-ollama-gate-note"]
    assert len(told) == len(text)
    assert all(" " <= char <= "~" for char in told)
    assert plain(told) == told


def test_a_note_is_never_longer_than_a_header_may_be() -> None:
    one = turn()
    one.notes += ["n" * 900, "m" * 900]
    assert len(one.headers()["x-ollama-gate-note"]) == 1000
