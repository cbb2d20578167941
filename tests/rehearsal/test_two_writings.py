"""The rehearsal and the gate were written apart; where both do the same thing, they must agree."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollama_gate.counting.normalise import ModelTraits, chat_conversation, generate_conversation
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.counting.rendering.jinja import JinjaTemplate
from ollama_gate.counting.structs import decode_messages
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import TemplateRefused
from ollama_gate.rehearsal import MODELS, Mode, Model, forms, structs
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.prompting import conversation
from ollama_gate.rehearsal.rendering import STYLES, Conversation, fill_in_the_middle
from ollama_gate.rehearsal.tools import tool as tools_as_kept

GATES = build(Vocabulary.from_metadata(dict(MODELS[0].tokenizer_metadata), MODELS[0].name))
EMBEDDER = next(model for model in MODELS if model.embeds)
GATES_PIECES = build(Vocabulary.from_metadata(dict(EMBEDDER.tokenizer_metadata), EMBEDDER.name))
_JINJA = {"rehearsal:latest", "rehearsal-thinking:latest", "rehearsal-strict:latest"}
JINJA_MODELS = [model for model in MODELS if model.name in _JINJA]
ROLES = Model("rehearsal-roles:latest", mode=Mode.GO, text="go-roles")
GO_MODELS = list({(m.text, m.system): m for m in (*MODELS, ROLES) if m.mode is Mode.GO}.values())

texts = st.text(st.sampled_from("ab<>&\"'\\\n\t é日😀\u2028|_") | st.characters(codec="utf-8"), max_size=12)
names = st.sampled_from(["get", "set_it", "a.b"])
numbers = (
    st.integers(-9, 9)
    | st.sampled_from([1.0, -0.0, 1e21, 1e-7, 2**53 + 1, 2**63, -(2**63), 12345678901234567890, 1234567.5])
    | st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.none() | numbers | texts
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, numbers, max_size=2)
arguments = st.none() | st.dictionaries(texts, values, max_size=2)
calls = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": names}, optional={"arguments": arguments})},
    ),
    max_size=2,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool", "User", "developer"]), "content": texts},
        optional={"tool_calls": calls, "tool_name": names, "thinking": texts},
    ),
    min_size=1,
    max_size=5,
)
properties = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", ["string", "null"], "", None, []])},
    optional={
        "description": texts,
        "enum": st.lists(texts | numbers, max_size=2),
        "default": texts,
        "title": texts,
        "items": st.dictionaries(texts, numbers | texts, max_size=2),
        "anyOf": st.just([{"type": "string", "format": "x"}]),
        "required": st.lists(names, max_size=2),
    },
)
tools = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {
                    "name": names,
                    "parameters": st.fixed_dictionaries(
                        {"type": st.just("object"), "properties": st.dictionaries(names, properties, max_size=2)},
                        optional={"required": st.lists(names, max_size=2), "additionalProperties": st.just(False)},
                    ),
                },
                optional={"description": texts, "strict": st.just(True)},
            ),
        }
    ),
    max_size=2,
)


thinks = st.sampled_from([None, True, False, "high"])
pieces = st.sampled_from(["<|im_start|>", "user", "\n", " the", "1234", "é", "<think>"])
words = st.sampled_from(["The", " model", "é", "日", "!", "\x00", "1234", "ing"])


def traits_of(model: Model) -> ModelTraits:
    return ModelTraits(
        name=model.name,
        family=model.family,
        capabilities=frozenset(model.capabilities),
        system=model.system,
        messages=decode_messages(list(model.messages)),
        template=STYLES[model.text].text,
    )


def asked(model: Model, said: list[Any], told: list[Any], think: Any) -> dict[str, Any]:
    """A chat body that the model can take."""
    body: dict[str, Any] = {"model": model.name, "messages": said}
    if "tools" in model.capabilities and told:
        body["tools"] = told
    if "thinking" in model.capabilities:
        body["think"] = think
    return body


def written(model: Model, body: dict[str, Any]) -> str:
    """The prompt as the rehearsal writes it."""
    form = structs.read(json.dumps(body).encode(), forms.CHAT, "ChatRequest")
    think = form.get("think")
    return STYLES[model.text].write(
        Conversation(
            conversation(model, form["messages"]),
            [tools_as_kept(one) for one in form.get("tools") or ()],
            True if think is None and "thinking" in model.capabilities else think,
            bos=model.vocabulary.text_of("bos"),
            eos=model.vocabulary.text_of("eos"),
        )
    )


@pytest.mark.parametrize("model", GO_MODELS, ids=lambda model: model.name)
@settings(deadline=None)
@given(said=messages, told=tools, think=thinks)
def test_go_templates(model: Model, said: list[Any], told: list[Any], think: Any) -> None:
    body = asked(model, said, told, think)
    template = GoTemplate.parse(STYLES[model.text].text, era=Era.of("0.33.0"))
    expected = template.render(chat_conversation(body, traits_of(model)), today=date(2026, 11, 30))
    assert written(model, body) == expected


@pytest.mark.parametrize("model", JINJA_MODELS, ids=lambda model: model.name)
@settings(deadline=None)
@given(said=messages, told=tools, think=thinks)
def test_jinja_templates(model: Model, said: list[Any], told: list[Any], think: Any) -> None:
    if model.text == "alternating":
        # It refuses what llama.cpp tries it out with and so would get arguments as text: no calls here.
        said = [{key: value for key, value in message.items() if key != "tool_calls"} for message in said]
    body = asked(model, said, told, think)
    template = JinjaTemplate.compile(
        STYLES[model.text].text, bos_token=model.vocabulary.text_of("bos"), eos_token=model.vocabulary.text_of("eos")
    )
    conversation = chat_conversation(body, traits_of(model))
    try:
        expected = template.render(conversation, now=datetime(2026, 11, 30, tzinfo=UTC))
    except TemplateRefused:  # two answers at the end, or a template that wants turns to alternate
        with pytest.raises(StatusError):
            written(model, body)
    else:
        assert written(model, body) == expected


@given(prompt=texts.filter(bool), suffix=texts.filter(bool))
def test_filling_in_the_middle(prompt: str, suffix: str) -> None:
    model = next(model for model in MODELS if "insert" in model.capabilities)
    made = generate_conversation({"prompt": prompt, "suffix": suffix}, traits_of(model))
    expected = GoTemplate.parse(STYLES[model.text].text, era=Era.of("0.33.0")).render(made, today=date(2026, 11, 30))
    assert fill_in_the_middle(prompt, suffix) == expected


@given(st.text(max_size=60) | st.lists(pieces).map("".join))
def test_tokens(text: str) -> None:
    assert GATES.ids(text) == MODELS[0].vocabulary.encode(text)


@given(st.text(max_size=60) | st.lists(words).map("".join))
def test_word_pieces(text: str) -> None:
    assert GATES_PIECES.count([text])[0] == len(EMBEDDER.vocabulary.encode(text))
