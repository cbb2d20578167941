"""What a client of the soak does next: every route and dialect, streamed and not, refusals, leaving in each phase."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

CHATS: Final = ("soak-a", "soak-b", "soak-c")
SLOW: Final = "soak-slow"
"""The model of the slow streams."""
LONG: Final = "soak-long"
"""The model whose conversations are compacted."""
EMBEDDER: Final = "soak-embed"
BUDGET: Final = 1600
MODELS: Final[Sequence[Mapping[str, Any]]] = (
    {"name": "soak-a", "mode": "go", "text": "go-chatml"},
    {"name": "soak-b", "capabilities": ["completion", "tools"]},
    {"name": "soak-c", "mode": "renderer", "text": "renderer", "renderer": "rehearsal", "parser": "rehearsal"},
    {"name": SLOW, "mode": "go", "text": "go-chatml"},
    {"name": LONG, "mode": "go", "text": "go-chatml"},
    {"name": EMBEDDER, "mode": "embedding", "text": "none", "capabilities": ["embedding"], "context_length": 512},
)
"""As `python -m ollama_gate.rehearsal --models` takes them."""
END_MARKS: Final = (b'"done":true', b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")
_WORDS: Final = ("ferry", "lantern", "orchard", "ledger", "bridge", "kiln", "harbour", "compass", "keeper", "index")
_KEPT: Final = range(1, 6)
_TEXTS: Final = 300
"""How many texts of each length there are."""


class Leave(Enum):
    """When a client hangs up."""

    NEVER = "never"
    IN_THE_BODY = "while its body is coming"
    EARLY = "before the first byte, or while it waits"
    IN_THE_STREAM = "in the middle of a stream"


@dataclass(frozen=True, slots=True)
class Step:
    """One request and what may come of it."""

    name: str
    method: str
    path: str
    body: bytes = b""
    statuses: frozenset[int] = frozenset({200})
    stream: bool = False
    leave: Leave = Leave.NEVER


def prose(rng: random.Random, words: int) -> str:
    """So many words: one of a few hundred texts, so that what remembers texts is full when the warm-up is over."""
    return " ".join(random.Random(rng.randrange(_TEXTS)).choices(_WORDS, k=words))


def _chat(model: str, text: str, tokens: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The same question in each dialect, with the path that it is asked on."""
    talk = [{"role": "user", "content": text}]
    return {
        "chat": ("/api/chat", {"model": model, "messages": talk, "options": {"num_predict": tokens}}),
        "generate": ("/api/generate", {"model": model, "prompt": text, "options": {"num_predict": tokens}}),
        "openai": ("/v1/chat/completions", {"model": model, "messages": talk, "max_tokens": tokens}),
        "completions": ("/v1/completions", {"model": model, "prompt": text, "max_tokens": tokens}),
        "responses": ("/v1/responses", {"model": model, "input": text, "max_output_tokens": max(tokens, 16)}),
        "anthropic": ("/v1/messages", {"model": model, "messages": talk, "max_tokens": tokens}),
    }


def _answered(rng: random.Random) -> Step:
    dialect, (path, body) = rng.choice(list(_chat(rng.choice(CHATS), prose(rng, 12), rng.choice(_KEPT)).items()))
    stream = rng.random() < 0.6
    name = f"{dialect} {'streamed' if stream else 'whole'}"
    return Step(name, "POST", path, _json({**body, "stream": stream}), stream=stream)


def _left(rng: random.Random) -> Step:
    dialect, (path, body) = rng.choice(list(_chat(rng.choice(CHATS), prose(rng, 12), 40).items()))
    leave = rng.choice((Leave.IN_THE_BODY, Leave.EARLY, Leave.IN_THE_STREAM))
    stream = leave is Leave.IN_THE_STREAM or rng.random() < 0.5
    return Step(f"{dialect} left {leave.value}", "POST", path, _json({**body, "stream": stream}), stream=stream,
                leave=leave)  # fmt: skip


def _embedded(rng: random.Random) -> Step:
    path = rng.choice(("/api/embed", "/v1/embeddings"))
    leave = Leave.EARLY if rng.random() < 0.2 else Leave.NEVER
    body = {"model": EMBEDDER, "input": [prose(rng, 20), prose(rng, 5)]}
    return Step(f"embed {'left while it waits' if leave is Leave.EARLY else 'whole'}", "POST", path, _json(body),
                leave=leave)  # fmt: skip


def _refused(rng: random.Random) -> Step:
    kind = rng.choice(("too long", "too long", "no JSON", "unknown model", "two keys", "embedding too long"))
    path, body = rng.choice(list(_chat(rng.choice(CHATS), prose(rng, 3 * BUDGET), 5).values()))
    refused = frozenset({400})
    match kind:
        case "no JSON":
            return Step(kind, "POST", path, b'{"model":', refused)
        case "unknown model":
            return Step(kind, "POST", path, _json({**body, "model": f"nobody-{rng.randrange(10**6)}"}),
                        frozenset({400, 404}))  # fmt: skip
        case "two keys":
            return Step(kind, "POST", path, b'{"Model":"a",' + _json(body)[1:], refused)
        case "embedding too long":
            return Step(kind, "POST", "/api/embed", _json({"model": EMBEDDER, "input": prose(rng, 2000)}), refused)
        case _:
            return Step(kind, "POST", path, _json(body), refused)


def _looked(rng: random.Random) -> Step:
    path = rng.choice(("/api/tags", "/api/ps", "/api/version", "/v1/models", "/gate/status", "/gate/metrics",
                       "/gate/health"))  # fmt: skip
    if rng.random() < 0.3:
        return Step("show", "POST", "/api/show", _json({"model": rng.choice(CHATS)}))
    if rng.random() < 0.3:
        body = {"model": rng.choice(CHATS), "messages": [{"role": "user", "content": prose(rng, 100)}]}
        return Step("count", "POST", "/gate/count", _json(body))
    return Step(f"GET {path}", "GET", path)


def compacted(rng: random.Random) -> Step:
    """A conversation over its budget, of the model whose conversations are compacted."""
    talk = [{"role": "system", "content": "Be brief."}]
    talk += [
        {"role": "user" if at % 2 else "assistant", "content": prose(rng, 60)}
        for at in range(1, rng.randrange(31, 51, 2))
    ]
    body = {"model": LONG, "messages": talk, "stream": False, "options": {"num_predict": 3}}
    return Step("compacted", "POST", "/api/chat", _json(body), frozenset({200, 400}))


def warm() -> list[Step]:
    """One request for each model, so that all of them are loaded and their tokenizers built."""
    rng = random.Random(0)
    asked = [(path, {**_chat(model, "hello", 3)["chat"][1], "stream": False})
             for path in ("/api/chat", "/gate/count") for model in (*CHATS, SLOW, LONG)]  # fmt: skip
    asked.append(("/api/embed", {"model": EMBEDDER, "input": "hello"}))
    return [*(Step("warm", "POST", path, _json(body)) for path, body in asked), compacted(rng)]


_KINDS: Final[Sequence[tuple[float, Callable[[random.Random], Step]]]] = (
    (0.47, _answered),
    (0.17, _left),
    (0.10, _embedded),
    (0.12, _refused),
    (0.13, _looked),
    (0.01, compacted),
)


def next_step(rng: random.Random) -> Step:
    """What a client does next."""
    [kind] = rng.choices([kind for _, kind in _KINDS], [share for share, _ in _KINDS])
    return kind(rng)


def _json(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
