"""The byte bound holds: whatever a conversation and whatever its template, the text is never longer than it says."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting import bound
from ollama_gate.counting.bound import TemplateCost
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.rendering.local import LocalRenderer
from ollama_gate.counting.specials import Specials
from ollama_gate.dialects import native
from ollama_gate.errors import RenderError, TemplateRefused
from ollama_gate.rehearsal.rendering import STYLES
from ollama_gate.requests import InferenceRequest
from support.gotemplates import template_names, template_text

NOW = datetime(2026, 11, 30, tzinfo=UTC)
FACTS = TokenizerFacts("gpt2", 10, False, False, "<s>", "</s>", Specials(()), 1, 0, 8)
CAPABLE = frozenset({"completion", "tools", "thinking"})

JINJA = {
    "chatml": STYLES["chatml"].text,
    "tools set in, as Llama 3.1 prints them": """\
{%- if tools %}{% for t in tools %}{{ t | tojson(indent=4) + '\\n\\n' }}{% endfor %}{% endif %}
{%- for m in messages %}{{ '<|start|>' + m.role + '\\n' + (m.content or '') }}
{%- if m.tool_calls %}{{ m.tool_calls | tojson(indent=2) }}{% endif %}{{ '<|end|>' }}{% endfor %}""",
    "the last message three times": """\
{%- for m in messages %}{{ m.content or '' }}
{%- if loop.last %}{{ m.content }}|{{ m.content }}{% endif %}{% endfor %}""",
    "a long text around every tool": """\
{%- for t in tools or [] %}{{ 'Here is a function that you may call whenever you see fit to do so: '
 + t.function.name + ' which does this: ' + (t.function.description or 'nothing') + '. It takes '
 + (t.function.parameters | tojson) + '. Call it as ' + t.function.name + '(...) and by no other name.\\n' }}
{%- endfor %}{% for m in messages %}[{{ m.role }}] {{ m.content or '' }}{% endfor %}""",
    "everything in JSON, escaped twice": """\
{%- for m in messages %}{{ m | tojson | tojson }}{% endfor %}{{ (tools or []) | tojson | tojson }}""",
    "the tools once more at the end": """\
{%- for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content or '' }}{% endfor %}
{%- for t in tools or [] %}{{ t | tojson }}{% endfor %}""",
}
GO = sorted({*template_names()} - {"torture", "legacy_else", "legacy_late_function"})
"""All in the style of Ollama's library. The first left-out one prints parts of a message in ways that no model's does,
the others take no chat."""


def _card(mode: Mode, template: str) -> ModelCard:
    return ModelCard(
        key="m", name="m", digest="d", mode=mode, template=template, capabilities=CAPABLE, system="You are Hugo."
    )


@cache
def measured(name: str) -> tuple[LocalRenderer, TemplateCost]:
    """A template's renderer, and what was measured of it."""
    card = _card(Mode.JINJA, JINJA[name]) if name in JINJA else _card(Mode.GO_TEMPLATE, template_text(name))
    renderer = LocalRenderer.of(card, FACTS, version="0.33.0")
    assert not renderer.why, renderer.why
    return renderer, bound.measure(lambda body: renderer.probe(body, NOW))


TEXT = st.text(st.sampled_from("ab <>&\"'\\\n\t{}[]:,\u00e9\u6f22\U0001f600\x00\u2028"), max_size=40)
WORD = st.text(st.sampled_from("abc_\u00e9<"), min_size=1, max_size=12)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORD, inner, max_size=4),
    max_leaves=12,
)
TYPE: st.SearchStrategy[Any] = st.sampled_from(["string", "integer", ["string", "null"], "object", "array"])
SCHEMA: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {"type": TYPE},
        optional={
            "description": TEXT,
            "enum": st.lists(TEXT, max_size=4),
            "properties": st.dictionaries(WORD, SCHEMA, max_size=3),
            "items": VALUE,
        },
    )
)
TOOL = st.builds(
    lambda name, description, properties, required: {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "required": required, "properties": properties},
        },
    },
    WORD,
    TEXT,
    st.dictionaries(WORD, SCHEMA, max_size=5),
    st.lists(WORD, max_size=3),
)
CALL = st.builds(
    lambda name, arguments: {"function": {"name": name, "arguments": arguments}},
    WORD,
    st.dictionaries(WORD, VALUE, max_size=4),
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "user", "assistant", "tool", "critic"]), "content": st.none() | TEXT},
    optional={"thinking": TEXT, "tool_calls": st.lists(CALL, max_size=3), "tool_name": WORD, "tool_call_id": WORD},
)
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, min_size=1, max_size=7)},
    optional={"tools": st.lists(TOOL, max_size=5), "think": st.sampled_from([True, False])},
)


def _text(name: str, request: InferenceRequest) -> str:
    """The prompt's text; a request that Ollama refuses, or that is asked for, has none."""
    try:
        return measured(name)[0].text(request, NOW)
    except (RenderError, TemplateRefused):
        reject()


FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*GO, *JINJA])
@settings(FEW, max_examples=15)
@given(body=BODY)
def test_no_chat_is_longer_than_its_bound(name: str, body: dict[str, Any]) -> None:
    request = native.parse("/api/chat", {"model": "m", **body})
    text = _text(name, request)
    most = bound.most_bytes(request, measured(name)[1])
    assert most is not None
    assert bound.byte_length(text) <= most[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama32", "qwen3", "gptoss", "chatml"])
@FEW
@given(
    prompt=TEXT,
    system=TEXT,
    suffix=st.just("") | TEXT,
    raw=st.booleans(),
)
def test_no_completion_is_longer_than_its_bound(name: str, prompt: str, system: str, suffix: str, *, raw: bool) -> None:
    body = {"model": "m", "prompt": prompt + "x", "system": system, "suffix": suffix, "raw": raw}
    request = native.parse("/api/generate", body)
    most = bound.most_bytes(request, measured(name)[1])
    assert most is not None
    assert bound.byte_length(_text(name, request)) <= most[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama32", "qwen25", "mistral", "gemma", "chatml"])
@FEW
@given(texts=st.lists(TEXT, min_size=1, max_size=6), longest=st.integers(1, 20))
def test_no_chat_is_shorter_than_its_lower_bound(name: str, texts: list[str], longest: int) -> None:
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    request = native.parse("/api/chat", {"model": "m", "messages": messages})
    assert bound.at_least(request, longest) <= bound.byte_length(_text(name, request)) / longest


def test_a_template_that_repeats_a_message_with_every_other_one_has_no_useful_bound() -> None:
    text = """\
{%- for m in messages %}{% if m.role == 'user' %}{{ messages[0].content }}{% endif %}
{{- m.content or '' }}{% endfor %}"""
    renderer = LocalRenderer.of(_card(Mode.JINJA, text), FACTS, version="0.33.0")
    cost = bound.measure(lambda body: renderer.probe(body, NOW))
    most = bound.most_bytes(native.parse("/api/chat", {"model": "m", "messages": [{"role": "user"}]}), cost)
    assert most is not None
    assert most[0] > 10**12


def test_a_template_that_takes_no_probe_keeps_the_generous_constants() -> None:
    def refuses(body: object) -> str:
        raise RenderError("no")

    assert bound.measure(refuses) == TemplateCost()


@pytest.mark.parametrize("body", [{"template": "{{ .Prompt }}{{ .Prompt }}"}, {"context": [1, 2]}])
def test_there_is_no_bound_where_there_is_no_telling(body: dict[str, Any]) -> None:
    request = native.parse("/api/generate", {"model": "m", "prompt": "x", **body})
    assert bound.most_bytes(request, TemplateCost()) is None


def test_a_raw_prompt_is_itself() -> None:
    request = native.parse("/api/generate", {"model": "m", "prompt": "h\u00e9", "raw": True, "images": ["x", "y"]})
    assert bound.most_bytes(request, TemplateCost()) == (3, 2)


def test_pictures_are_counted_and_their_bytes_are_not() -> None:
    plain = {"role": "user", "content": "hi"}
    request = native.parse("/api/chat", {"model": "m", "messages": [{**plain, "images": ["A" * 10**6] * 3}]})
    bare = bound.most_bytes(native.parse("/api/chat", {"model": "m", "messages": [plain]}), TemplateCost())
    assert bare is not None
    assert bound.most_bytes(request, TemplateCost()) == (bare[0], 3)


@pytest.mark.parametrize(
    ("kind", "most"),
    [("gpt2", 102), ("gemma4", 102), ("bert", 102), ("llama", 203), ("t5", None), ("rwkv", None), ("None", None)],
)
def test_the_kind_of_vocabulary_bounds_the_tokens_of_bytes(kind: str, most: int | None) -> None:
    assert bound.tokens_of_bytes(100, kind) == most


def test_the_modelfiles_own_texts_are_in_the_constants() -> None:
    own = bound.unmeasured("s" * 100, [{"role": "user", "content": "m" * 50}, {"role": "assistant"}])
    assert own.fixed == TemplateCost().fixed + 200 + 100 + 320


@given(st.text(st.characters(categories=["L", "Cs", "So"])))
def test_bytes_of_a_text_are_those_of_utf8(text: str) -> None:
    assert bound.byte_length(text) == len(text.encode("utf-8", "surrogatepass"))
