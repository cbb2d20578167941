"""The `options` object of a native request and its types."""

from collections.abc import Mapping
from typing import Any, Final

from ollama_gate.dialects.go_fields import LARGEST_FLOAT32
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
_NUMBERS: Final = (int, float)


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
        number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
        if name in INTEGERS:
            if not number or not -_INT64 <= value < _INT64:
                raise _wrong(name, "integer")
        elif name in FLOATS:
            # One beyond float32 becomes infinite there, and infinity is no JSON: 500.
            if not number or not -LARGEST_FLOAT32 <= value <= LARGEST_FLOAT32:
                raise _wrong(name, "number")
        elif name in BOOLEANS:
            if not isinstance(value, bool):
                raise _wrong(name, "boolean")
        elif name == "stop" and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            raise _wrong(name, "list of strings")


def _wrong(name: str, kind: str) -> Refused:
    return Refused(Refusal(400, "invalid_request", f'option "{name}" must be of type {kind}', param=f"options.{name}"))


def bad_format() -> Refused:
    """The refusal of a form for the answer that Ollama answers with 500 (`llm/llama_server.go:Completion`, v0.33)."""
    what = 'format must be "json" or a JSON schema, an object'
    return Refused(Refusal(400, "invalid_request", what, param="format"))


def checked_schema(value: Any, param: str) -> Any:
    """A JSON schema for the answer, or None and an empty text, which Ollama takes for none.

    Raises:
        Refused: 400, it is no object.
    """
    if value is not None and value != "" and not isinstance(value, dict):
        raise Refused(Refusal(400, "invalid_request", f"{param} must be a JSON schema, an object", param=param))
    return value
