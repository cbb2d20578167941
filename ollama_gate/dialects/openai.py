"""OpenAI's API below /v1, Responses aside: the routes that the rest of the gate calls."""

from collections.abc import Mapping
from typing import Final

from ollama_gate.dialects import (
    openai_audio,
    openai_chat_answer,
    openai_chat_request,
    openai_completions,
    openai_embeddings,
)
from ollama_gate.dialects.lane import Lane
from ollama_gate.dialects.openai_errors import error_json, render_refusal
from ollama_gate.dialects.openai_models import model_object, models_list

__all__ = ["LANES", "error_json", "model_object", "models_list", "render_refusal"]

LANES: Final[Mapping[str, Lane]] = {
    "/v1/chat/completions": Lane(
        "openai", openai_chat_request.FIELDS, openai_chat_request.parse, render_refusal, openai_chat_answer.writer
    ),
    "/v1/completions": Lane(
        "openai", openai_completions.FIELDS, openai_completions.parse, render_refusal, openai_completions.writer
    ),
    "/v1/embeddings": Lane(
        "openai", openai_embeddings.FIELDS, openai_embeddings.parse, render_refusal, openai_embeddings.writer
    ),
    "/v1/audio/transcriptions": Lane(
        "openai", frozenset(), openai_audio.parse, render_refusal, openai_audio.writer, form=True
    ),
}
"""The guarded routes."""
