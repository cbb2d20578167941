"""When a model will have expired, as far as that can be known."""

import pytest

from ollama_gate.admission.holdings import SETTLES, Holding, Stage


def holding(expires_at: float | None = None) -> Holding:
    """An idle model, last used at 100 s, of which Ollama has then said when it goes."""
    one = Holding("m", Stage.RESIDENT, 0, 4096, last_used=100.0)
    one.tell_expiry(expires_at, 100.0 + 2 * SETTLES)
    return one


def test_what_ollama_says_of_an_idle_model_is_sure() -> None:
    one = holding(400.0)
    assert (one.expires_at, one.expiry_sure) == (400.0, True)


def test_a_model_that_is_used_goes_later_by_as_much_and_nobody_knows_for_sure() -> None:
    one = holding(400.0)
    one.last_used = 150.0
    assert (one.expires_at, one.expiry_sure) == (450.0, False), "300 s behind its last use, as before"


def test_of_what_nobody_has_said_nothing_is_guessed() -> None:
    one = Holding("m", Stage.LOADING, 0, 4096)
    one.last_used = 2.0
    assert (one.expires_at, one.expiry_sure) == (None, False)


@pytest.mark.parametrize(("asked_at", "users"), [(149.0, 0), (150.0, 0), (200.0, 1)])
def test_what_was_said_before_the_last_use_or_during_one_is_nothing_new(asked_at: float, users: int) -> None:
    one = holding(400.0)
    one.last_used = 150.0
    one.users = users
    one.tell_expiry(120.0, asked_at)
    assert (one.expires_at, one.expiry_sure) == (450.0, False)


def test_what_is_said_right_behind_a_request_is_the_best_guess_and_not_sure() -> None:
    one = holding(400.0)
    one.last_used = 150.0
    one.tell_expiry(160.0, 150.0 + SETTLES / 2)
    assert (one.expires_at, one.expiry_sure) == (160.0, False)
    one.tell_expiry(160.0, 150.0 + 2 * SETTLES)
    assert one.expiry_sure


def test_an_ollama_that_says_nothing_any_more_leaves_nothing_known() -> None:
    one = holding(400.0)
    one.tell_expiry(None, 200.0)
    assert one.expires_at is None
