"""POST /v1/completions, as `openai/openai.go:FromCompleteRequest` and `middleware/openai.go:CompleteWriter` have it.

It becomes /api/generate with the chat template applied (Ollama v0.33 does not make it raw). Where the gate does more: a
list of one text is unwrapped, other lists are refused in words, errors in mid-stream are told.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from ollama_gate.dialects.go_fields import Place, bad_request, flag, integer, kind, number, text, type_name
from ollama_gate.dialects.go_json import go_json
from ollama_gate.dialects.openai_stream import FINGERPRINT, StreamWriter, usage_object, wants_usage
from ollama_gate.dialects.translation import (
    KEEP_ALIVE_HEADER,
    NOTE_ONE_CHOICE,
    ServerTools,
    Stamp,
    failure_of,
    inference_request,
    note_elsewhere,
    note_left_out,
    note_without_prompt,
    text_of,
    usage_of,
)
from ollama_gate.requests import AnswerFacts, InferenceRequest, Json, Kind
from ollama_gate.wire import sse

FIELDS: Final = frozenset(
    {
        "model",
        "prompt",
        "frequency_penalty",
        "max_tokens",
        "presence_penalty",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "suffix",
        "logprobs",
        "n",
        "_debug_render_only",
    }
)
_LEFT_OUT: Final = frozenset({"best_of", "echo", "logit_bias", "options", "top_k", "min_p", "repeat_penalty"})
_ELSEWHERE: Final = {
    "max_completion_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "keep_alive": f"the header {KEEP_ALIVE_HEADER}",
}
_REQUEST: Final = Place("CompletionRequest")


def parse(body: Json, headers: Mapping[str, str], server_tools: ServerTools = "drop") -> InferenceRequest:
    """Read a completion request.

    Args:
        body: the decoded body, odd-cased keys folded to `FIELDS`.
        headers: looked up by lower-case names.
        server_tools: without meaning here.

    Raises:
        Refused: 400 with Ollama's own text, or in plain words for a list of prompts or of token ids.
    """
    del server_tools
    prompt = _prompt(body)
    asked = integer(body, "max_tokens", _REQUEST)
    native: dict[str, Any] = {
        "model": text(body, "model", _REQUEST),
        "prompt": prompt,
        "stream": flag(body, "stream", _REQUEST),
        "options": _options(body, asked),
    }
    wants_usage(body, _REQUEST)
    suffix = text(body, "suffix", _REQUEST)
    if suffix:
        native["suffix"] = suffix
    logprobs = integer(body, "logprobs", _REQUEST) or 0
    if logprobs > 0:
        native["logprobs"] = True
        native["top_logprobs"] = logprobs
    if flag(body, "_debug_render_only", _REQUEST):
        native["_debug_render_only"] = True
    notes = [] if body.get("n") in (None, 1) else [NOTE_ONE_CHOICE]
    note_left_out(body, _LEFT_OUT, notes)
    note_elsewhere(body, _ELSEWHERE, notes)
    if not prompt:
        note_without_prompt(native, notes)
    return inference_request(
        Kind.GENERATE, "openai", body, headers, native, asked_output=asked, notes=notes, empty=not prompt
    )


def _prompt(body: Json) -> str:
    prompt = body.get("prompt")
    if prompt is None or isinstance(prompt, str):
        written = text(body, "prompt", _REQUEST)
        if not written and (body.get("messages") or body.get("input")):
            raise bad_request(
                "prompt is missing: messages are taken by /v1/chat/completions, input by /v1/responses", "prompt"
            )
        return written
    if not isinstance(prompt, list):
        raise bad_request(f"prompt must be a text, and is of type {kind(prompt)}", "prompt")
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    if prompt and all(isinstance(each, str) for each in prompt):
        raise bad_request(
            f"prompt holds {len(prompt)} texts, and one request can complete only one: send a request for each",
            "prompt",
        )
    if not prompt:
        raise bad_request("prompt is an empty list: send one text", "prompt")
    ids = chain.from_iterable(each if isinstance(each, list) else [each] for each in prompt)
    if any(kind(each) != "number" for each in ids):
        raise bad_request("prompt must be a text, or a list of one text", "prompt")
    raise bad_request(
        "prompt must be a text: token ids are not taken, because only the vocabulary that made them can read them",
        "prompt",
    )


def _options(body: Json, asked: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    stop = body.get("stop")
    if isinstance(stop, str):
        options["stop"] = [stop]
    elif isinstance(stop, list):
        for each in stop:
            if not isinstance(each, str):
                raise bad_request(f"invalid type for 'stop' field: {type_name(each)}")
        options["stop"] = stop
    if asked is not None:
        options["num_predict"] = asked
    temperature = number(body, "temperature", _REQUEST, single=True)
    options["temperature"] = 1.0 if temperature is None else temperature
    seed = integer(body, "seed", _REQUEST)
    if seed is not None:
        options["seed"] = seed
    for name in ("frequency_penalty", "presence_penalty"):
        options[name] = number(body, name, _REQUEST, single=True) or 0
    options["top_p"] = number(body, "top_p", _REQUEST, single=True) or 1.0
    return options


class CompletionWriter(StreamWriter):
    """Native generate answers to OpenAI's text completions, whole or in chunks."""

    def __init__(
        self, request: InferenceRequest, stamp: Stamp, facts: AnswerFacts, *, include_usage: bool = False
    ) -> None:
        """Write the answer to `request`."""
        super().__init__()
        self._facts = facts
        self._include_usage = include_usage
        self._identity = {"id": f"cmpl-{stamp.id}", "object": "text_completion", "created": stamp.created}
        self._tail = {"model": request.model, "system_fingerprint": FINGERPRINT}
        # What does not change from token to token is serialised once.
        self._before_choices = b"data: " + go_json(self._identity)[:-1] + b',"choices":['
        self._before_text = self._before_choices + b'{"text":'
        self._after_choices = b"]," + go_json(self._tail)[1:-1]
        # With usage asked for, Ollama puts a usage of zeros into every chunk but the last.
        zeros = b',"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}' if include_usage else b""
        self._after_chunk = self._after_choices + zeros + b"}\n\n"
        self._after_text = b',"index":0,"finish_reason":null}' + self._after_chunk

    def feed(self, chunk: Mapping[str, Any]) -> bytes:
        """The chunk for one native chunk; with the last one comes the end mark."""
        if self._over:
            return b""
        failure = failure_of(chunk)
        if failure is not None:
            return self.error(500, failure)
        written = text_of(chunk, "response")
        reason = text_of(chunk, "done_reason")
        if reason:
            finish = b',"index":0,"finish_reason":' + go_json(reason) + b"}"
            sent = self._before_text + go_json(written) + finish + self._after_chunk
        else:
            sent = self._before_text + go_json(written) + self._after_text
        return sent + self._ending(chunk) if chunk.get("done") is True else sent

    def _ending(self, chunk: Mapping[str, Any]) -> bytes:
        self._over = True
        if not self._include_usage:
            return sse.DONE
        usage = go_json(usage_object(usage_of(chunk, self._facts)))
        return self._before_choices + self._after_choices + b',"usage":' + usage + b"}\n\n" + sse.DONE

    def whole(self, answer: Mapping[str, Any]) -> bytes:
        """One text completion."""
        choice = {
            "text": text_of(answer, "response"),
            "index": 0,
            "finish_reason": text_of(answer, "done_reason") or None,
        }
        completion = {
            **self._identity,
            **self._tail,
            "choices": [choice],
            "usage": usage_object(usage_of(answer, self._facts)),
        }
        return go_json(completion) + b"\n"


def writer(request: InferenceRequest, body: Json, stamp: Stamp, facts: AnswerFacts) -> CompletionWriter:
    """The writer of the answer to a completion request that was parsed from `body`."""
    return CompletionWriter(request, stamp, facts, include_usage=wants_usage(body, _REQUEST))
