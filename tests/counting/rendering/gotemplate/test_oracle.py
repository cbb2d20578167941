"""Every Go-template row of the oracle: bodies of requests, and the text that a real Ollama rendered for them."""

from datetime import date
from typing import Any

import pytest

from ollama_gate.counting.normalise import ModelTraits, chat_conversation, generate_conversation
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.counting.structs import decode_messages
from support.gotemplates import recorded

ORACLE = recorded("oracle")


def traits(name: str) -> ModelTraits:
    model = ORACLE["models"][name]
    return ModelTraits(
        name=name,
        family=model["family"],
        capabilities=frozenset(model["capabilities"]),
        system=model["system"],
        messages=decode_messages(model["messages"]),
        parser=model["parser"],
        template=model["template"],
    )


@pytest.mark.parametrize("row", ORACLE["rows"], ids=lambda row: f"{row['id']} {row['kind']}")
def test_the_text_is_the_one_that_ollama_renders(row: dict[str, Any]) -> None:
    model = traits(row["model_variant"])
    prepare = chat_conversation if row["endpoint"] == "/api/chat" else generate_conversation
    conversation = prepare(row["request"], model)
    template = GoTemplate.parse(conversation.override or model.template, era=Era.of(ORACLE["ollama"]))

    text = template.render(conversation, today=date.fromisoformat(ORACLE["date"]), context_text=row.get("context_text"))

    assert text == row["rendered"]


def test_all_rows_are_there() -> None:
    assert len(ORACLE["rows"]) == 98
