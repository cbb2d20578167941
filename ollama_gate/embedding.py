"""Vectors for the gate's own use: through its admission and its counts, like anybody's request."""

from collections.abc import Awaitable, Callable, Sequence

from ollama_gate.admitting import Admission
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting.counter import Counter
from ollama_gate.errors import GateError
from ollama_gate.forcing import force
from ollama_gate.policies import Applied
from ollama_gate.requests import Control, InferenceRequest, Kind
from ollama_gate.upstream.client import Upstream
from ollama_gate.window import Output

_PATIENCE = 60.0


class NoVectors(GateError):
    """The embedding model gave none; the message says why."""


class Embedder:
    """Asks one embedding model of the Ollama behind this gate."""

    def __init__(
        self,
        model: str,
        *,
        card: Callable[[str], Awaitable[ModelCard]],
        applied: Callable[[ModelCard], Applied],
        counter: Counter,
        admission: Admission,
        upstream: Upstream,
    ) -> None:
        """Keep whom to ask for what."""
        self._model = model
        self._card = card
        self._applied = applied
        self._counter = counter
        self._admission = admission
        self._upstream = upstream

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text; one that is too long for the model is shortened first, as only likeness is wanted.

        Raises:
            GateError: there are none.
        """
        card = await self._card(self._model)
        applied = self._applied(card)
        if card.mode is Mode.REMOTE or applied.embeds is None or applied.window is None:
            raise NoVectors(f"{self._model} is no embedding model of this Ollama")
        limit = applied.embeds.tokens
        count = await self._counter.count_inputs(list(texts), card, limit)
        # A token has a character at least, but for scripts that an embedding model takes apart into bytes.
        fitting = [
            text if tokens <= limit else text[: limit // 4] for text, tokens in zip(texts, count.items, strict=True)
        ]
        body = {"model": self._model, "input": fitting}
        request = InferenceRequest(Kind.EMBED, "/api/embed", self._model, body, stream=False)
        forced = force(request, applied.window, Output(None))
        async with self._admission.lease(card, applied, "", Control.NONE) as lease:
            answer = await self._upstream.post_json("/api/embed", forced.body, within=_PATIENCE)
            if answer is None:
                raise NoVectors(f"Ollama gave no vectors for {self._model}")
            lease.answered()
        vectors = answer.get("embeddings") if isinstance(answer, dict) else None
        if not isinstance(vectors, list) or not all(isinstance(vector, list) for vector in vectors):
            raise NoVectors(f"Ollama's answer for {self._model} holds no vectors")
        return vectors
