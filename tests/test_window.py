"""Windows, budgets, verdicts and endings, at every edge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate import window
from ollama_gate.window import Ending, Output, Window, Wish

SIZES = st.integers(min_value=4, max_value=2**31 - 1)


NOTHING = Wish()


def resolve(
    wish: Wish = NOTHING,
    *,
    modelfile: int | None = None,
    default: int = 8192,
    trained: int | None = None,
    vision: bool = False,
    old: bool = False,
) -> Window:
    return window.resolve(
        wish, modelfile_num_ctx=modelfile, default_num_ctx=default, trained=trained, vision=vision, old=old
    )


@pytest.mark.parametrize(
    ("given_", "num_ctx"),
    [
        ({}, 8192),
        ({"modelfile": 4096}, 4096),
        ({"wish": Wish(num_ctx=2048), "modelfile": 4096}, 2048),
        ({"trained": 4096}, 4096),
        ({"wish": Wish(num_ctx=100_000), "trained": 32_768}, 32_768),
        ({"trained": 0}, 8192),
        ({"default": 1}, 4),
        ({"wish": Wish(num_ctx=512), "vision": True}, 2048),
        ({"wish": Wish(num_ctx=512), "vision": True, "trained": 1024}, 1024),
        ({"wish": Wish(num_ctx=4_000_000_000), "trained": 131_072}, 131_072),
    ],
)
def test_a_window_is_what_ollama_will_make_of_it(given_: dict[str, object], num_ctx: int) -> None:
    assert resolve(**given_).num_ctx == num_ctx  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "num_ctx", "tokens"),
    [
        (None, 8192, 6553),
        (None, 512, 409),
        (None, 4, 3),
        (0.5, 8192, 4096),
        (1, 8192, 8191),
        (1.0, 8192, 8191),
        (26_000, 32_768, 26_000),
        (99_999, 8192, 8191),
        (8192, 8192, 8191),
        (8191, 8192, 8191),
        (0.0001, 8192, 1),
    ],
)
def test_a_budget_is_tokens_or_a_share_and_never_more_than_fits(
    budget: float | None, num_ctx: int, tokens: int
) -> None:
    found = resolve(Wish(num_ctx=num_ctx, budget=budget))
    assert (found.budget, found.reserve) == (tokens, num_ctx - tokens)


@given(
    num_ctx=SIZES,
    budget=st.none() | st.floats(0.001, 1) | st.integers(1, 2**31),
    trained=st.none() | SIZES,
    vision=st.booleans(),
    old=st.booleans(),
)
def test_a_budget_always_leaves_ollama_room_for_the_prompt(
    num_ctx: int, budget: float | None, trained: int | None, *, vision: bool, old: bool
) -> None:
    found = resolve(Wish(num_ctx=num_ctx, budget=budget), trained=trained, vision=vision, old=old)
    assert 1 <= found.budget <= found.largest_prompt <= found.num_ctx
    assert found.budget <= window.grace_limit(found) <= found.largest_prompt
    assert found.largest_prompt == (found.num_ctx if old else found.num_ctx - 1)


def test_a_prompt_of_the_whole_window_fits_an_old_ollama_only() -> None:
    assert resolve(default=256).largest_prompt == 255
    assert resolve(default=256, old=True).largest_prompt == 256


@pytest.mark.parametrize(("num_ctx", "room"), [(4, 3), (64, 63), (256, 64), (8192, 512), (65_536, 1024)])
def test_grace_leaves_room_for_a_short_answer(num_ctx: int, room: int) -> None:
    slot = Window(num_ctx, budget=1)
    assert window.smallest_answer(slot) == room
    assert window.grace_limit(slot) == num_ctx - room


def test_grace_is_never_below_the_budget() -> None:
    slot = Window(8192, budget=8191)
    assert window.grace_limit(slot) == 8191


SLOT = Window(1024, 800)


@pytest.mark.parametrize(
    ("asked", "prompt", "output"),
    [
        (None, 500, Output(None)),
        (0, 500, Output(None)),
        (500, None, Output(None)),
        (-1, None, Output(None)),
        (524, 500, Output(None)),
        (525, 500, Output(524, clamped=True)),
        (2**62, 500, Output(524, clamped=True)),
        (-1, 500, Output(524)),
        (-2, 500, Output(524)),
        (10, 1024, Output(1, clamped=True)),
        (10, 9999, Output(1, clamped=True)),
        (1, 1023, Output(None)),
    ],
)
def test_an_asked_length_is_clamped_to_the_room(asked: int | None, prompt: int | None, output: Output) -> None:
    assert window.clamp_output(asked, prompt, SLOT) == output


def test_where_ollama_may_shift_nothing_is_clamped() -> None:
    assert window.clamp_output(10**6, 500, Window(1024, 800, shift=True)) == Output(None)


@pytest.mark.parametrize(
    ("asked", "prompt", "output"),
    [
        (None, 500, Output(523)),
        (0, 500, Output(523)),
        (-1, 500, Output(523)),
        (100, 500, Output(100)),
        (523, 500, Output(523)),
        (524, 500, Output(523, clamped=True)),
        (9, 1023, Output(1, clamped=True)),
        (None, 1023, Output(1)),
        (100, None, Output(None)),
    ],
)
def test_an_ollama_that_shifts_whatever_it_is_told_never_reaches_the_windows_end(
    asked: int | None, prompt: int | None, output: Output
) -> None:
    assert window.clamp_output(asked, prompt, Window(1024, 800, guarded=False)) == output


@given(st.integers(-5, 2**40), st.integers(0, 4096))
def test_what_is_sent_never_passes_the_window(asked: int, prompt: int) -> None:
    output = window.clamp_output(asked, prompt, SLOT)
    sent = output.num_predict if output.num_predict is not None else asked
    assert sent == 0 or sent <= max(SLOT.room(prompt), 1)


@pytest.mark.parametrize(
    ("asked", "prompt", "long"),
    [(None, 1024, False), (0, 1024, False), (-1, 1024, False), (24, 1000, False), (25, 1000, True), (1, 1024, True)],
)
def test_prompt_and_asked_answer_together_are_held_against_the_window(asked: int, prompt: int, *, long: bool) -> None:
    assert window.too_long_with_reply(asked, prompt, SLOT) is long


@pytest.mark.parametrize(
    ("num_ctx", "trained", "num_batch", "limit"),
    [
        (8192, 512, None, (512, "trained length")),
        (256, 512, None, (256, "num_ctx")),
        (8192, 8192, None, (2048, "num_batch")),
        (8192, None, 4096, (4096, "num_batch")),
        (2048, 2048, 2048, (2048, "num_ctx")),
        (2048, 0, 0, (2048, "num_ctx")),
        (512, 8192, -1, (512, "num_ctx")),
        (8192, 8192, 128, (128, "num_batch")),
    ],
)
def test_the_smallest_of_three_limits_holds_for_an_input(
    num_ctx: int, trained: int | None, num_batch: int | None, limit: tuple[int, str]
) -> None:
    found = window.embed_limit(num_ctx, trained, num_batch)
    assert (found.tokens, found.by) == limit


@pytest.mark.parametrize(
    ("reason", "count", "limit", "ending"),
    [
        ("stop", 5, None, Ending.STOP),
        ("length", 40, 40, Ending.LIMIT),
        ("length", 41, 40, Ending.LIMIT),
        ("length", 39, 40, Ending.WINDOW),
        ("length", 39, None, Ending.WINDOW),
        ("length", None, 40, Ending.WINDOW),
        ("length", 40, 0, Ending.WINDOW),
        ("length", 40, -1, Ending.WINDOW),
        ("load", None, None, Ending.OTHER),
        ("unload", None, None, Ending.OTHER),
        (None, 5, 5, Ending.OTHER),
        ("", 5, 5, Ending.OTHER),
    ],
)
def test_the_two_meanings_of_length_are_told_apart(
    reason: str | None, count: int | None, limit: int | None, ending: Ending
) -> None:
    assert window.ending(reason, eval_count=count, limit=limit) is ending
