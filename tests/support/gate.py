"""A running gate for tests: on a port of its own, in front of whatever upstream the test has."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ollama_gate.app import Gate
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config
from ollama_gate.counting.learned import place
from support.waiting import until

CACHE = Path(tempfile.gettempdir()) / "ollama-gate-tests"
"""Tokenizers of all tests."""
NO_KEYS = CACHE / "no-keys" / "keys.json"
"""A file of keys that is never there."""


def config_for(upstream: str, /, **sections: Any) -> Config:
    """A configuration in front of `upstream`; sections are given as dicts, models under their short names."""
    counting = {"cache_dir": str(CACHE), **sections.pop("counting", {})}
    access = {"keys": str(NO_KEYS), **sections.pop("access", {})}
    server = {"listen": "127.0.0.1:0", "drain": 5.0, **sections.pop("server", {})}
    config = Config.model_validate(
        {
            "server": server,
            "access": access,
            "upstream": {"url": upstream, **sections.pop("upstream", {})},
            "counting": counting,
            **sections,
        }
    )
    named, wrong = config.for_models(canonical)
    assert not wrong, wrong
    return named


@asynccontextmanager
async def running_gate(upstream: str, /, **sections: Any) -> AsyncIterator[Gate]:
    """Start a gate, and stop it however the test ends."""
    config = config_for(upstream, **sections)
    if config.counting.cache_dir == CACHE:
        place(CACHE, config.upstream.url).unlink(missing_ok=True)  # the port was another test's
    gate = Gate(config)
    await gate.start()
    try:
        yield gate
    finally:
        await gate.stop(drain=1.0)


async def looked(gate: Gate) -> None:
    """Wait until every request is over, and Ollama has said what became of what was loaded for them."""
    gatekeeper = gate.wiring.admission.gatekeeper
    ledger = gatekeeper.scheduler.ledger
    await until(lambda: not (gatekeeper._looking or any(holding.users or holding.look_due for holding in ledger)))


def metric(gate: Gate, name: str, **labels: str) -> float:
    """The value of one metric, 0 where it was never touched; all that is over is in it."""
    gate.wiring.settler.catch_up()
    value = gate.metrics.registry.get_sample_value(f"ollama_gate_{name}", labels)
    return 0.0 if value is None else value
