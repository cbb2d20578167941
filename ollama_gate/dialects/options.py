"""The `options` object of a native request and its types."""

from collections.abc import Mapping
from typing import Any, Final

from ollama_gate.errors import Refusal, Refused

INTEGERS: Final = frozenset(
    {
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "draft_num_predict",
        "num_keep",
        "num_predict",
        "seed",
        "top_k",
        "repeat_last_n",
    }
)
FLOATS: Final = frozenset(
    {"temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty"}
)
BOOLEANS: Final = frozenset({"use_mmap"})

_INT64: Final = 2**63


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse an option of the wrong type, which Ollama would answer with 500 (`api/types.go:FromMap`, v0.33).

    null means "not set"; a number with a fraction is taken for an integer option and cut towards zero; unknown options
    are Ollama's business.

    Raises:
        Refused: 400, naming the option.
    """
    for name, value in options.items():
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in INTEGERS:
            if not number or not -_INT64 <= value < _INT64:
                raise _wrong(name, "integer")
        elif name in FLOATS:
            if not number:
                raise _wrong(name, "number")
        elif name in BOOLEANS:
            if not isinstance(value, bool):
                raise _wrong(name, "boolean")
        elif name == "stop" and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            raise _wrong(name, "list of strings")


def _wrong(name: str, kind: str) -> Refused:
    return Refused(Refusal(400, "invalid_request", f'option "{name}" must be of type {kind}', param=f"options.{name}"))
