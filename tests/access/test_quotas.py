"""The arithmetic of quotas: never more than the limit within any window, and a wait that is true."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.access.bookings import DAY, MINUTE
from ollama_gate.access.quotas import Quotas, Window
from ollama_gate.errors import Refusal, Refused
from support.keyring import a_key


def key(**limits: int) -> Any:
    return a_key(limits=limits)[1]


def refusal(call: Any, *args: Any) -> Refusal:
    with pytest.raises(Refused) as refused:
        call(*args)
    return refused.value.refusal


def test_requests_per_minute() -> None:
    quotas, mine = Quotas(), key(requests_per_minute=2)
    quotas.begin(mine, 100.0)
    quotas.begin(mine, 110.5)
    no = refusal(quotas.begin, mine, 120.0)
    assert (no.status, no.code, no.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert no.headers["Retry-After"] == "41"
    refusal(quotas.begin, mine, 160.9)
    quotas.begin(mine, 161.0)
    assert refusal(quotas.begin, mine, 162.0).headers["Retry-After"] == "9"


def test_a_refusal_uses_nothing_up() -> None:
    quotas, mine = Quotas(), key(requests_per_minute=1, requests_per_day=3)
    quotas.begin(mine, 0.0)
    for second in range(1, 60):
        refusal(quotas.begin, mine, float(second))
    quotas.begin(mine, 61.0)
    assert quotas.of(mine).requests_day.used(61.0) == 2


def test_requests_per_day() -> None:
    quotas, mine = Quotas(), key(requests_per_day=1)
    quotas.begin(mine, 0.0)
    no = refusal(quotas.begin, mine, DAY / 2)
    assert no.details["quota"] == "requests_per_day"
    quotas.begin(mine, DAY / 2 + float(no.headers["Retry-After"]))


def test_parallel_requests() -> None:
    quotas, mine = Quotas(), key(parallel=2)
    quotas.begin(mine, 0.0)
    usage = quotas.begin(mine, 0.0)
    assert refusal(quotas.begin, mine, 0.0).details["quota"] == "parallel"
    usage.running -= 1
    quotas.begin(mine, 0.0)


def test_prompt_tokens_are_booked_with_the_counts_number() -> None:
    quotas, mine = Quotas(), key(tokens_per_minute=1000)
    quotas.book(mine, 600, 0.0)
    quotas.book(mine, 400, 1.0)
    no = refusal(quotas.book, mine, 1, 30.0)
    assert (no.details["quota"], no.headers["Retry-After"]) == ("tokens_per_minute", "31")
    assert refusal(quotas.book, mine, 601, 30.0).headers["Retry-After"] == "32"
    quotas.book(mine, 600, 61.0)


def test_a_prompt_that_is_longer_than_its_quota_passes_alone() -> None:
    quotas, mine = Quotas(), key(tokens_per_minute=1000)
    quotas.book(mine, 5000, 0.0)
    refusal(quotas.book, mine, 1, 60.0)
    quotas.book(mine, 5000, 61.0)


def test_what_fits_can_be_booked_and_what_does_not_cannot() -> None:
    quotas, mine = Quotas(), key(tokens_per_minute=1000, tokens_per_day=1500)
    quotas.book(mine, 600, 0.0)
    assert quotas.fits(mine, 400, 1.0)
    assert not quotas.fits(mine, 401, 1.0)
    assert quotas.fits(mine, 900, 61.0)
    assert not quotas.fits(mine, 901, 61.0)
    assert quotas.fits(key(requests_per_minute=1), 10**9, 0.0)


def test_what_was_booked_roughly_is_put_right_where_it_was_booked() -> None:
    quotas, mine = Quotas(), key(tokens_per_minute=1000, tokens_per_day=10_000)
    quotas.book(mine, 900, 0.0)
    quotas.correct(mine, -700, 0.0)  # the bound was 900, Ollama counted 200
    quotas.book(mine, 800, 30.0)
    refusal(quotas.book, mine, 1, 31.0)
    assert quotas.of(mine).tokens_minute.used(61.0) == 800
    quotas.correct(mine, -700, 0.0)  # that minute is over
    assert quotas.of(mine).tokens_minute.used(61.0) == 800
    assert quotas.of(mine).tokens_day.used(61.0) == 1000 - 700


def test_the_words_are_those_that_clients_take_for_a_quota_and_not_for_a_full_window() -> None:
    quotas, mine = Quotas(), key(tokens_per_minute=10)
    quotas.book(mine, 10, 0.0)
    message = refusal(quotas.book, mine, 10, 1.0).message.lower()
    assert "rate limit" in message
    for phrase in ("too many tokens", "exceeds the limit of", "token limit exceeded", "context", "prompt is too long"):
        assert phrase not in message


def test_keys_do_not_share() -> None:
    quotas = Quotas()
    _, one = a_key("one", limits={"requests_per_minute": 1})
    _, two = a_key("two", limits={"requests_per_minute": 1})
    quotas.begin(one, 0.0)
    quotas.begin(two, 0.0)
    refusal(quotas.begin, one, 0.0)


STEPS = st.lists(st.tuples(st.floats(0, 40), st.integers(1, 60)), max_size=60)


@given(STEPS, st.integers(1, 100))
def test_no_window_ever_holds_more_than_the_limit_but_for_one_that_came_alone(
    steps: list[tuple[float, int]], limit: int
) -> None:
    window, now, passed = Window(MINUTE, 1.0), 0.0, []
    for pause, amount in steps:
        now += pause
        wait = window.wait(limit, amount, now)
        if wait:
            assert 0 < wait <= MINUTE + 1
            assert deepcopy(window).wait(limit, amount, now + wait) == 0
            continue
        window.spend(amount, now)
        passed.append((now, amount))
    for began, first in passed:
        held = [amount for at, amount in passed if began <= at < began + MINUTE]
        assert sum(held) <= max(limit, first if len(held) == 1 else 0)


def test_a_window_holds_a_bounded_number_of_slots() -> None:
    window = Window(DAY, 600.0)
    for second in range(0, 400_000, 50):
        window.spend(1, float(second))
        window.used(float(second))
    assert len(window._spent) <= DAY / 600 + 2
