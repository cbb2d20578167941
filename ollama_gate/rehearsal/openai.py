"""OpenAI's routes as Ollama has them (`openai/openai.go`, v0.33): chat, completions, embeddings, models."""

import base64
import struct as packing
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from ollama_gate.rehearsal import embedding, gojson, inference
from ollama_gate.rehearsal.compat import SSE, Dialect, Writer, options_of, route, texts
from ollama_gate.rehearsal.connection import Headers, Request
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.inference import Answer
from ollama_gate.rehearsal.models import full_name
from ollama_gate.rehearsal.routes import JSON, PLAIN_JSON, Form, Out, Route, read_form
from ollama_gate.rehearsal.service import Call
from ollama_gate.rehearsal.structs import Where, anything, boolean, flag, integer, list_of, string, struct

_TYPES = {400: "invalid_request_error", 404: "not_found_error"}
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "ultra", "max", "none")
_THINK = {"none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
_DEFAULTS = {"temperature": 1.0, "top_p": 1.0}


def _float(value: Any, old: Any, where: Where) -> Any:
    if value is None:
        return old
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise where.wrong(value, "float64")
    return float(value)


_SAMPLING = {"temperature": _float, "top_p": _float, "frequency_penalty": _float, "presence_penalty": _float}
_COMMON = {
    "model": string,
    "stream": boolean,
    "stream_options": struct("StreamOptions", {"include_usage": boolean}),
    "max_tokens": integer,
    "seed": integer,
    "stop": anything,
    "_debug_render_only": boolean,
} | _SAMPLING
_MESSAGE = struct(
    "Message",
    {
        "role": string,
        "content": anything,
        "reasoning": string,
        "tool_calls": anything,
        "name": string,
        "tool_call_id": string,
    },
)
_CHAT = struct(
    "ChatCompletionRequest",
    _COMMON
    | {
        "messages": list_of(_MESSAGE, "[]openai.Message"),
        "response_format": anything,
        "tools": list_of(anything, "[]api.Tool"),
        "reasoning": struct("Reasoning", {"effort": string}),
        "reasoning_effort": string,
        "logprobs": flag,
        "top_logprobs": integer,
    },
)
_COMPLETION = struct("CompletionRequest", _COMMON | {"prompt": string, "suffix": string, "logprobs": integer})
_EMBED = struct("EmbedRequest", {"model": string, "input": anything, "dimensions": integer, "encoding_format": string})


def error(status: int, message: str) -> Any:
    """An error in OpenAI's shape."""
    kind = _TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _usage(answer: Answer) -> Any:
    prompt, completion = answer.get("prompt_eval_count", 0), answer.get("eval_count", 0)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class _Chat:
    """POST /v1/chat/completions."""

    def native(self, asked: Form) -> Form:
        if not asked.get("messages"):
            raise StatusError(400, "[] is too short - 'messages'")
        native: Form = {
            "model": asked.get("model", ""),
            "messages": [one for message in asked["messages"] for one in _native_messages(message)],
            "options": {**options_of(asked, _OPTIONS, _DEFAULTS), **_stop(asked)},
            "tools": asked.get("tools") or [],
            "logprobs": bool(asked.get("logprobs")),
            "top_logprobs": asked.get("top_logprobs", 0),
            "_debug_render_only": asked.get("_debug_render_only", False),
        }
        wanted = asked.get("response_format") or {}
        if wanted.get("type") == "json_object":
            native["format"] = "json"
        elif wanted.get("type") == "json_schema":
            native["format"] = (wanted.get("json_schema") or {}).get("schema")
        effort = (asked.get("reasoning") or {}).get("effort") or asked.get("reasoning_effort")
        if effort:
            native["think"] = _think(effort)
        return native

    def writer(self, asked: Form, call: Call) -> Writer:
        return _ChatWriter(asked, call)

    def error(self, status: int, message: str) -> Any:
        return error(status, message)


def _stop(asked: Form) -> Form:
    return {"stop": list(texts(asked["stop"]))} if asked.get("stop") else {}


def _think(effort: str) -> Any:
    if effort not in _EFFORTS:
        choices = ", ".join(f'"{one}"' for one in _EFFORTS[:-1])
        raise StatusError(400, f'invalid reasoning value: "{effort}" (must be {choices}, or "none")')
    return _THINK.get(effort, effort)


def _native_messages(message: Form) -> list[Form]:
    """Each content part becomes a message of its own; tool calls go with the last."""
    base: Form = {"role": message.get("role", "")}
    for name, native in (("reasoning", "thinking"), ("tool_call_id", "tool_call_id"), ("name", "tool_name")):
        if message.get(name):
            base[native] = message[name]
    calls = [_native_call(call) for call in message.get("tool_calls") or ()]
    content = message.get("content")
    if isinstance(content, str):
        out = [{**base, "content": content}]
    elif isinstance(content, list):
        out = [{**base, **_part(part)} for part in content]
    elif content is None and calls:
        out = [dict(base)]
    else:
        raise StatusError(
            400, f"invalid message content type: {'<nil>' if content is None else type(content).__name__}"
        )
    if calls and out:
        out[-1]["tool_calls"] = calls
    return out


def _part(part: Any) -> Form:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {"content": str(part.get("text", ""))}
    if kind == "image_url":
        given = part.get("image_url")
        url = given.get("url", "") if isinstance(given, dict) else str(given)
        if url.startswith(("http://", "https://")):
            text = "image URLs are not currently supported, please use base64 encoded data instead"
            raise StatusError(400, text)
        return {"content": "", "images": [url.partition(",")[2]]}
    raise StatusError(400, "invalid message format")


def _native_call(call: Any) -> Form:
    function = call.get("function") or {}
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except ValueError:
        raise StatusError(400, "invalid tool call arguments") from None
    return {"id": call.get("id", ""), "function": {"name": function.get("name", ""), "arguments": arguments}}


class _ChatWriter:
    headers: Headers = (SSE,)

    def __init__(self, asked: Form, call: Call) -> None:
        self.model = asked.get("model", "")
        self.usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self.id = f"chatcmpl-{call.entry.number % 999}"
        self.created = int(time.time())
        self.first = True
        self.called = False

    def feed(self, answer: Answer) -> list[bytes]:
        message = answer["message"]
        out = b""
        if not answer["done"] or message["content"]:
            delta: Answer = {"role": "assistant"} if self.first else {}
            self.first = False
            out += self.chunk([self.choice("delta", delta | self.said(message), None, answer)])
        if not answer["done"]:
            return [out] if out else []
        reason = "tool_calls" if self.called else answer.get("done_reason")
        out += self.chunk([{"index": 0, "delta": {}, "finish_reason": reason}])
        if self.usage:
            out += self.chunk([], usage=_usage(answer))
        return [out + b"data: [DONE]\n\n"]

    def lost(self) -> list[bytes]:
        self.model = ""
        return [self.chunk([{"index": 0, "delta": {"content": ""}, "finish_reason": None}])]

    def whole(self, answer: Answer) -> Any:
        message = answer["message"]
        said = {"role": message["role"]} | self.said(message)
        reason = "tool_calls" if self.called else answer.get("done_reason")
        out = self.head("chat.completion", [self.choice("message", said, reason, answer)]) | {"usage": _usage(answer)}
        return out | ({"_debug_info": answer["_debug_info"]} if "_debug_info" in answer else {})

    def choice(self, key: str, said: Answer, reason: Any, answer: Answer) -> Answer:
        logprobs = {"logprobs": {"content": answer["logprobs"]}} if answer.get("logprobs") else {}
        return {"index": 0, key: said, "finish_reason": reason} | logprobs

    def said(self, message: Answer) -> Answer:
        out: Answer = {"content": message["content"]}
        if message.get("thinking"):
            out["reasoning"] = message["thinking"]
        if message.get("tool_calls"):
            self.called = True
            out["tool_calls"] = [_call(call) for call in message["tool_calls"]]
        return out

    def head(self, kind: str, choices: list[Answer]) -> Answer:
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return head | {"system_fingerprint": "fp_ollama", "choices": choices}

    def chunk(self, choices: list[Answer], **more: Any) -> bytes:
        return b"data: " + gojson.write(self.head("chat.completion.chunk", choices) | more) + b"\n\n"


def _call(call: Answer) -> Answer:
    function = call["function"]
    arguments = gojson.write(function["arguments"]).decode()
    told = {"name": function["name"], "arguments": arguments}
    return {"id": call["id"], "index": function["index"], "type": "function", "function": told}


class _Completion:
    """POST /v1/completions: not raw, the chat template is applied."""

    def native(self, asked: Form) -> Form:
        return {
            "model": asked.get("model", ""),
            "prompt": asked.get("prompt", ""),
            "suffix": asked.get("suffix", ""),
            "options": {**options_of(asked, _OPTIONS, _DEFAULTS), **_stop(asked)},
            "_debug_render_only": asked.get("_debug_render_only", False),
        }

    def writer(self, asked: Form, call: Call) -> Writer:
        return _CompletionWriter(asked, call)

    def error(self, status: int, message: str) -> Any:
        return error(status, message)


class _CompletionWriter:
    headers: Headers = (SSE,)

    def __init__(self, asked: Form, call: Call) -> None:
        self.model = asked.get("model", "")
        self.usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self.id = f"cmpl-{call.entry.number % 999}"
        self.created = int(time.time())

    def feed(self, answer: Answer) -> list[bytes]:
        out = self.chunk([{"text": answer["response"], "index": 0, "finish_reason": answer.get("done_reason")}])
        if answer["done"]:
            if self.usage:
                out += self.chunk([], answer)
            out += b"data: [DONE]\n\n"
        return [out]

    def lost(self) -> list[bytes]:
        self.model = ""
        return [self.chunk([{"text": "", "index": 0, "finish_reason": None}])]

    def whole(self, answer: Answer) -> Any:
        choice = {"text": answer["response"], "index": 0, "finish_reason": answer.get("done_reason")}
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return head | {"system_fingerprint": "fp_ollama", "choices": [choice], "usage": _usage(answer)}

    def chunk(self, choices: list[Answer], counted: Answer | None = None) -> bytes:
        head = {"id": self.id, "object": "text_completion", "created": self.created, "choices": choices}
        out = head | {"model": self.model, "system_fingerprint": "fp_ollama"}
        return b"data: " + gojson.write(out | ({"usage": _usage(counted or {})} if self.usage else {})) + b"\n\n"


async def _embeddings(call: Call, request: Request, out: Out) -> None:
    """POST /v1/embeddings."""
    try:
        asked = await read_form(call, request, _EMBED, "EmbedRequest")
        given, wanted = _checked(asked)
    except StatusError as wrong:
        await out.send(wrong.status, JSON, gojson.write(error(wrong.status, wrong.message)))
        return
    form = {"model": asked.get("model", ""), "input": [given] if isinstance(given, str) else given}
    try:
        body = await embedding.embed(call, form | {"dimensions": asked.get("dimensions", 0)})
    except StatusError as wrong:
        await out.send(wrong.status, PLAIN_JSON, gojson.write(error(wrong.status, wrong.message)) + b"\n")
        return
    answer = orjson.loads(body)
    data = [
        {"object": "embedding", "embedding": _encoded(vector, wanted), "index": at}
        for at, vector in enumerate(answer["embeddings"])
    ]
    tokens = answer.get("prompt_eval_count", 0)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    whole = {"object": "list", "data": data, "model": form["model"], "usage": usage}
    await out.send(200, PLAIN_JSON, gojson.write(whole) + b"\n")


def _checked(asked: Form) -> tuple[Any, str]:
    given, wanted = asked.get("input"), asked.get("encoding_format") or "float"
    if given is None or given == []:
        raise StatusError(400, "invalid input")
    if wanted not in {"float", "base64"}:
        text = f"Invalid value for 'encoding_format' = {wanted}. Supported values: ['float', 'base64']."
        raise StatusError(400, text)
    return given, wanted


def _encoded(vector: list[float], wanted: str) -> Any:
    if wanted == "base64":
        return base64.b64encode(packing.pack(f"<{len(vector)}f", *vector)).decode()
    return orjson.Fragment(b"[" + b",".join(map(gojson.float32, vector)) + b"]")


def _model(name: str, modified_at: str) -> Any:
    created = int(datetime.fromisoformat(modified_at[:19] + "+00:00").timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": "library"}


async def _models(call: Call, request: Request, out: Out) -> None:
    """GET /v1/models."""
    del request
    newest_first = sorted(call.service.models.values(), key=lambda model: model.modified_at, reverse=True)
    data = [_model(model.name, model.modified_at) for model in newest_first]
    await out.send(200, PLAIN_JSON, gojson.write({"object": "list", "data": data}) + b"\n")


async def _one_model(call: Call, request: Request, out: Out) -> None:
    """GET /v1/models/:model."""
    name = request.path.rpartition("/")[2]
    model = call.service.find(name)
    status = 200 if model else 404
    answer = _model(name, model.modified_at) if model else error(404, f"model '{full_name(name)}' not found")
    await out.send(status, PLAIN_JSON, gojson.write(answer) + b"\n")


ONE_MODEL: Mapping[str, Route] = {"GET": _one_model}
_chat: Dialect = _Chat()
_completion: Dialect = _Completion()
ROUTES: Mapping[str, Mapping[str, Route]] = {
    "/v1/chat/completions": {"POST": route(_chat, _CHAT, "ChatCompletionRequest", inference.chat)},
    "/v1/completions": {"POST": route(_completion, _COMPLETION, "CompletionRequest", inference.complete)},
    "/v1/embeddings": {"POST": _embeddings},
    "/v1/models": {"GET": _models},
}
