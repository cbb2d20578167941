"""The rehearsal and the gate were written apart; where both do the same thing, they must agree."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollama_gate.counting.normalise import ModelTraits, chat_conversation
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.counting.rendering.jinja import JinjaTemplate
from ollama_gate.counting.structs import decode_messages
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.rehearsal import MODELS, Mode, Model, forms, structs
from ollama_gate.rehearsal.prompting import conversation
from ollama_gate.rehearsal.rendering import STYLES, Conversation
from ollama_gate.rehearsal.tools import tool as tools_as_kept

GATES = build(Vocabulary.from_metadata(dict(MODELS[0].tokenizer_metadata), MODELS[0].name))
EMBEDDER = next(model for model in MODELS if model.embeds)
GATES_PIECES = build(Vocabulary.from_metadata(dict(EMBEDDER.tokenizer_metadata), EMBEDDER.name))
JINJA_MODELS = [model for model in MODELS if model.name in {"rehearsal:latest", "rehearsal-thinking:latest"}]
GO_MODELS = list({(m.text, m.system): m for m in MODELS if m.mode is Mode.GO}.values())

texts = st.text(st.sampled_from("ab<>&\"'\\\n\t é日😀\u2028|_") | st.characters(codec="utf-8"), max_size=12)
names = st.sampled_from(["get", "set_it", "a.b"])
calls = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.fixed_dictionaries(
                {
                    "name": names,
                    "arguments": st.dictionaries(
                        texts, st.none() | st.integers(-9, 9) | texts | st.lists(texts, max_size=2), max_size=2
                    ),
                }
            )
        }
    ),
    max_size=2,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool", "User"]), "content": texts},
        optional={"tool_calls": calls, "tool_name": names, "thinking": texts},
    ),
    min_size=1,
    max_size=5,
)
properties = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", ["string", "null"]])},
    optional={
        "description": texts,
        "enum": st.lists(texts | st.integers(0, 9), max_size=2),
        "default": texts,
        "title": texts,
        "items": st.dictionaries(texts, st.integers(0, 9) | texts, max_size=2),
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
    # How an answer that was begun is continued is llama.cpp's own art: the oracle has a row for it.
    body = asked(model, [*said, {"role": "user", "content": "Go on."}], told, think)
    template = JinjaTemplate.compile(
        STYLES[model.text].text, bos_token=model.vocabulary.text_of("bos"), eos_token=model.vocabulary.text_of("eos")
    )
    expected = template.render(chat_conversation(body, traits_of(model)), now=datetime(2026, 11, 30, tzinfo=UTC))
    assert written(model, body) == expected


@given(st.text(max_size=60) | st.lists(pieces).map("".join))
def test_tokens(text: str) -> None:
    assert GATES.ids(text) == MODELS[0].vocabulary.encode(text)


@given(st.text(max_size=60) | st.lists(words).map("".join))
def test_word_pieces(text: str) -> None:
    assert GATES_PIECES.count([text])[0] == len(EMBEDDER.vocabulary.encode(text))
