"""The OpenAPI document says what is served: routes, fields, rights, and the shapes of errors."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from ollama_gate.access.keys import Right
from ollama_gate.dialects import anthropic, responses
from ollama_gate.endpoints import lookup, own
from ollama_gate.endpoints.openapi import document
from ollama_gate.routes import LANES, right_for
from support.cases import front

DOCUMENT = document("1.2.3")
PATHS: dict[str, dict[str, Any]] = DOCUMENT["paths"]
COUNTERS = {anthropic.COUNT_PATH: anthropic.FIELDS, responses.COUNT_PATH: responses.FIELDS}


def test_every_route_of_the_gates_own_and_every_guarded_one_is_in_it_and_no_other() -> None:
    methods = {path: {method.lower()} for path, (method, _) in own.ENDPOINTS.items()} | {
        "/gate/archive/{hash}": {"get"}
    }
    assert {path: set(operations) for path, operations in PATHS.items()} == {
        **methods,
        **{path: {"post"} for path in LANES},
        **{path: {"post"} for path in COUNTERS},
    }


@pytest.mark.parametrize("path", [path for path, lane in LANES.items() if not lane.form] + list(COUNTERS))
def test_the_fields_of_a_route_are_those_that_the_gate_folds(path: str) -> None:
    fields = COUNTERS.get(path) or LANES[path].fields
    schema = PATHS[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {name for name in fields if not name.startswith("_")}


def test_a_search_of_the_archive_takes_the_parameters_that_it_is_said_to_take() -> None:
    assert {one["name"] for one in PATHS["/gate/archive/search"]["get"]["parameters"]} == lookup.PARAMETERS


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for operations in PATHS.values() for operation in operations.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", PATHS)
def test_what_is_open_to_everybody_is_said_to_be(path: str) -> None:
    for method, operation in PATHS[path].items():
        right = right_for(method.upper(), path)
        assert (operation["security"] == []) is (right is Right.NOTHING)
        assert ("admin" in operation.get("description", "")) is (right > Right.USE)


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for operations in PATHS.values():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for body in bodies:
                for content in body.get("content", {}).values():
                    jsonschema.Draft202012Validator.check_schema(content["schema"])


def validator(path: str, status: int) -> jsonschema.Draft202012Validator:
    [operation] = PATHS[path].values()
    schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


@pytest.mark.parametrize("path", [path for path in PATHS if path in LANES or path in COUNTERS])
async def test_errors_have_the_shape_that_it_gives_them(path: str) -> None:
    async with front() as line:
        replies = [
            await line.ask(path, "{"),
            await line.ask(path, {"model": "nobody", "messages": [], "input": "x", "prompt": "x"}),
            await line.ask(path, "x", headers={"Content-Encoding": "nothing"}),
            await line.ask(path, b"x" * 100, headers={"Content-Length": str(10**9)}),
        ]
    for reply in replies:
        if reply.status != 200:
            validator(path, reply.status).validate(reply.json)
    assert {reply.status for reply in replies} >= {400, 413}


@pytest.mark.slow
async def test_it_is_served_and_counts_answer_as_it_says() -> None:
    async with front() as line:
        served = await line.ask("/gate/openapi.json", method="GET")
        count = await line.ask("/gate/count", {"model": "qwen2.5:0.5b", "prompt": "hi"})
        inputs = await line.ask("/gate/count", {"model": "all-minilm", "input": ["a", "b"]})
        health = await line.ask("/gate/health", method="GET")
    assert served.json["paths"].keys() == PATHS.keys()
    for path, reply in (("/gate/count", count), ("/gate/count", inputs), ("/gate/health", health)):
        assert reply.status == 200
        validator(path, 200).validate(reply.json)
