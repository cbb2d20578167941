"""OpenAI's usage object, on chat completions and text completions alike."""

from typing import Any

from ollama_gate.dialects.translation import Usage


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as `openai/openai.go:Usage` (v0.33) has it, and the cached tokens where they are known."""
    found: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
    }
    if usage.cached is not None:
        found["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    return found
