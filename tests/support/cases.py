"""The public cases: their inputs, models that bear the names in them, and a gate in front of a rehearsal.

Each input under `tests/data/cases/` broke another gateway or client in public.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Entry, Fault, Mode, Model, Rehearsal, Settings
from support.gate import metric, running_gate
from support.http import Reply, ask

DATA = Path(__file__).parent.parent / "data" / "cases"
INFERENCE = frozenset({"/api/chat", "/api/generate", "/api/embed", "/api/embeddings"})
_RENDER_ONLY = b'"_debug_render_only":true'
_TRAINED = 131_072


def _chat(name: str, *capabilities: str, mode: Mode = Mode.GO, text: str = "go-tools", **more: Any) -> Model:
    return Model(
        name,
        mode=mode,
        text=text,
        capabilities=("completion", *capabilities),
        context_length=_TRAINED,
        **more,
    )


def _embedder(name: str, trained: int) -> Model:
    return Model(name, mode=Mode.EMBEDDING, text="none", capabilities=("embedding",), context_length=trained)


MODELS = (
    _chat("llama3.2:1b", "tools"),
    _chat("llama3.2:latest", "tools"),
    _chat("mylab/llama3.2:latest", "tools"),
    _chat("hf.co/example-org/Example-7B-GGUF:Q4_K_M"),
    _chat("hf.co/example-org/Example-7B-GGUF:latest"),
    _chat("qwen2.5:0.5b", "tools"),
    _chat("qwen2.5-coder:7b", "tools"),
    _chat("gemma3:4b", "vision", text="go-chatml", projector=True, can_shift=False),
    _chat("gpt-oss:20b", "thinking", text="go-thinking"),
    _chat("qwen3:8b", "thinking", text="go-thinking"),
    _embedder("all-minilm:latest", 512),
    _embedder("nomic-embed-text:latest", 8192),
)


def raw_case(name: str) -> bytes:
    """An input as it stands in its file."""
    return (DATA / f"{name}.json").read_bytes()


def case(name: str) -> Any:
    """An input, decoded."""
    return json.loads(raw_case(name))


def full(model: str) -> str:
    """The name of a model without host and namespace, as the metrics have it."""
    return f"registry.ollama.ai/library/{model}"


@dataclass(frozen=True, slots=True)
class Front:
    """A gate in front of a rehearsal."""

    gate: Gate
    ollama: Rehearsal

    async def ask(
        self, target: str, body: Any = None, *, method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request of a client, and its whole answer."""
        return await ask(self.gate.address, method, target, body, headers)

    async def straight(self, target: str, body: Any) -> Reply:
        """The same request without the gate."""
        address = ("127.0.0.1", self.ollama.port)
        return await ask(address, "POST", target, body, {"Host": "localhost"})

    async def count(self, target: str, body: Any) -> dict[str, Any]:
        """What the gate's own counter says of a body. The model is loaded and its rendering compared first."""
        decoded = json.loads(body) if isinstance(body, bytes) else body
        model = decoded["model"]
        if "embed" not in target:
            hello = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": False}
            loaded = await self.ask("/api/chat", hello)
            assert loaded.status == 200, loaded.body
        reply = await self.ask(f"/gate/count?route={target}", body)
        assert reply.status == 200, reply.body
        counted: dict[str, Any] = reply.json
        return counted

    def got(self, path: str | None = None) -> list[Entry]:
        """The inference requests that Ollama got: those that run a model, not those that only render."""
        paths = INFERENCE if path is None else {path}
        return [one for one in self.ollama.journal if one.path in paths and _RENDER_ONLY not in one.body]

    def metric(self, name: str, **labels: str) -> float:
        """One of the gate's metrics."""
        return metric(self.gate, name, **labels)

    def assert_refused(self, route: str, code: str = "context_length_exceeded", *, times: int = 1) -> None:
        """The refusal is in the metrics with its reason, and nothing of it has reached Ollama."""
        assert not self.got(), [entry.target for entry in self.got()]
        assert self.metric("refusals_total", route=route, code=code) == times


@asynccontextmanager
async def front(
    *, window: int = 8192, faults: tuple[Fault, ...] = (), settings: Mapping[str, Any] | None = None, **sections: Any
) -> AsyncIterator[Front]:
    """A gate with a window of so many tokens for every model, in front of a rehearsal with the cases' models."""
    sections.setdefault("defaults", {})
    sections["defaults"] = {"num_ctx": window, **sections["defaults"]}
    rehearsal = Rehearsal(Settings(models=MODELS, faults=faults, **(settings or {})))
    async with rehearsal, running_gate(rehearsal.url, **sections) as gate:
        yield Front(gate, rehearsal)


@dataclass(frozen=True, slots=True)
class TooLong:
    """A refusal for length, whatever the shape of its route."""

    message: str
    facts: Mapping[str, Any]


def assert_r400(reply: Reply, param: str) -> TooLong:
    """The refusal of a prompt that does not fit, in the shape of its route."""
    assert reply.status == 400, reply.body
    assert reply.reason == "Context Length Exceeded"
    assert (reply.header("Content-Type") or "").startswith("application/json")
    assert reply.header("x-should-retry") == "false"
    assert reply.header("Retry-After") is None
    assert reply.gate("verdict") == "refuse"
    told = reply.json
    if isinstance(told["error"], str):
        error, message, facts = told, told["error"], told["details"]
    elif told.get("type") == "error":  # Anthropic's shape: the facts stand beside the error
        error, message, facts = {**told, **told["error"]}, told["error"]["message"], told["details"]
    else:
        error = facts = told["error"]
        message = error["message"]
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    return TooLong(message, facts)
