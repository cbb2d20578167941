"""The arithmetic of windows: what a model's slot holds, what the operator allows, and the verdict on a prompt.

Pure functions over integers; every number is in tokens. The rules of Ollama that they rest on: the largest prompt that
llama-server takes is one token less than its slot (`tools/server/server-context.cpp`, llama.cpp b10488), a slot holds
`num_ctx` tokens rounded up to 256, and `num_ctx` is clamped to the trained length, to at least 4, and for vision models
to at least 2048 (`server/sched.go:getRunner`, `llm/server.go:NewLlamaServer`, Ollama v0.33).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from ollama_gate.values import frozen

SMALLEST_NUM_CTX = 4
SMALLEST_VISION_NUM_CTX = 2048
SMALLEST_DEFAULT_NUM_CTX = 4096
"""The window of a model for which neither a request nor the Modelfile names one, on the smallest machine."""
DEFAULT_BUDGET_SHARE = 0.8
"""Share of the window that prompts may take when the operator declared no budget."""
EMBED_BATCH = 2048
"""Ollama's num_batch for an embedding model is min(2048, num_ctx) unless somebody sets it."""


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window and the part of it that prompts may take."""

    num_ctx: int
    """Tokens one slot holds; sent with every request."""
    budget: int
    """The most prompt tokens that pass; at most `largest_prompt`."""
    shift: bool = False
    """Whether the operator allows Ollama to drop the oldest half when the window is full."""
    old_boundary: bool = False
    """True for an Ollama before v0.30, which takes a prompt of exactly num_ctx tokens."""
    guarded: bool = True
    """False for an Ollama before v0.12.6, which cuts what is too long, and shifts, whatever it is told."""
    load_options: tuple[tuple[str, int | bool], ...] = ()
    """Other options that decide how the model is loaded, sent with every request as num_ctx is; by name."""

    @property
    def largest_prompt(self) -> int:
        """The longest prompt that Ollama takes whole."""
        return self.num_ctx if self.old_boundary else self.num_ctx - 1

    @property
    def reserve(self) -> int:
        """Room kept for the answer."""
        return self.num_ctx - self.budget

    def room(self, prompt_tokens: int) -> int:
        """Tokens left for the answer after a prompt of this length; never negative."""
        return max(self.num_ctx - prompt_tokens, 0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator declared for a model; None where nothing was."""

    num_ctx: int | None = None
    budget: float | None = None
    """Tokens, or a share of the window when it is at most 1."""
    shift: bool = False


def resolve(
    wish: Wish,
    *,
    modelfile_num_ctx: int | None,
    default_num_ctx: int,
    trained: int | None,
    vision: bool,
    old: bool = False,
    guarded: bool = True,
) -> Window:
    """The one window of a model.

    The operator's num_ctx comes first, then the Modelfile's, then the default. The value is clamped as Ollama clamps
    it, so that what is sent is what is in force and no request differs from another.
    """
    num_ctx = wish.num_ctx or modelfile_num_ctx or default_num_ctx
    if vision:
        num_ctx = max(num_ctx, SMALLEST_VISION_NUM_CTX)
    if trained is not None and trained > 0:
        num_ctx = min(num_ctx, trained)
    num_ctx = max(num_ctx, SMALLEST_NUM_CTX)
    largest = num_ctx if old else num_ctx - 1
    return Window(
        num_ctx=num_ctx,
        budget=_budget(wish.budget, num_ctx, largest),
        shift=wish.shift,
        old_boundary=old,
        guarded=guarded,
    )


def _budget(wish: float | None, num_ctx: int, largest: int) -> int:
    if wish is None:
        wish = DEFAULT_BUDGET_SHARE
    tokens = num_ctx * wish if 0 < wish <= 1 else wish
    return max(1, min(int(tokens), largest))


def smallest_answer(window: Window) -> int:
    """Room that a request on grace must leave: a sixteenth of the window, between 64 and 1024 tokens."""
    return min(max(window.num_ctx // 16, 64), 1024, max(window.num_ctx - 1, 1))


def grace_limit(window: Window) -> int:
    """The longest prompt that may pass on grace: it leaves room for a short answer, and is never below the budget."""
    return max(window.num_ctx - smallest_answer(window), window.budget)


@frozen
class Output:
    """What becomes of the output length that a client asked for."""

    num_predict: int | None
    """The value to send; None leaves the client's own (or its absence) as it is."""
    clamped: bool = False


def clamp_output(asked: int | None, prompt_tokens: int | None, window: Window) -> Output:
    """Clamp an asked output length to the room that is left.

    Nothing changes when the client asked for nothing, when the prompt was not counted (the window itself then ends the
    answer, because shift is off), or where the operator allows shift. A negative length means "no limit" in Ollama
    (`llm/llama_server.go:boundedNumPredict`) and becomes the remainder. Zero is left alone: Ollama reads it as no limit
    on one path and as one token on another. An Ollama that ignores `shift` always gets a length, one token short of the
    room, so that the window's end is never reached.
    """
    if prompt_tokens is None or window.shift:
        return Output(None)
    if not window.guarded:
        room = max(window.room(prompt_tokens) - 1, 1)
        return Output(min(asked, room) if asked and asked > 0 else room, clamped=asked is not None and asked > room)
    if asked is None or asked == 0:
        return Output(None)
    room = max(window.room(prompt_tokens), 1)
    if asked < 0:
        return Output(room)
    return Output(room, clamped=True) if asked > room else Output(None)


def too_long_with_reply(asked: int | None, prompt_tokens: int, window: Window) -> bool:
    """Whether prompt and asked output together pass the window (policy `on_long_reply = "refuse"`)."""
    return asked is not None and asked > 0 and prompt_tokens + asked > window.num_ctx


@dataclass(frozen=True, slots=True)
class EmbedLimit:
    """The longest input an embedding model takes, and which of its three limits that is."""

    tokens: int
    """Tokens of one input, specials included."""
    by: Literal["num_ctx", "trained length", "num_batch"]


def embed_limit(num_ctx: int, trained: int | None, num_batch: int | None) -> EmbedLimit:
    """The limit for each input of an embedding request (`server/routes.go:EmbedHandler`, Ollama v0.33).

    The text of one input may take two tokens less, because Ollama always sets aside two for specials.
    """
    limits: list[EmbedLimit] = [EmbedLimit(num_ctx, "num_ctx")]
    if trained is not None and trained > 0:
        limits.append(EmbedLimit(trained, "trained length"))
    limits.append(EmbedLimit(num_batch if num_batch and num_batch > 0 else min(EMBED_BATCH, num_ctx), "num_batch"))
    return min(limits, key=lambda limit: limit.tokens)


EMBED_SPECIALS = 2
"""Ollama subtracts one for BOS and one for EOS whether or not the tokenizer adds them (v0.33)."""


class Ending(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LIMIT = "limit"
    """The asked length was reached."""
    WINDOW = "window"
    """The window is full: the answer is cut short, and more room would have given more."""
    OTHER = "other"
    """load, unload, or an end without a reason."""


_STOP: Final = Ending.STOP  # an enum's members are slow to get (Python 3.11)


def ending(done_reason: str | None, *, eval_count: int | None, limit: int | None) -> Ending:
    """Tell the two meanings of Ollama's done_reason "length" apart.

    Args:
        done_reason: as Ollama reported it.
        eval_count: tokens of the answer.
        limit: the asked output length that was in force, None for none.
    """
    if done_reason == "stop":
        return _STOP
    if done_reason != "length":
        return Ending.OTHER
    if limit is not None and limit > 0 and eval_count is not None and eval_count >= limit:
        return Ending.LIMIT
    return Ending.WINDOW
