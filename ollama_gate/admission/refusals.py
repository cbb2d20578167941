"""The refusals of admission: 503, with a Retry-After that is true or none at all.

Some agents take certain words in a 503 for a prompt that is too long and start to compact; those words (`too many
tokens`, `context length` and the like) do not occur here.
"""

import math

from ollama_gate.admission.holdings import DoesNotFit
from ollama_gate.admission.queue import LONGEST_RETRY
from ollama_gate.config.units import in_gib, told_apart
from ollama_gate.errors import Refusal, UpstreamError


def queue_full(model: str, *, waiting: int, slots: int, retry_after: int) -> Refusal:
    """So many wait for the model already that no more may."""
    return Refusal(
        503,
        "queue_full",
        f"{model} is busy: {waiting} requests wait for its {_slots(slots)}. Try again in {retry_after} s.",
        type="overloaded_error",
        reason="Queue Full",
        details={"model": model, "waiting": waiting, "slots": slots, "retry_after": retry_after},
        headers={"Retry-After": str(retry_after)},
    )


def queue_timeout(model: str, *, waited: float, slots: int, for_memory: bool, retry_after: int) -> Refusal:
    """The request has waited as long as it may."""
    what = "room in memory" if for_memory else f"one of its {_slots(slots)}" if slots > 1 else "its slot"
    return Refusal(
        503,
        "queue_timeout",
        f"{model} is busy: after {waited:.0f} s there was still no turn for {what}. Try again in {retry_after} s.",
        type="overloaded_error",
        reason="Queue Wait Over",
        details={
            "model": model,
            "waited": round(waited, 1),
            "waits_for": "memory" if for_memory else "slot",
            "slots": slots,
            "retry_after": retry_after,
        },
        headers={"Retry-After": str(retry_after)},
    )


def away() -> Refusal:
    """Ollama is not there, so that nothing can be unloaded or loaded."""
    return Refusal(
        503,
        "upstream_unreachable",
        "Ollama does not answer, so that no memory can be made free. Start it, and send the request again.",
        type="api_error",
        headers={"Retry-After": "5"},
    )


def memory_unknown(failure: UpstreamError) -> Refusal:
    """Ollama is there, but does not say what is loaded, so that nobody knows whether there is room."""
    return Refusal(
        503,
        "memory_unknown",
        f"It is not known what is loaded, so that nothing more may be: {failure}. Look at Ollama's log.",
        type="api_error",
        headers={"Retry-After": "15"},
    )


def does_not_fit(model: str, num_ctx: int, slots: int, why: DoesNotFit, now: float) -> Refusal:
    """The model's load would pass the memory limit."""
    ever = why.ever
    needed, limit, *rest = told_apart(why.needed, why.limit, *([why.free] if ever else []))
    within = f"only {rest[0]} of the limit of {limit} is free" if ever else f"the limit is {limit}"
    headers = {}
    if ever:
        soon = 30 if why.retry_at is None else max(1, min(math.ceil(why.retry_at - now), LONGEST_RETRY))
        headers["Retry-After"] = str(soon)
    else:
        headers["x-should-retry"] = "false"
    return Refusal(
        503,
        "model_does_not_fit",
        f"{model} cannot be loaded: with a window of {num_ctx} and {_slots(slots)} it takes {needed}, "
        f"and {within}. {_advice(why)}",
        type="overloaded_error" if ever else "api_error",
        reason="Model Does Not Fit",
        details={
            "model": model,
            "needed_bytes": why.needed,
            "limit_bytes": why.limit,
            "free_bytes": why.free,
            "num_ctx": num_ctx,
            "num_parallel": slots,
            "largest_num_ctx_now": why.largest_now,
            "largest_num_ctx": why.largest_ever,
        },
        headers=headers,
    )


def _advice(why: DoesNotFit) -> str:
    if why.ever and why.largest_now:
        return f"A num_ctx of at most {why.largest_now} would fit beside what is loaded."
    if why.ever:
        return "It fits when another model has been unloaded."
    if why.for_host_cache:
        return (
            f"{in_gib(why.host_cache)} of it are old prompts that llama-server may keep: the operator can set "
            "LLAMA_ARG_CACHE_RAM for Ollama and memory.host_cache_per_model to less, or raise memory.limit."
        )
    if why.largest_ever:
        return f"The operator can give it a num_ctx of at most {why.largest_ever}, or raise memory.limit."
    return "No num_ctx makes it fit; the operator can raise memory.limit."


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
