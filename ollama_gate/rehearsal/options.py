"""The `options` of a request: types, defaults and which of them reload a model (`api/types.go:Options`, v0.33)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ollama_gate.rehearsal.errors import StatusError

_INTEGERS = {
    "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict",
    "num_keep", "num_predict", "seed", "top_k", "repeat_last_n",
}  # fmt: skip
_FLOATS = {
    "temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What the rehearsal acts upon; sampling options are checked and otherwise ignored."""

    num_ctx: int = 4096
    num_ctx_automatic: bool = True
    """Nobody asked for this num_ctx: neither the request nor the Modelfile."""
    num_batch: int = 512
    num_batch_automatic: bool = True
    num_gpu: int = -1
    main_gpu: int | None = None
    use_mmap: bool | None = None
    num_thread: int = 0
    draft_num_predict: int = 0
    num_keep: int = 4
    num_predict: int = -1
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] | None = None
    """`rehearsal_*` options: Ollama would ignore them with a warning, the rehearsal obeys."""

    def launch(self) -> tuple[Any, ...]:
        """The options a runner is started with; a difference is a reload (`server/sched.go:needsReload`)."""
        return (
            self.num_ctx, self.num_batch, self.main_gpu, self.use_mmap, self.num_thread, self.draft_num_predict,
        )  # fmt: skip


def resolve(defaults: Options, modelfile: Mapping[str, Any], asked: Mapping[str, Any]) -> Options:
    """Built-in defaults, then Modelfile parameters, then the request's options.

    Raises:
        StatusError: 500 for a value of the wrong type.
    """
    return _apply(_apply(defaults, modelfile), asked)


def _apply(base: Options, asked: Mapping[str, Any]) -> Options:
    changes: dict[str, Any] = {}
    extra = dict(base.extra or {})
    for name, value in asked.items():
        if name.startswith("rehearsal_"):
            extra[name] = value
        if value is None:
            continue
        if name in _INTEGERS:
            changes[name] = _integer(name, value)
        elif name in _FLOATS:
            _number(name, value)
        elif name == "use_mmap":
            changes[name] = _boolean(name, value)
        elif name == "stop":
            changes[name] = _strings(name, value)
    for name in ("num_ctx", "num_batch"):
        if name in asked:  # null counts as asked for, although it sets nothing
            changes[f"{name}_automatic"] = False
    known = {name: value for name, value in changes.items() if name in Options.__dataclass_fields__}
    return replace(base, **known, extra=extra)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StatusError(500, f'option "{name}" must be of type float32')
    return float(value)


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StatusError(500, f'option "{name}" must be of type integer')
    return int(value)


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise StatusError(500, f'option "{name}" must be of type boolean')
    return value


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise StatusError(500, f'option "{name}" must be of type array')
    if not all(isinstance(item, str) for item in value):
        raise StatusError(500, f'option "{name}" must be of an array of strings')
    return tuple(value)
