"""OpenAI's API below /v1, Responses aside: the routes that the rest of the gate calls."""

from collections.abc import Mapping
from typing import Final

from ollama_gate.dialects import openai_chat_answer, openai_chat_request, openai_completions, openai_embeddings
from ollama_gate.dialects.openai_audio import TranscriptionWriter, parse_transcription
from ollama_gate.dialects.openai_errors import error_json, render_refusal
from ollama_gate.dialects.openai_models import model_object, models_list
from ollama_gate.dialects.translation import Endpoint

__all__ = [
    "ENDPOINTS",
    "TRANSCRIPTIONS_PATH",
    "TranscriptionWriter",
    "error_json",
    "model_object",
    "models_list",
    "parse_transcription",
    "render_refusal",
]

TRANSCRIPTIONS_PATH: Final = "/v1/audio/transcriptions"
"""Takes a form, not JSON, and so has no entry among the endpoints."""

ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "/v1/chat/completions": Endpoint(
        openai_chat_request.FIELDS, openai_chat_request.parse, openai_chat_answer.writer, render_refusal
    ),
    "/v1/completions": Endpoint(
        openai_completions.FIELDS, openai_completions.parse, openai_completions.writer, render_refusal
    ),
    "/v1/embeddings": Endpoint(
        openai_embeddings.FIELDS, openai_embeddings.parse, openai_embeddings.writer, render_refusal
    ),
}
