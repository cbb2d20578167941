"""Which paths are guarded, and who writes the errors of each."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.errors import Refusal
from ollama_gate.routes import LANES, decoded, refusal_writer

INFERENCE = {
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/audio/transcriptions",
}
"""Every route of Ollama v0.33 that runs a model (`server/routes.go:GenerateRoutes`)."""


def test_every_route_that_runs_a_model_is_guarded() -> None:
    assert set(LANES) == INFERENCE


@given(st.sampled_from(sorted(INFERENCE)), st.data())
def test_percent_encoding_hides_no_path(path: str, data: st.DataObject) -> None:
    spelled = "".join(f"%{ord(char):02x}" if data.draw(st.booleans()) else char for char in path)
    assert decoded(spelled) == path


@pytest.mark.parametrize("raw", ["/api/%2563hat", "/api/chat%", "/api/%zz", "/%ff", ""])
def test_a_path_is_decoded_once_and_never_fails(raw: str) -> None:
    assert decoded(raw) not in LANES


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/api/chat", "native"),
        ("/api/nowhere", "native"),
        ("/", "native"),
        ("/v1/chat/completions", "openai"),
        ("/v1/models", "openai"),
        ("/v1/nowhere", "openai"),
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
    ],
)
def test_errors_have_the_shape_of_their_route(path: str, shape: str) -> None:
    body, content_type = refusal_writer(path)(Refusal(400, "why", "because"), "7f")
    told = json.loads(body)
    assert content_type.startswith("application/json")
    found = "native" if isinstance(told["error"], str) else "anthropic" if told.get("type") == "error" else "openai"
    assert found == shape
    assert "because" in json.dumps(told["error"])
