"""The body that really goes to Ollama: the client's wishes, and what the gate decides for it.

`truncate` and `shift` keep Ollama from cutting anything, and one `num_ctx` and one `shift` on every request keep it
from loading the model again (`server/sched.go:needsReload`, Ollama v0.33). /api/embed carries no shift, /api/embeddings
neither shift nor truncate.
"""

from collections.abc import Iterator
from typing import Any

from ollama_gate.requests import LOAD_OPTIONS, InferenceRequest, Kind
from ollama_gate.values import frozen
from ollama_gate.window import Output, Window

_EMBED = Kind.EMBED  # an enum's members are slow to get (Python 3.11)


@frozen
class Forced:
    """A native body ready to be serialised."""

    body: dict[str, Any]
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
    embeds = request.kind is _EMBED
    if not embeds:
        body["truncate"] = False
        body["shift"] = window.shift if window is not None else False
        if request.dialect != "native" or "stream" in body:
            body["stream"] = request.stream
    elif request.path == "/api/embed":
        body["truncate"] = False
    if window is None:
        return Forced(body)
    options: dict[str, Any] = {}
    avoided = False
    for name, value in (request.body.get("options") or {}).items():
        if name == "num_ctx":
            avoided = avoided or (value is not None and int(value) != window.num_ctx)
        elif name not in LOAD_OPTIONS:
            options[name] = value
        elif value is not None:
            avoided = avoided or (name, value) not in window.load_options
    shift = request.body.get("shift")
    if not embeds and shift is not None and shift != window.shift:
        avoided = True
    options["num_ctx"] = window.num_ctx
    options.update(window.load_options)
    if output.num_predict is not None:
        options["num_predict"] = output.num_predict
    body["options"] = options
    return Forced(body, avoided)


def overruled(request: InferenceRequest, window: Window) -> Iterator[str]:
    """Notes of what a client asked for and does not get: its window and how the model is loaded are the operator's."""
    if (asked := request.asked_num_ctx) is not None and asked != window.num_ctx:
        yield f"num_ctx {asked} ignored: the window is {window.num_ctx}"
    if (options := request.body.get("options")) and not LOAD_OPTIONS.isdisjoint(options):
        here = dict(window.load_options)
        others: list[str] = []
        for name in sorted(options.keys() & LOAD_OPTIONS):
            if options[name] is None or options[name] == here.get(name):
                continue
            if name in here:
                yield f"{name} ignored: it is {str(here[name]).lower()} for this model"
            else:
                others.append(name)
        if others:
            yield f"{', '.join(others)} ignored: the model would have to be loaded again"
