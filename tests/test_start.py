"""What a gate loads before it has met a model: start and memory are paid by those who have asked for nothing yet."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("module", ["jinja2", "tokenizers", "rich", "ollama_gate.counting.rendering.gotemplate"])
def test_what_only_a_model_needs_is_not_loaded_at_the_start(module: str) -> None:
    code = f"import sys; import ollama_gate.cli.serve; sys.exit({module!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr or f"{module} is loaded"
