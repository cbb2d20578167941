"""The native forms: what every dialect is parsed into, and what every answer is written from.

An inference request leaves the gate as a *native* request whatever dialect it came in, so one frozen value serves the
whole pipeline. Field names follow Ollama's `api/types.go` (v0.33): `ChatRequest`, `GenerateRequest`, `EmbedRequest`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from ollama_gate.values import frozen

Json = Mapping[str, Any]
"""A decoded JSON object that is read and never changed."""

LOAD_OPTIONS: Final = frozenset({"num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "draft_num_predict"})
"""Options whose change makes Ollama load the model again (`server/sched.go:needsReload`, v0.33), num_ctx aside."""


class Kind(StrEnum):
    """What an inference request asks a model to do."""

    CHAT = "chat"
    GENERATE = "generate"
    EMBED = "embed"


class Control(StrEnum):
    """A request without a prompt is a message to Ollama's scheduler (`server/routes.go:ChatHandler`, v0.33)."""

    NONE = "none"
    LOAD = "load"
    UNLOAD = "unload"


class Texts(NamedTuple):
    """What a chat's messages and tools are long, in bytes as a template may print them."""

    bytes: int
    """All texts and printed tool calls of the messages, on one line."""
    spaces: int
    """What is added to it for each pair of blanks by which a template sets JSON in at each level."""
    messages: int
    images: int
    tools: int = 0
    tool_spaces: int = 0


@frozen
class Weight:
    """What would take long to learn of a large body, learnt once, in a thread."""

    body: Json
    """The body that this is true of; of no other one, not even an equal one."""
    texts: Texts | None
    """None where it is no chat."""
    users: tuple[int, ...]
    """Bytes of each user message, without the white space around it."""
    counted: bytes
    """Hash of all that a count depends on."""
    prompt: bytes
    """`conversations.prompt_key`."""
    conversation: bytes
    """`conversations.conversation_key`."""
    roles: frozenset[str | None] = frozenset()
    """Of all messages, as they are spelled."""


@frozen
class InferenceRequest:
    """One inference request in its native form."""

    kind: Kind
    path: str
    """The native route it goes to: /api/chat, /api/generate, /api/embed or /api/embeddings."""
    model: str
    """The name as the client spelled it; it is also the name that is sent."""
    body: Json
    """The native body, keys folded as Go folds them. What is sent is this, with the forced fields, serialised anew."""
    stream: bool
    """Whether the client wants the answer as it comes (absent means true on /api, false on /v1)."""
    dialect: str = "native"
    control: Control = Control.NONE
    asked_output: int | None = None
    """Output tokens the client asked for; None when it said nothing, negative when it said "no limit"."""
    asked_num_ctx: int | None = None
    """The client's own num_ctx. It changes nothing (the window is the operator's); a header says so."""
    session: str | None = None
    """A conversation id from a session header, where the client sends one."""
    notes: tuple[str, ...] = ()
    """What was left out or changed on the way to the native form; told to the client in a header."""
    as_it_came: bool = False
    """Ollama runs a tool of it by itself, so that it has to go to Ollama's own layer for the dialect, untranslated."""
    weight: Weight | None = None
    """Where its body is large; see `weighed`."""

    @property
    def weighed(self) -> Weight | None:
        """The weight of the body that it has now."""
        weight = self.weight
        return weight if weight is not None and weight.body is self.body else None


@frozen
class AnswerFacts:
    """What the gate knows about an answer before its first byte."""

    prompt_tokens: int | None = None
    """The prompt count, None when it was not needed and not made."""
    window: int | None = None
    """num_ctx in force, in tokens."""
    cached_tokens: int | None = None


class AnswerWriter(Protocol):
    """Turns native answers into one dialect's bytes. One instance serves one request; it does no I/O.

    The native dialect has none: its bytes are passed on unchanged.
    """

    stream_headers: Mapping[str, str]
    """Content-Type and what else the dialect sends with a stream."""
    whole_headers: Mapping[str, str]
    """The same for an answer that is not streamed."""

    def feed(self, chunk: Mapping[str, Any]) -> bytes:
        """Bytes for one native stream chunk (a decoded NDJSON line); may be empty."""
        ...

    def error(self, status: int, message: str, code: str | None = None) -> bytes:
        """Bytes for an error after the stream began; no end mark follows it. `code` is the gate's word for programs."""
        ...

    def finish(self) -> bytes | None:
        """Bytes that close the stream after Ollama ended it cleanly; None when `done:true` never came (no end mark)."""
        ...

    def keep_alive(self) -> bytes:
        """A sign of life that the dialect's clients ignore; empty when there is none."""
        ...

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """The body of a non-streamed answer."""
        ...

    def failed(self, status: int, message: str) -> bytes:
        """The body of an error that came from Ollama before the first byte (its status is kept)."""
        ...


@frozen
class Parts:
    """What a prompt is made of, in tokens. The sum is the prompt count."""

    messages: int = 0
    tools: int = 0
    template: int = 0
    media: int = 0


class Rung(StrEnum):
    """How a count was made."""

    EXACT = "exact"
    ESTIMATE = "estimate"
    BOUND = "bound"


class Basis(StrEnum):
    """What a count was made from."""

    HERE = "rendered here"
    ASKED = "rendered by ollama"
    ESTIMATED = "estimated"
    BYTES = "bytes"


@frozen
class PromptCount:
    """What a prompt costs."""

    tokens: int
    """The best number there is."""
    at_most: int
    """A number that the true count does not pass (equal to `tokens` on rung exact)."""
    rung: Rung
    parts: Parts = Parts()
    items: tuple[int, ...] = ()
    """Embeddings: tokens of each input."""
    why: str = ""
    """Why it is not exact, for people; empty when it is."""
    basis: Basis = Basis.BYTES
