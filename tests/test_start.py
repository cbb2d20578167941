"""What a gate loads before it has met a model: start and memory are paid by those who have asked for nothing yet."""

import json
import subprocess
import sys

import pytest

ONLY_FOR_SOME = {
    "a model": ("jinja2", "tokenizers", "ollama_gate.counting.rendering.gotemplate"),
    "the archive": ("sqlalchemy", "alembic", "greenlet", "ollama_gate.archive"),
    "a person at a terminal": ("rich",),
    "other commands": ("ollama_gate.rehearsal",),
    "nobody": ("requests", "multiprocessing", "opentelemetry"),
}


def after_loading(expression: str) -> object:
    """The value of an expression in a process that has loaded what serves."""
    code = f"import json, sys; import ollama_gate.cli.serve; print(json.dumps({expression}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_what_only_some_need_is_not_loaded_at_the_start() -> None:
    unwanted = {name: whom for whom, names in ONLY_FOR_SOME.items() for name in names}
    loaded = after_loading("list(sys.modules)")
    assert isinstance(loaded, list)
    assert "ollama_gate.app" in loaded
    assert {name: whom for name, whom in unwanted.items() if name in loaded} == {}


@pytest.mark.slow
def test_tls_is_left_out_of_the_client_that_is_not_used_and_of_nothing_else() -> None:
    modules = ("aiohttp.connector", "asyncio.sslproto", "http.client", "ollama_gate.upstream.client")
    has_tls = "[getattr(sys.modules[name], 'ssl', None) is not None for name in {}]"
    assert after_loading(has_tls.format(modules)) == [False, True, True, True]


@pytest.mark.slow
def test_cycles_are_looked_for_once_all_is_loaded_and_not_among_that() -> None:
    found = after_loading(
        "(lambda gc: [gc.isenabled(), sum(one['collections'] for one in gc.get_stats()[1:]), gc.get_freeze_count()])"
        "(__import__('gc'))"
    )
    assert isinstance(found, list)
    enabled, looked, frozen = found
    assert enabled is True
    assert looked <= 6  # what begins Python and finds this command is loaded as ever
    assert frozen > 50_000
