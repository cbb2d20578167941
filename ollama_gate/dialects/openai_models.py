"""GET /v1/models and GET /v1/models/{id} (`openai/openai.go:ToListCompletion` and `ToModel`, Ollama v0.33)."""

from collections.abc import Mapping
from typing import Any

from ollama_gate.catalog.names import DEFAULT_NAMESPACE
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.translation import text_of, unix_seconds


def models_list(tags: Mapping[str, Any]) -> bytes:
    """The list of models, from the answer of /api/tags; an empty list where Ollama would say null."""
    models = tags.get("models")
    data = [
        _model(text_of(each, "model") or text_of(each, "name"), each)
        for each in (models if isinstance(models, list) else ())
        if isinstance(each, Mapping)
    ]
    return go_json({"object": "list", "data": data}) + b"\n"


def model_object(name: str, show: Mapping[str, Any]) -> bytes:
    """One model, from the answer of /api/show.

    Args:
        name: as the client spelled it after /v1/models/; it may hold slashes, which Ollama's own route cannot match.
        show: the decoded answer.
    """
    return go_json(_model(name, show)) + b"\n"


def _model(name: str, holder: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": unix_seconds(holder.get("modified_at"), 0),
        "owned_by": _namespace(name),
    }


def _namespace(name: str) -> str:
    """The part before the model's own name, however odd the name is (`types/model/name.go:ParseName`)."""
    parts = name.rsplit("/", 2)
    return parts[-2] if len(parts) > 1 and parts[-2] else DEFAULT_NAMESPACE
