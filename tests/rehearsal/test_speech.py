"""What the rehearsal says: to newcomers who try tools, among others."""

from typing import Any

import pytest

from ollama_gate.rehearsal.catalogue import MODELS
from ollama_gate.rehearsal.speech import Heard, compose

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_current_weather", "sendMail", "add")
]


def called(text: str, *, tools: list[dict[str, Any]] = TOOLS, first: bool = True) -> list[str]:
    vocabulary = MODELS[0].vocabulary
    said = compose(Heard(vocabulary.encode(text), text, tools, first=first), vocabulary)
    return [call["name"] for call in said.calls]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What is the weather in Oslo?", ["get_current_weather"]),
        ("WEATHER?", ["get_current_weather"]),
        ("Please use a tool", ["get_current_weather"]),
        ("call the right tool for it", ["get_current_weather"]),
        ("call tool add with {}", ["add"]),
        ("call tool sendMail", ["sendMail"]),
        ("Hello, who are you?", []),
        ("What tools do you have?", []),
        ("add one and one", []),  # so short a word says little
        ("Whatever the weather, " + "write on. " * 40, []),
    ],
)
def test_a_tool_is_called_when_a_message_asks_for_it(text: str, names: list[str]) -> None:
    assert called(text) == names


def test_without_tools_or_later_on_a_word_calls_nothing() -> None:
    assert called("What is the weather in Oslo?", tools=[]) == []
    assert called("What is the weather in Oslo?", first=False) == []
    assert called("Please use a tool", first=False) == ["get_current_weather"]


@pytest.mark.parametrize("nothing", [None, {}, {"type": "function", "function": None}])
def test_a_tool_that_is_nothing_fails_nobody(nothing: Any) -> None:
    assert called("call tool add", tools=[nothing, *TOOLS]) == ["add"]
    assert called("Please use a tool", tools=[nothing]) == []
