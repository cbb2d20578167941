"""Our text against Ollama's, on the probe conversations."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.rendering.local import LocalRenderer
from ollama_gate.counting.selfcheck import PROBES, differing_probe
from ollama_gate.counting.specials import Specials
from ollama_gate.errors import RenderError, TemplateRefused
from ollama_gate.requests import InferenceRequest, Kind
from support.gotemplates import template_text

FACTS = TokenizerFacts("gpt2", 10, False, False, "", "", Specials(()), 1, 0, 8)
NOW = datetime(2026, 11, 30, tzinfo=UTC)
ALL = frozenset({"completion", "tools", "thinking"})
Ask = Callable[[InferenceRequest], Awaitable[str]]


def renderer(template: str = "qwen25", capabilities: frozenset[str] = ALL) -> LocalRenderer:
    card = ModelCard("m", "m", "d", Mode.GO_TEMPLATE, template_text(template), capabilities=capabilities)
    return LocalRenderer.of(card, FACTS, version="0.33.0")


def echo(one: LocalRenderer, asked: list[InferenceRequest] | None = None) -> Ask:
    """An Ollama that renders as we do."""

    async def ask(request: InferenceRequest) -> str:
        if asked is not None:
            asked.append(request)
        return one.text(request, NOW)

    return ask


async def differing(one: LocalRenderer, ask: Ask) -> str | None:
    return await differing_probe(one, ask, lambda: NOW)


@pytest.mark.parametrize("template", ["qwen25", "llama32", "qwen3", "gemma", "mistral"])
async def test_the_same_text_is_no_difference(template: str) -> None:
    assert await differing(renderer(template), echo(renderer(template))) is None


async def test_only_what_the_model_can_do_is_probed() -> None:
    asked: list[InferenceRequest] = []
    plain = renderer(capabilities=frozenset({"completion"}))
    assert await differing(plain, echo(plain, asked)) is None
    assert 0 < len(asked) < len(PROBES)
    assert not any(request.body.get("tools") or "think" in request.body for request in asked)


@pytest.mark.parametrize("at", range(len(PROBES)))
async def test_a_difference_in_any_probe_is_found_and_placed(at: int) -> None:
    one, seen = renderer("qwen3"), 0

    async def ask(request: InferenceRequest) -> str:
        nonlocal seen
        seen += 1
        text = one.text(request, NOW)
        return text[:7] + "X" + text[8:] if seen == at + 1 else text

    found = await differing(one, ask)
    assert found is not None
    assert found.startswith(f"{PROBES[at][0]}: the texts differ from character 7 on")


async def test_a_longer_text_differs_at_its_end() -> None:
    one = renderer()

    async def ask(request: InferenceRequest) -> str:
        return one.text(request, NOW) + " "

    first = InferenceRequest(Kind.CHAT, "/api/chat", "m", {"model": "m", **PROBES[0][2]}, stream=False)
    length = len(one.text(first, NOW))
    assert await differing(one, ask) == (
        f"one question: the texts differ from character {length} on ({length} here, {length + 1} there)"
    )


async def test_what_one_refuses_and_the_other_renders_is_a_difference() -> None:
    async def refuses(request: InferenceRequest) -> str:
        raise TemplateRefused("no")

    found = await differing(renderer(), refuses)
    assert found == "one question: rendered here, refused by Ollama"


async def test_without_an_answer_nothing_is_known() -> None:
    async def silent(request: InferenceRequest) -> str:
        raise RenderError("Ollama did not say")

    with pytest.raises(RenderError):
        await differing(renderer(), silent)
