"""What every test has: a log that can be looked at, and that is shown when the test fails."""

import io
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from ollama_gate.observe import log

# A busy machine is no reason for a test to fail, so nothing here depends on time. The examples are the same every time,
# so that a change is judged by what it changed; new ones are looked for with HYPOTHESIS_PROFILE=search.
settings.register_profile("whole", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("check", settings.get_profile("whole"), max_examples=8)
settings.register_profile("search", settings.get_profile("whole"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "whole"))


@pytest.fixture(autouse=True)
def written_log() -> Iterator[io.StringIO]:
    """The gate's log of this test, as JSON lines."""
    out = io.StringIO()
    log.configure("debug", "json", out)
    yield out
    print(out.getvalue())
