"""The gate against its own OpenAPI document: schemathesis makes requests, good and bad, and looks at the answers."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ollama_gate.endpoints.openapi import document
from support.background import front_in_a_thread

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
SCHEMA = schemathesis.openapi.from_dict(document("0"))
SCHEMA.config.phases.coverage.enabled = False
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def gate() -> Iterator[str]:
    with front_in_a_thread(log={"level": "error"}) as (url, _):
        yield url


@SCHEMA.parametrize()
@settings(
    max_examples=10,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_gate_keeps_its_word(case: "schemathesis.Case[Any]", gate: str) -> None:
    response = case.call(base_url=gate, timeout=20)
    assert response.status_code != 500 or b"internal_error" not in response.content
    case.validate_response(response, checks=CHECKS)
