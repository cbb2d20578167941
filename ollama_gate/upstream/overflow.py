"""Ollama's own words for "does not fit", and for a model that failed at work, understood.

With `truncate:false` llama-server refuses a prompt that fills its slot, and Ollama hands its JSON on inside a string
(`llm/llama_server.go:statusErrorMessage`, v0.33). A client gets one clear refusal from the gate instead, whoever
noticed first; that Ollama noticed first means that the gate's count was wrong or not made.
"""

import re
from dataclasses import dataclass
from typing import Final

import orjson

from ollama_gate.upstream.connection import Answer

_SMALL: Final = 64 * 1024
_EMBED_TEXTS: Final = (
    "the input length exceeds the context length",
    "input length exceeds maximum context length",
    "input exceeds maximum context length",
    "input after truncation exceeds maximum context length",
)
_MLX: Final = re.compile(r"input length \((\d+) tokens\) exceeds the model's maximum context length \((\d+) tokens\)")

_OF_A_RUN: Final = ("error was encountered while running the model", "embedding contains NaN or Inf values")
"""What is said only of prompts that a model had begun with (`llm/llama_server.go:Completion`, `Chat`; v0.33)."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """What Ollama said of a prompt that it refused for its length."""

    tokens: int | None
    """Tokens it counted, None where it did not say."""
    limit: int | None
    """Tokens of the slot."""


async def overflow_of(answer: Answer) -> Overflow | None:
    """Whether an answer is a refusal for length; its body is read only if it is a small error.

    Its length is told only where the request was not streamed. Reading it takes nothing away: `answer.read()` gives
    the same bytes again.

    Raises:
        UpstreamError: the error breaks off.
    """
    if answer.status not in (400, 500) or (answer.length is not None and answer.length > _SMALL):
        return None
    body = await answer.read_at_most(_SMALL)
    return None if body is None else understand(body)


def of_a_run(error: str) -> bool:
    """Whether an error is that of a model that had begun with the prompt, so that its work was not for nothing.

    All others say no before: a wrong request, a model that is not there or cannot be loaded, a full queue.
    """
    return any(text in error for text in _OF_A_RUN)


def understand(body: bytes) -> Overflow | None:
    """Read an error body of Ollama's; None when it is about something else."""
    if b"ext" not in body and b"length" not in body:
        return None
    try:
        error = orjson.loads(body).get("error")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    if not isinstance(error, str):
        return None
    if "exceed_context_size_error" in error:
        return _from_llama_server(error)
    mlx = _MLX.search(error)
    if mlx is not None:
        return Overflow(int(mlx[1]), int(mlx[2]))
    if error in _EMBED_TEXTS or error.startswith("the prompt is longer than the context length"):
        return Overflow(None, None)
    return None


def _from_llama_server(error: str) -> Overflow:
    try:
        inner = orjson.loads(error)["error"]
        return Overflow(int(inner["n_prompt_tokens"]), int(inner["n_ctx"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return Overflow(None, None)
