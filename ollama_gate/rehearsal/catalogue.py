"""The models that a rehearsal has installed when nobody says otherwise, and reading others from JSON."""

from dataclasses import fields, replace
from typing import Any

import orjson
from pydantic import TypeAdapter

from ollama_gate.rehearsal.models import Mode, Model, full_name

_MODEL = TypeAdapter(Model)

_CHAT_STOP = ("<|im_start|>", "<|im_end|>")

MODELS = (
    Model("rehearsal:latest", capabilities=("completion", "tools")),
    Model(
        "rehearsal-go:latest",
        mode=Mode.GO,
        text="go-chatml",
        blob="rehearsal-go",
        parameters={"stop": list(_CHAT_STOP)},
    ),
    Model(
        "rehearsal-go-system:latest",
        mode=Mode.GO,
        text="go-chatml",
        blob="rehearsal-go",
        system="You are in a rehearsal. Be brief.",
        messages=({"role": "user", "content": "Are you ready?"}, {"role": "assistant", "content": "Ready."}),
        parameters={"num_predict": 24, "temperature": 0.5},
    ),
    Model("rehearsal-tools:latest", mode=Mode.GO, text="go-tools", capabilities=("completion", "tools")),
    Model(
        "rehearsal-renderer:latest",
        mode=Mode.RENDERER,
        text="renderer",
        renderer="rehearsal",
        parser="rehearsal",
        capabilities=("completion", "tools"),
    ),
    Model("rehearsal-thinking:latest", text="chatml-thinking", capabilities=("completion", "tools", "thinking")),
    Model(
        "rehearsal-thinking-go:latest",
        mode=Mode.GO,
        text="go-thinking",
        capabilities=("completion", "thinking"),
    ),
    Model("rehearsal-strict:latest", text="alternating"),
    Model("rehearsal-small:latest", mode=Mode.GO, text="go-chatml", parameters={"num_ctx": 256}),
    Model("rehearsal-bos:latest", mode=Mode.GO, text="go-chatml", add_bos=True),
    Model("rehearsal-fim:latest", mode=Mode.GO, text="go-fim", capabilities=("completion", "insert")),
    Model("rehearsal-vision:latest", capabilities=("completion", "vision"), projector=True),
    Model("rehearsal-deepseek2:latest", family="deepseek2", shift=False),
    Model(
        "rehearsal-shared-jinja:latest",
        text="chatml-thinking",
        blob="rehearsal-shared",
        capabilities=("completion", "tools", "thinking"),
    ),
    Model("rehearsal-shared-go:latest", mode=Mode.GO, text="go-chatml", blob="rehearsal-shared"),
    Model(
        "rehearsal-embed:latest",
        mode=Mode.EMBEDDING,
        text="none",
        capabilities=("embedding",),
        context_length=512,
        size=1_000_000,
    ),
)
"""Each name begins with `rehearsal`, so that every answer says what it comes from."""


def from_json(text: bytes) -> tuple[Model, ...]:
    """Models from the JSON text of a list; each object has the fields of `Model`, and a name at least.

    Raises:
        ValueError: it is no such list.
    """
    described = orjson.loads(text)
    if not isinstance(described, list):
        raise ValueError("want a list of models")  # noqa: TRY004  of the text, not of an argument
    return tuple(_model(one) for one in described)


def _model(described: Any) -> Model:
    known = {field.name for field in fields(Model)}
    if not isinstance(described, dict) or "name" not in described:
        raise ValueError("a model is an object with a name at least")
    if unknown := described.keys() - known:
        raise ValueError(f"no field {min(unknown)!r} of a model; there are {', '.join(sorted(known))}")
    model = _MODEL.validate_python(described)
    return replace(model, name=full_name(model.name))
