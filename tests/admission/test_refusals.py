from collections.abc import Iterator

import pytest

from ollama_gate.admission import refusals
from ollama_gate.admission.holdings import DoesNotFit
from ollama_gate.errors import Refusal

GIB = 1024**3
FORBIDDEN = ("too many tokens", "exceeds the limit of", "token limit exceeded", "context length", "prompt is too long")
"""Agents take these words in a 503 for an overlong prompt and compact, or wait as for a rate limit."""


def every_refusal() -> Iterator[Refusal]:
    yield refusals.queue_full("m", waiting=64, slots=1, retry_after=20)
    for slots in (1, 4):
        for for_memory in (False, True):
            yield refusals.queue_timeout("m", waited=240, slots=slots, for_memory=for_memory, retry_after=7)
    for needed, largest_now, largest_ever, retry_at in (
        (9 * GIB, 4096, 32768, 40.0),
        (9 * GIB, 0, 32768, None),
        (11 * GIB, 4096, 8192, None),
        (11 * GIB, 0, 0, None),
    ):
        why = DoesNotFit(needed, 10 * GIB, 4 * GIB, largest_now, largest_ever, retry_at)
        yield refusals.does_not_fit("m", 16384, 2, why, 10.0)


@pytest.mark.parametrize("refusal", list(every_refusal()), ids=lambda refusal: refusal.code)
def test_a_503_has_no_words_that_agents_mistake(refusal: Refusal) -> None:
    assert refusal.status == 503
    said = f"{refusal.message} {refusal.reason} {refusal.type}".lower()
    assert not [words for words in FORBIDDEN if words in said]


@pytest.mark.parametrize("refusal", list(every_refusal()), ids=lambda refusal: refusal.code)
def test_a_503_says_when_to_come_back_or_that_coming_back_is_no_use(refusal: Refusal) -> None:
    assert ("Retry-After" in refusal.headers) != (refusal.headers.get("x-should-retry") == "false")
    assert int(refusal.headers.get("Retry-After", 1)) >= 1


def test_what_fits_is_said_to_people_and_programs() -> None:
    why = DoesNotFit(9 * GIB, 10 * GIB, 4 * GIB, 4096, 32768, 40.0)
    refusal = refusals.does_not_fit("llama3.1:8b", 16384, 2, why, 10.0)
    assert refusal.message == (
        "llama3.1:8b cannot be loaded: with a window of 16384 and 2 slots it takes 9.0 GiB, and only 4.0 GiB of the "
        "limit of 10.0 GiB is free. A num_ctx of at most 4096 would fit beside what is loaded."
    )
    assert refusal.headers == {"Retry-After": "30"}
    assert (refusal.details["largest_num_ctx_now"], refusal.details["largest_num_ctx"]) == (4096, 32768)


def test_what_only_old_prompts_keep_from_fitting_names_the_two_settings() -> None:
    why = DoesNotFit(11 * GIB, 10 * GIB, 10 * GIB, 0, 0, host_cache=8 * GIB)
    message = refusals.does_not_fit("m", 8192, 1, why, 0.0).message
    assert message.endswith(
        "8.0 GiB of it are old prompts that llama-server may keep: the operator can set LLAMA_ARG_CACHE_RAM for "
        "Ollama and memory.host_cache_per_model to less, or raise memory.limit."
    )
    too_large = DoesNotFit(19 * GIB, 10 * GIB, 10 * GIB, 0, 0, host_cache=8 * GIB)
    assert "No num_ctx makes it fit" in refusals.does_not_fit("m", 8192, 1, too_large, 0.0).message


def test_what_is_a_little_too_large_is_seen_to_be_so() -> None:
    why = DoesNotFit(10 * GIB + 2**25, 10 * GIB, 10 * GIB, 0, 0)
    assert "takes 10.03 GiB, and the limit is 10.00 GiB" in refusals.does_not_fit("m", 8192, 1, why, 0.0).message


def test_what_never_fits_is_said_so() -> None:
    refusal = refusals.does_not_fit("m", 131072, 1, DoesNotFit(11 * GIB, 10 * GIB, 4 * GIB, 0, 8192), 0.0)
    assert refusal.message.endswith(
        "it takes 11.0 GiB, and the limit is 10.0 GiB. "
        "The operator can give it a num_ctx of at most 8192, or raise memory.limit."
    )
