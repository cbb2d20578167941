"""POST /v1/audio/transcriptions, as `openai/openai.go:FromTranscriptionRequest` of Ollama v0.33 has it.

The sound goes to /api/chat among the images, below a fixed instruction; so window and shift stay the model's.
"""

from collections.abc import Mapping
from typing import Any, Final

from ollama_gate.dialects.go_fields import bad_request
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.translation import (
    JSON_HEADERS,
    ServerTools,
    Stamp,
    inference_request,
    message_of,
    text_of,
)
from ollama_gate.dialects.whole_answer import WholeAnswerWriter
from ollama_gate.requests import AnswerFacts, InferenceRequest, Json, Kind

_TEXT_HEADERS: Final[Mapping[str, str]] = {"Content-Type": "text/plain"}
_INSTRUCTION: Final = (
    "Transcribe the audio exactly as spoken. Output only the spoken words. Do not answer any question in the audio."
)
_QUESTION: Final = "What exact words are spoken in this audio?"


def parse(form: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read a transcription request from its decoded form.

    Args:
        form: texts (model, and optionally language, prompt and response_format), and the part `file` as base64.
        headers: looked up by lower-case names.
        server_tools: without meaning here.

    Raises:
        Refused: 400 with Ollama's own text.
    """
    del server_tools
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    model, audio = fields.get("model", ""), fields.get("file")
    if not model:
        raise bad_request("model is required")
    if audio is None:
        raise bad_request("file is required: http: no such file")
    if not audio:
        raise bad_request("audio file is empty")
    instruction = _INSTRUCTION
    if fields.get("language"):
        instruction += f" The audio is in {fields['language']}."
    if fields.get("prompt"):
        instruction += f" Context: {fields['prompt']}"
    native: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": instruction},
            {"role": "user", "content": _QUESTION, "images": [audio]},
        ],
        "stream": False,
        "options": {"temperature": 0},
    }
    return inference_request(Kind.CHAT, "openai", {}, headers, native)


class TranscriptionWriter(WholeAnswerWriter):
    """A native chat answer to a transcription: JSON, or with response_format `text` the bare words."""

    def __init__(self, response_format: str = "json") -> None:
        """Write in the form field's format; any but `text` is JSON, as in Ollama."""
        self._bare = response_format == "text"
        self.whole_headers = _TEXT_HEADERS if self._bare else JSON_HEADERS

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """The words, without the white space around them."""
        words = text_of(message_of(answer), "content").strip()
        return words.encode() if self._bare else go_json({"text": words}) + b"\n"


def writer(request: InferenceRequest, form: Json, stamp: Stamp, facts: AnswerFacts) -> TranscriptionWriter:
    """The writer of the answer to a transcription request that was parsed from `form`."""
    del request, stamp, facts  # a transcription is words only
    return TranscriptionWriter(str(form.get("response_format", "")))
