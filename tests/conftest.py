"""What every test has: a log that can be looked at, and that is shown when the test fails."""

import io
from collections.abc import Iterator

import pytest

from ollama_gate.observe import log


@pytest.fixture(autouse=True)
def written_log() -> Iterator[io.StringIO]:
    """The gate's log of this test, as JSON lines."""
    out = io.StringIO()
    log.configure("debug", "json", out)
    yield out
    print(out.getvalue())
