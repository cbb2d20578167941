"""/api/embed and /api/embeddings: their limits and deterministic vectors (`server/routes.go:EmbedHandler`, v0.33).

A vector is the sum of a fixed pseudo-random direction for each token, normalised: texts that share words are near.
"""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from ollama_gate.rehearsal import errors, gojson
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.models import Model
from ollama_gate.rehearsal.options import Options
from ollama_gate.rehearsal.runner import Runner
from ollama_gate.rehearsal.service import Call

Vector = Sequence[float]


async def embed(call: Call, form: Mapping[str, Any]) -> bytes:
    """The body of an /api/embed answer.

    Raises:
        StatusError: for what Ollama refuses.
    """
    started = time.monotonic_ns()
    inputs = _inputs(form.get("input"))
    model, options = _model(call, form)
    async with _runner(call, model, options, form) as runner:
        loaded = time.monotonic_ns() - started
        vectors: list[bytes] = []
        tokens = 0
        if inputs and not model.embeds:
            raise StatusError(501, errors.NO_EMBEDDINGS)
        for text in inputs:
            ids = _fit(call, model, runner, options, text, truncate=form.get("truncate") is not False)
            tokens += len(ids)
            vectors.append(_float32s(_dimensions(_vector(ids, model.width), form.get("dimensions") or 0)))
        call.entry.prompt_tokens = tokens
        if call.fault("nan", form["model"]):
            raise StatusError(400, errors.NOT_FINITE)
    answer: dict[str, Any] = {"model": form["model"], "embeddings": [orjson.Fragment(v) for v in vectors]}
    if inputs:
        answer |= {
            "total_duration": time.monotonic_ns() - started,
            "load_duration": loaded,
            "prompt_eval_count": tokens,
        }
    return gojson.write(answer)


async def embeddings(call: Call, form: Mapping[str, Any]) -> bytes:
    """The body of an /api/embeddings answer: one vector, no counts, and nothing is ever cut.

    Raises:
        StatusError: for what Ollama refuses; 500 for a prompt that is too long.
    """
    model, options = _model(call, form)
    async with _runner(call, model, options, form) as runner:
        prompt = form.get("prompt") or ""
        if not prompt:
            return gojson.write({"embedding": []})
        if not model.embeds:
            raise StatusError(501, errors.NO_EMBEDDINGS)
        ids = model.vocabulary.encode(prompt, special=True)
        call.entry.prompt_tokens = len(ids)
        if len(ids) > min(runner.num_ctx, runner.batch):
            raise StatusError(500, errors.INPUT_TOO_LONG)
        if call.fault("nan", form["model"]):
            raise StatusError(500, errors.NOT_FINITE)
        return gojson.write({"embedding": list(_vector(ids, model.width))})


def _inputs(given: Any) -> list[str]:
    if given is None or given == "":
        return []
    inputs = [given] if isinstance(given, str) else given
    if not isinstance(inputs, list) or not all(isinstance(text, str) for text in inputs):
        raise StatusError(400, "invalid input type")
    return inputs


def _model(call: Call, form: Mapping[str, Any]) -> tuple[Model, Options]:
    name = form.get("model") or ""
    model = call.service.find(name)
    if model is None:
        raise StatusError(404, f'model "{name}" not found, try pulling it first')
    return model, call.service.options(model, form.get("options") or {})


def _runner(call: Call, model: Model, options: Options, form: Mapping[str, Any]) -> Any:
    if call.fault("busy", form["model"]):
        raise StatusError(503, errors.BUSY)
    return call.service.scheduler.use(model, options, shift=None, keep_alive=form.get("keep_alive"), entry=call.entry)


def _fit(call: Call, model: Model, runner: Runner, options: Options, text: str, *, truncate: bool) -> list[int]:
    """The tokens of one input, specials included, cut where that is allowed and needed."""
    vocabulary = model.vocabulary
    around = sum(vocabulary.specials)
    ids = vocabulary.encode(text)
    window = min(options.num_ctx, model.context_length) if options.num_ctx > 0 else model.context_length
    # Ollama takes two off whatever the vocabulary adds: it asks for keys that no file has.
    limit = window - 2
    if len(ids) > limit:
        if not truncate:
            raise StatusError(400, errors.INPUT_TOO_LONG)
        if limit <= 0:
            raise StatusError(400, "input after truncation exceeds maximum context length")
        call.note(f"embed: {len(ids)} tokens cut to {limit}")
        ids = ids[:limit]
    if len(ids) + around > runner.batch:
        if not truncate:
            raise StatusError(400, errors.INPUT_TOO_LONG)
        call.note(f"embed: {len(ids)} tokens cut to {runner.batch - around}")
        ids = ids[: runner.batch - around]
    before, after = vocabulary.specials
    wrapped = vocabulary.encode("", special=True)
    return [*wrapped[:before], *ids, *wrapped[len(wrapped) - after :]]


def _vector(ids: Sequence[int], width: int) -> Vector:
    total = [0.0] * width
    for token in ids:
        total = [a + b for a, b in zip(total, _direction(token, width), strict=True)]
    return _normalised(total)


@lru_cache(maxsize=10_000)
def _direction(token: int, width: int) -> Vector:
    digest = hashlib.shake_128(token.to_bytes(4, "little")).digest(2 * width)
    numbers = [int.from_bytes(digest[at : at + 2], "little") / 32768 - 1 for at in range(0, 2 * width, 2)]
    return _normalised(numbers)


def _dimensions(vector: Vector, dimensions: int) -> Vector:
    return _normalised(vector[:dimensions]) if 0 < dimensions < len(vector) else vector


def _normalised(vector: Vector) -> Vector:
    length = math.sqrt(sum(number * number for number in vector)) or 1.0
    return [number / length for number in vector]


def _float32s(vector: Vector) -> bytes:
    return b"[" + b",".join(map(gojson.float32, vector)) + b"]"
