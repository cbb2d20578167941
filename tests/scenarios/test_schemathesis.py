"""The gate against its own OpenAPI document: schemathesis makes requests, good and bad, and looks at the answers."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ollama_gate.endpoints.openapi import document
from support.background import front_in_a_thread

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
SCHEMA = schemathesis.openapi.from_dict(document("0"))
READ = list(SCHEMA.get_all_operations())
OPERATIONS = {one.ok().label: one.ok() for one in READ if isinstance(one, Ok)}
"""Each is a test of its own id: those that schemathesis makes have one together, and pytest-xdist runs one of them."""
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def gate() -> Iterator[str]:
    with front_in_a_thread(log={"level": "error"}) as (url, _):
        yield url


def test_every_operation_of_the_document_can_be_read() -> None:
    assert len(OPERATIONS) == len(READ) > 20


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(
    max_examples=10,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_the_gate_keeps_its_word(gate: str, operation: str, data: st.DataObject) -> None:
    case = data.draw(st.one_of([OPERATIONS[operation].as_strategy(generation_mode=mode) for mode in GenerationMode]))
    response = case.call(base_url=gate, timeout=20)
    assert response.status_code != 500 or b"internal_error" not in response.content
    case.validate_response(response, checks=CHECKS)
