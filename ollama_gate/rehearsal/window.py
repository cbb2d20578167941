"""The three layers in which Ollama and llama-server shorten what does not fit. Arithmetic only.

Layer A drops whole messages, layer B cuts tokens out of the middle, layer C discards while generating.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

SLOT_STEP = 256
"""llama-server rounds a slot up to this many cells (llama.cpp b10488)."""
IMAGE_GUESS = 768
"""Tokens that layer A charges an image when the model has a projector of its own (`server/prompt.go`, v0.33)."""


def slot_size(num_ctx: int) -> int:
    """Cells of one slot: num_ctx rounded up to 256."""
    return -(-num_ctx // SLOT_STEP) * SLOT_STEP


def first_kept(messages: Sequence[str], fits: Callable[[Sequence[int]], bool]) -> list[int]:
    """Layer A: indices of the messages that stay (`server/prompt.go:chatPrompt`, v0.33).

    Args:
        messages: the role of each message.
        fits: whether the prompt of the messages with these indices is within the window.

    Oldest messages go first; system messages and the last message always stay, even when that is still too long.
    """
    last = len(messages) - 1
    kept = list(range(len(messages)))
    for start in range(len(messages)):
        kept = [at for at in range(start) if messages[at] == "system"] + list(range(start, len(messages)))
        if start == last or fits(kept):
            return kept
    return kept


def prompt_limit(num_ctx: int, keep: int) -> int:
    """Layer B: how many tokens of an overlong prompt stay (`llm/llama_server.go:contextShiftPromptLimit`, v0.33)."""
    if num_ctx <= 1:
        return 0
    keep = min(max(keep, 0), num_ctx - 1)
    return num_ctx - max((num_ctx - keep) // 2, 1)


def cut_middle(tokens: Sequence[int], num_ctx: int, num_keep: int, *, adds_bos: bool = False) -> list[int]:
    """Layer B on a prompt longer than num_ctx - 1: its head and its newest tokens (`completionPromptForRequest`)."""
    keep = len(tokens) if num_keep < 0 else num_keep + int(adds_bos)
    keep = min(keep, num_ctx - 1)
    limit = prompt_limit(num_ctx, keep)
    return [*tokens[:keep], *tokens[keep + len(tokens) - limit :]]


@dataclass(frozen=True, slots=True)
class Shift:
    """Layer C: one context shift while generating."""

    keep: int
    discard: int


def context_shift(used: int, num_keep: int, *, adds_bos: bool) -> Shift:
    """What llama-server discards when a slot is full: half of what is not kept (`slot context shift`)."""
    keep = min(used if num_keep < 0 else num_keep + int(adds_bos), used - 4)
    return Shift(keep, (used - keep) // 2)


def bounded_num_predict(asked: int, num_ctx: int) -> int:
    """`llm/llama_server.go:boundedNumPredict`: without a limit, or beyond it, ten windows."""
    return 10 * num_ctx if asked < 0 or asked > 10 * num_ctx else asked
