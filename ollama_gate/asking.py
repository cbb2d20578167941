"""Asking Ollama for the text of a prompt, without running it.

`_debug_render_only` answers with the rendered prompt (`server/routes.go:ChatHandler` and `GenerateHandler`, v0.11.5 and
later). It loads the model and restarts its keep-alive, so the very same options as for the request itself are sent, and
`truncate:false`, or the text would come shortened already.
"""

from typing import Any

import orjson

from ollama_gate.admission.sharing import serves
from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.errors import RenderError, TemplateRefused, UpstreamError, UpstreamUnreachable
from ollama_gate.forcing import force
from ollama_gate.requests import InferenceRequest
from ollama_gate.upstream.client import Upstream
from ollama_gate.window import Output, Window

_PATIENCE = 300.0
"""Seconds: a cold model is loaded first."""


class NothingLoaded(RenderError):
    """Ollama gave no text, and no load is under way for it: it was not reached, or failed at the request."""


class Asker:
    """Asks one Ollama for rendered prompts."""

    def __init__(self, upstream: Upstream, catalog: Catalog) -> None:
        """Keep whom to ask."""
        self._upstream = upstream
        self._catalog = catalog

    async def ask(self, request: InferenceRequest, room: Window) -> str:
        """The text that Ollama makes of a chat or generate request.

        Raises:
            TemplateRefused: Ollama refuses the request (400), whatever its length.
            NothingLoaded: Ollama was not reached, or answered that it failed.
            RenderError: Ollama gave no text; it may have the model loaded, or be about to.
        """
        body: dict[str, Any] = force(request, room, Output(None)).body
        body |= {"stream": False, "_debug_render_only": True}
        try:
            status, raw = await self._upstream.exchange("POST", request.path, body, within=_PATIENCE)
        except UpstreamError as failure:
            kind = NothingLoaded if isinstance(failure, UpstreamUnreachable) else RenderError
            raise kind(f"Ollama did not say how it renders the prompt: {failure}") from failure
        if status >= 500:
            raise NothingLoaded(f"Ollama answered a render-only request with {status}")
        try:
            told = orjson.loads(raw)
        except orjson.JSONDecodeError as bad:
            raise RenderError("Ollama's answer to a render-only request is not JSON") from bad
        if status == 400:
            raise TemplateRefused(str(told.get("error") if isinstance(told, dict) else told)[:300])
        match told:
            case {"_debug_info": {"rendered_template": str(text)}} if status == 200:
                return text
            case _:
                raise RenderError(f"Ollama answered a render-only request with {status} and no text")

    async def loaded(self, card: ModelCard) -> bool:
        """Whether Ollama has this model in memory, in its own mode; no answer counts as no."""
        try:
            rows = await self._catalog.residents()
        except UpstreamError:
            return False
        return any(row.get("digest") == card.digest or self._serves(row.get("model"), card) for row in rows)

    def _serves(self, name: object, card: ModelCard) -> bool:
        """Whether a resident stands for this model too: names may share a file."""
        loader = self._catalog.last_known(name) if isinstance(name, str) else None
        return loader is not None and serves(loader, card)
