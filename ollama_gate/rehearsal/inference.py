"""/api/chat and /api/generate (`server/routes.go:ChatHandler, GenerateHandler`, v0.33), up to the native answers.

Both are generators of answer objects. `Whole` is one that is never streamed; the others are stream chunks, which
`merged` joins for those who do not want a stream.
"""

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from ollama_gate.rehearsal import errors, gojson, rendering
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.generation import Delta, Done, Task, generate
from ollama_gate.rehearsal.models import Model
from ollama_gate.rehearsal.options import Options
from ollama_gate.rehearsal.prompting import Prompter, conversation
from ollama_gate.rehearsal.rendering import Think
from ollama_gate.rehearsal.runner import Runner
from ollama_gate.rehearsal.service import Call, stamp
from ollama_gate.rehearsal.speech import Heard, compose
from ollama_gate.rehearsal.window import bounded_num_predict

Form = Mapping[str, Any]
Answer = dict[str, Any]


class Whole(Answer):
    """An answer that is one JSON object whether or not a stream was asked for."""


async def chat(call: Call, form: Form) -> AsyncGenerator[Answer]:
    """Answers of /api/chat.

    Raises:
        StatusError: at any point; before the first answer it decides the status.
    """
    name = form.get("model") or ""
    if not name:
        raise StatusError(400, "model is required")
    model = call.service.find_or_404(name)
    _check(form)
    messages = form.get("messages") or []
    empty = {"role": "assistant", "content": ""}
    if not messages and form.get("keep_alive") == 0:
        call.service.scheduler.unload(model)
        yield Whole(_head(name), message=empty, done=True, done_reason="unload")
        return
    if form.get("relax_thinking") and "thinking" not in model.capabilities:
        form = {**form, "think": None}
    _capable(model, name, "chat", tools=bool(form.get("tools")), think=form.get("think"))
    options = call.service.options(model, form.get("options") or {})
    started = time.monotonic_ns()
    async with _runner(call, model, options, form) as runner:
        loaded = time.monotonic_ns() - started
        if not messages:
            yield Whole(_head(name), message=empty, done=True, done_reason="load")
            return
        said = conversation(model, messages)
        think = _think(model, form)
        prompter = Prompter(call, model, runner, options, form.get("truncate") is not False)
        text = prompter.chat(said, form.get("tools") or (), think)
        images = sum(len(message.get("images") or ()) for message in said)
        if form.get("_debug_render_only"):
            yield Whole(_head(name), message={"role": "", "content": ""}, done=False, _debug_info=_debug(text, images))
            return
        _answerable(model, form, images)
        ids = prompter.tokens(text, images=images, native_route=prompter.native)
        last = said[-1]
        heard = Heard(
            ids,
            last["content"] if last["role"] == "user" else "",
            form.get("tools") or (),
            bool(think),
            form.get("format") or None,
            all(message["role"] != "assistant" for message in said),
            _asked_tokens(options),
        )
        task = _task(call, model, options, heard, images, native=prompter.native)
        async with aclosing(generate(runner, task, call.entry, call.service.journal)) as spoken:
            async for piece in _survive(call, runner, spoken):
                if isinstance(piece, Done):
                    yield _head(name) | {"message": empty} | _end(piece, started, loaded)
                    return
                message: Answer = {"role": "assistant", "content": piece.content}
                if piece.thinking:
                    message["thinking"] = piece.thinking
                if piece.calls:
                    message["tool_calls"] = _calls(call, piece.calls)
                answer = _head(name) | {"message": message, "done": False}
                yield answer | _logprobs(form, piece)


async def complete(call: Call, form: Form) -> AsyncGenerator[Answer]:
    """Answers of /api/generate.

    Raises:
        StatusError: at any point; before the first answer it decides the status.
    """
    name = form.get("model") or ""
    if not name:
        raise StatusError(404, "model '' not found")
    model = call.service.find_or_404(name)
    _check(form)
    prompt = form.get("prompt") or ""
    if not prompt and form.get("keep_alive") == 0:
        call.service.scheduler.unload(model)
        yield Whole(_head(name), response="", done=True, done_reason="unload")
        return
    if form.get("raw") and any(form.get(key) for key in ("template", "system", "context")):
        raise StatusError(400, "raw mode does not support template, system, or context")
    _capable(model, name, "generate", insert=bool(form.get("suffix")), think=form.get("think"))
    options = call.service.options(model, form.get("options") or {})
    started = time.monotonic_ns()
    async with _runner(call, model, options, form) as runner:
        loaded = time.monotonic_ns() - started
        if not prompt:
            yield Whole(_head(name), response="", done=True, done_reason="load")
            return
        think = None if form.get("raw") else _think(model, form)
        prompter = Prompter(call, model, runner, options, form.get("truncate") is not False)
        text = _generate_text(prompter, model, form, think)
        images = len(form.get("images") or ())
        if form.get("_debug_render_only"):
            yield Whole(_head(name), response="", done=False, _debug_info=_debug(text, images))
            return
        _answerable(model, form, images)
        ids = prompter.tokens(text, images=images, native_route=False)
        heard = Heard(ids, prompt, (), bool(think), form.get("format") or None, tokens=_asked_tokens(options))
        task = _task(call, model, options, heard, images, native=False)
        written = ""
        async with aclosing(generate(runner, task, call.entry, call.service.journal)) as spoken:
            async for piece in _survive(call, runner, spoken):
                if isinstance(piece, Done):
                    end = _end(piece, started, loaded)
                    reason = {key: end.pop(key) for key in ("done", "done_reason")}
                    context = {} if form.get("raw") else {"context": model.vocabulary.encode(text + written)}
                    yield _head(name) | {"response": ""} | reason | context | end
                    return
                written += piece.content
                answer = _head(name) | {"response": piece.content}
                if piece.thinking:
                    answer["thinking"] = piece.thinking
                yield answer | {"done": False} | _logprobs(form, piece)


def merged(answers: Sequence[Answer]) -> Answer:
    """The one object that a request with `stream: false` gets."""
    out = dict(answers[-1])
    logprobs = [entry for answer in answers for entry in answer.get("logprobs", ())]
    if "message" in out:
        messages = [answer["message"] for answer in answers]
        message: Answer = {"role": "assistant", "content": "".join(m["content"] for m in messages)}
        if thinking := "".join(m.get("thinking", "") for m in messages):
            message["thinking"] = thinking
        if calls := [one for m in messages for one in m.get("tool_calls", ())]:
            message["tool_calls"] = calls
        out["message"] = message
        metrics = [key for key in out if key.endswith(("_duration", "_count"))]
        tail = {key: out.pop(key) for key in metrics}
        return out | ({"logprobs": logprobs} if logprobs else {}) | tail
    out["response"] = "".join(answer["response"] for answer in answers)
    if thinking := "".join(answer.get("thinking", "") for answer in answers):
        rest = {key: out.pop(key) for key in tuple(out) if key not in {"model", "created_at", "response"}}
        out |= {"thinking": thinking} | rest
    return out | ({"logprobs": logprobs} if logprobs else {})


def _runner(call: Call, model: Model, options: Options, form: Form) -> Any:
    if call.fault("busy", form.get("model") or ""):
        raise StatusError(503, errors.BUSY)
    return call.service.scheduler.use(
        model,
        options,
        shift=form.get("shift"),
        keep_alive=form.get("keep_alive"),
        entry=call.entry,
    )


async def _survive(call: Call, runner: Runner, spoken: AsyncIterator[Delta | Done]) -> AsyncGenerator[Delta | Done]:
    """Pass on what is spoken; when the runner dies, it is loaded no more."""
    try:
        async for piece in spoken:
            yield piece
    except StatusError as wrong:
        if wrong.message == errors.RUNNER_DIED:
            call.service.scheduler.die(runner)
        raise


def _check(form: Form) -> None:
    if not 0 <= (form.get("top_logprobs") or 0) <= 20:
        raise StatusError(400, "top_logprobs must be between 0 and 20")


def _capable(
    model: Model, name: str, what: str, *, tools: bool = False, insert: bool = False, think: Think = None
) -> None:
    if "completion" not in model.capabilities:
        raise StatusError(400, f'"{name}" does not support {what}')
    for needed, capability in ((tools, "tools"), (insert, "insert")):
        if needed and capability not in model.capabilities:
            raise StatusError(400, f"registry.ollama.ai/library/{model.name} does not support {capability}")
    if think and "thinking" not in model.capabilities:
        raise StatusError(400, f'"{name}" does not support thinking')


def _think(model: Model, form: Form) -> Think:
    """On when nobody says, on a model that can."""
    think = form.get("think")
    return True if think is None and "thinking" in model.capabilities else think


def _answerable(model: Model, form: Form, images: int) -> None:
    wanted = form.get("format")
    if wanted is not None and wanted not in ("", "json") and not isinstance(wanted, Mapping):
        shown = gojson.write(wanted).decode().replace("\\", "\\\\").replace('"', '\\"')
        raise StatusError(
            500, f'invalid format: "{shown}"; expected "json" or a valid JSON Schema object', of_runner=True
        )
    if images and "vision" not in model.capabilities:
        raise errors.llama_server(400, *errors.NO_IMAGES)


def _generate_text(prompter: Prompter, model: Model, form: Form, think: Think) -> str:
    prompt: str = form["prompt"]
    if form.get("raw"):
        return prompt
    if form.get("suffix"):
        return rendering.fill_in_the_middle(prompt, form["suffix"])
    before = model.vocabulary.decode(form.get("context") or [])
    if form.get("template"):
        return before + rendering.override(form["template"], prompt, form.get("system") or model.system)
    messages: list[Mapping[str, Any]] = [] if form.get("context") else list(model.messages)
    if system := form.get("system") or model.system:
        messages.insert(0, {"role": "system", "content": system})
    messages.append({"role": "user", "content": prompt, "images": form.get("images") or ()})
    return before + prompter.chat(messages, (), think)


def _asked_tokens(options: Options) -> int | None:
    asked = (options.extra or {}).get("rehearsal_tokens")
    return None if asked is None else int(asked)


def _task(call: Call, model: Model, options: Options, heard: Heard, images: int, *, native: bool) -> Task:
    asked = options.num_predict
    # 0 is left out on the way to /completion, where that means no limit; the chat route sends it and gets one token.
    limit = (1 if native else -1) if asked == 0 else bounded_num_predict(asked, options.num_ctx)
    dies, ends, long_line = (call.fault(kind, model.name) for kind in ("dies", "no_done", "long_line"))
    extra = options.extra or {}
    settings = call.service.settings
    return Task(
        heard.prompt,
        compose(heard, model.vocabulary),
        limit,
        options.num_keep,
        options.stop,
        repeat_guard=not native,
        rate=float(extra.get("rehearsal_rate", settings.rate)),
        prompt_rate=float(extra.get("rehearsal_prompt_rate", settings.prompt_rate)),
        dies_after=dies.after if dies else None,
        ends_after=ends.after if ends else None,
        long_line=(long_line.after, long_line.bytes) if long_line else None,
        image_tokens=images * model.image_tokens,
    )


def _head(name: str) -> Answer:
    return {"model": name, "created_at": stamp()}


def _debug(text: str, images: int) -> Answer:
    return {"rendered_template": text} | ({"image_count": images} if images else {})


def _end(done: Done, started: int, loaded: int) -> Answer:
    counts = {
        "total_duration": time.monotonic_ns() - started,
        "load_duration": loaded,
        "prompt_eval_count": done.prompt_eval_count,
        "prompt_eval_duration": done.prompt_eval_duration,
        "eval_count": done.eval_count,
        "eval_duration": done.eval_duration,
    }
    return {"done": True, "done_reason": done.reason} | {key: value for key, value in counts.items() if value}


def _calls(call: Call, calls: Sequence[Mapping[str, Any]]) -> list[Answer]:
    out = []
    for at, one in enumerate(calls):
        known = hashlib.sha256(f"{call.entry.number} {at} {one}".encode()).hexdigest()[:8]
        function = {"index": at, "name": one["name"], "arguments": one["arguments"]}
        out.append({"id": f"call_{known}", "function": function})
    return out


def _logprobs(form: Form, piece: Delta) -> Answer:
    if not form.get("logprobs"):
        return {}
    text = piece.content or piece.thinking
    entry: Answer = {"token": text, "logprob": -0.25, "bytes": list(text.encode())}
    top = [dict(entry) for _ in range(min(form.get("top_logprobs") or 0, 1))]
    return {"logprobs": [entry | ({"top_logprobs": top} if top else {})]}
