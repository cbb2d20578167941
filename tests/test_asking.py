"""Asking Ollama for the text of a prompt: what an answer that holds none says about the model's load."""

import pytest

from ollama_gate.asking import Asker, NothingLoaded
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.errors import RenderError, TemplateRefused, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from ollama_gate.requests import InferenceRequest, Json, Kind
from ollama_gate.upstream.client import Upstream, UpstreamSettings
from ollama_gate.window import Window

Said = tuple[int, bytes] | Exception
ROOM = Window(4096, 3000)
REQUEST = InferenceRequest(Kind.CHAT, "/api/chat", "m", {"model": "m", "messages": []}, stream=True)


class Says(Upstream):
    """An Ollama that says one thing."""

    def __init__(self, said: Said) -> None:
        super().__init__(UpstreamSettings())
        self.said = said
        self.asked: list[Json] = []

    async def exchange(self, method: str, path: str, payload: Json | None, *, within: float) -> tuple[int, bytes]:
        assert (method, path, within > 60.0) == ("POST", "/api/chat", True)
        self.asked.append(payload or {})
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


async def ask(said: Said) -> str:
    ollama = Says(said)
    text = await Asker(ollama, Catalog(ollama, clock=lambda: 0.0)).ask(REQUEST, ROOM)
    [body] = ollama.asked
    assert (body["truncate"], body["shift"], body["options"]["num_ctx"]) == (False, False, 4096)
    return text


async def test_the_text_is_what_ollama_rendered() -> None:
    assert await ask((200, b'{"_debug_info":{"rendered_template":"<hi>"}}')) == "<hi>"


@pytest.mark.parametrize("said", [UpstreamUnreachable("nobody"), (500, b'{"error":"no memory"}'), (503, b"busy")])
async def test_nothing_is_loaded_when_nothing_was_sent_or_ollama_failed(said: Said) -> None:
    with pytest.raises(NothingLoaded):
        await ask(said)


NO_TEXT = [b"?", b"{}", b"[]", b'{"_debug_info":null}', b'{"_debug_info":"<hi>"}', b'{"_debug_info":{}}']


@pytest.mark.parametrize("said", [UpstreamTimeout("slow"), UpstreamBroken("cut"), *((200, text) for text in NO_TEXT)])
async def test_otherwise_nobody_knows(said: Said) -> None:
    with pytest.raises(RenderError) as no:
        await ask(said)
    assert not isinstance(no.value, NothingLoaded)


async def test_a_template_that_refuses_is_told_apart() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        await ask((400, b'{"error":"roles must alternate"}'))
