"""The body that really goes to Ollama: the client's wishes, and what the gate decides for it.

`truncate` and `shift` keep Ollama from cutting anything, and one `num_ctx` and one `shift` on every request keep it
from loading the model again (`server/sched.go:needsReload`, Ollama v0.33). /api/embed carries no shift, /api/embeddings
neither shift nor truncate.
"""

from typing import Any

from ollama_gate.requests import LOAD_OPTIONS, InferenceRequest, Kind
from ollama_gate.values import frozen
from ollama_gate.window import Output, Window


@frozen
class Forced:
    """A native body ready to be serialised, and what was changed on the way."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """For the client, in a header."""
    reload_avoided: bool = False
    """The client's own options would have made Ollama load the model again."""


def force(request: InferenceRequest, window: Window | None, output: Output) -> Forced:
    """Put the forced fields into a request's body.

    Args:
        request: the client's request.
        window: the model's window; None for a model that is not pinned (cloud models).
        output: what becomes of the asked output length.
    """
    body = dict(request.body)
    embeds = request.kind is Kind.EMBED
    if not embeds:
        body["truncate"] = False
        body["shift"] = window.shift if window is not None else False
        if request.dialect != "native" or "stream" in body:
            body["stream"] = request.stream
    elif request.path == "/api/embed":
        body["truncate"] = False
    notes = list(request.notes)
    if window is None:
        return Forced(body, tuple(notes))
    options: dict[str, Any] = {}
    dropped: list[str] = []
    for name, value in (request.body.get("options") or {}).items():
        if name in LOAD_OPTIONS:
            if value is not None:
                dropped.append(name)
        else:
            options[name] = value
    avoided = bool(dropped)
    if request.asked_num_ctx is not None and request.asked_num_ctx != window.num_ctx:
        notes.append(f"num_ctx {request.asked_num_ctx} ignored: the window is {window.num_ctx}")
        avoided = True
    if dropped:
        notes.append(f"{', '.join(sorted(dropped))} ignored: set by the operator")
    shift = request.body.get("shift")
    if not embeds and shift is not None and shift != window.shift:
        avoided = True
    options["num_ctx"] = window.num_ctx
    options.update(window.load_options)
    if output.num_predict is not None:
        options["num_predict"] = output.num_predict
        if output.clamped:
            notes.append(f"asked output clamped to {output.num_predict}")
    body["options"] = options
    return Forced(body, tuple(notes), avoided)
