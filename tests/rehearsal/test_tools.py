"""Types of tools: what Go does not take is found, and what it takes is let be."""

from typing import Any

import pytest

from ollama_gate.rehearsal.tools import misfit


def tool(**parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object", **parameters}}}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (5, "tools"),
        ({"type": 5}, "tools.type"),
        ({"function": "f"}, "tools.function"),
        ({"function": {"name": ["f"]}}, "tools.function.name"),
        (tool(properties=[]), "tools.function.parameters.properties"),
        (tool(required="a"), "tools.function.parameters.required"),
        (tool(properties={"a": {"type": 5}}), "tools.function.parameters.properties.a.type"),
        (
            tool(properties={"a": {"anyOf": [{"properties": 5}]}}),
            "tools.function.parameters.properties.a.anyOf.properties",
        ),
    ],
)
def test_a_field_of_another_type_is_named(value: Any, path: str) -> None:
    assert misfit(value) == path


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        tool(properties=None, required=None),
        tool(properties={"a": {"type": ["string", "null"], "enum": [1, "x"], "items": 5}, "b": None}, unknown=5),
    ],
)
def test_what_fits_is_let_be(value: Any) -> None:
    assert misfit(value) is None
