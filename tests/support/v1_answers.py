"""Native answers, reconstructed from what Ollama's own layer made of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from support.dialects import BROKEN, CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES, events

Native = dict[str, Any]
CREATED_AT = "2026-11-30T08:20:39.923650675Z"


def native_chunks(path: str, answer: str, asked: int | None) -> list[Native]:
    """The native stream behind a recorded one.

    Args:
        path: the translated route.
        answer: the recorded stream.
        asked: tokens that were asked for; where a dialect does not say why it ended, reaching them is `length`.
    """
    streams: Mapping[str, Callable[[str, int | None], list[Native]]] = {
        CHAT: _chat_stream,
        COMPLETIONS: _completion_stream,
        RESPONSES: _responses_stream,
        MESSAGES: _messages_stream,
    }
    return [{"model": "m", "created_at": CREATED_AT, **chunk} for chunk in streams[path](answer, asked)]


def native_whole(path: str, answer: Any, asked: int | None) -> Native:
    """The native answer behind a recorded whole one."""
    wholes: Mapping[str, Callable[[Any, int | None], Native]] = {
        CHAT: _chat_whole,
        COMPLETIONS: _completion_whole,
        EMBEDDINGS: _embeddings_whole,
        RESPONSES: _responses_whole,
        MESSAGES: _messages_whole,
    }
    return {"model": "m", "created_at": CREATED_AT, **wholes[path](answer, asked)}


def _counts(prompt: int, completion: int) -> Native:
    """As Ollama sends them: a zero is left out."""
    counts = {"prompt_eval_count": prompt, "eval_count": completion}
    return {key: value for key, value in counts.items() if value}


def _native_message(message: Mapping[str, Any]) -> Native:
    native: Native = {"role": message.get("role", "assistant"), "content": message.get("content") or ""}
    if message.get("reasoning"):
        native["thinking"] = message["reasoning"]
    if message.get("tool_calls"):
        native["tool_calls"] = [
            _native_call(call["id"], call["index"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message["tool_calls"]
        ]
    return native


def _native_call(call_id: str, index: int, name: str, arguments: Any) -> Native:
    return {"id": call_id, "function": {"index": index, "name": name, "arguments": arguments}}


def _done_reason(finish_reason: str | None) -> Native:
    if finish_reason is None:
        return {}
    return {"done_reason": {"tool_calls": "stop"}.get(finish_reason, finish_reason)}


def _usage(usage: Mapping[str, int]) -> Native:
    return _counts(usage["prompt_tokens"], usage["completion_tokens"])


def _choices(answer: str, chunks: list[Native]) -> Iterator[Any]:
    """The choice of each event of one of OpenAI's streams; usage and errors become chunks here."""
    for _name, data in events(answer):
        if data == "[DONE]":
            continue
        if not data["choices"]:
            chunks[-1].update(_usage(data["usage"]))
        elif not data["model"]:
            chunks.append({"error": BROKEN})
        else:
            yield data["choices"][0]


def _chat_stream(answer: str, _: int | None) -> list[Native]:
    chunks: list[Native] = []
    for choice in _choices(answer, chunks):
        if choice["finish_reason"]:
            last = {"message": {"role": "assistant", "content": ""}, "done": True}
            chunks.append({**last, **_done_reason(choice["finish_reason"])})
        else:
            chunk: Native = {"message": _native_message(choice["delta"]), "done": False}
            if "logprobs" in choice:
                chunk["logprobs"] = choice["logprobs"]["content"]
            chunks.append(chunk)
    return chunks


def _chat_whole(answer: Any, _: int | None) -> Native:
    choice = answer["choices"][0]
    native: Native = {"message": _native_message(choice["message"]), "done": choice["finish_reason"] is not None}
    native.update(_done_reason(choice["finish_reason"]), **_usage(answer["usage"]))
    if "logprobs" in choice:
        native["logprobs"] = choice["logprobs"]["content"]
    if "_debug_info" in answer:
        native["_debug_info"] = answer["_debug_info"]
    return native


def _completion_stream(answer: str, _: int | None) -> list[Native]:
    chunks: list[Native] = []
    for choice in _choices(answer, chunks):
        finish = choice["finish_reason"]
        chunks.append({"response": choice["text"], "done": finish is not None, **_done_reason(finish)})
    return chunks


def _completion_whole(answer: Any, _: int | None) -> Native:
    choice = answer["choices"][0]
    return {
        "response": choice["text"],
        "done": True,
        **_done_reason(choice["finish_reason"]),
        **_usage(answer["usage"]),
    }


def _embeddings_whole(answer: Any, _: int | None) -> Native:
    vectors = [each["embedding"] for each in answer["data"]]
    return {"embeddings": vectors, **_counts(answer["usage"]["prompt_tokens"], 0)}


def _ended(prompt: int, completion: int, asked: int | None) -> Native:
    return {
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "length" if completion == asked else "stop",
        **_counts(prompt, completion),
    }


def _responses_stream(answer: str, asked: int | None) -> list[Native]:
    chunks: list[Native] = []
    for name, data in events(answer):
        message: Native = {"role": "assistant", "content": ""}
        if name == "response.output_text.delta":
            message["content"] = data["delta"]
        elif name == "response.reasoning_summary_text.delta":
            message["thinking"] = data["delta"]
        elif name == "response.output_item.done" and data["item"]["type"] == "function_call":
            item = data["item"]
            message["tool_calls"] = [_native_call(item["call_id"], 0, item["name"], json.loads(item["arguments"]))]
        elif name == "response.completed":
            usage = data["response"]["usage"]
            chunks.append(_ended(usage["input_tokens"], usage["output_tokens"], asked))
            continue
        else:
            continue
        chunks.append({"message": message, "done": False})
    return chunks


def _responses_whole(answer: Any, asked: int | None) -> Native:
    usage = answer["usage"]
    native = _ended(usage["input_tokens"], usage["output_tokens"], asked)
    for item in answer["output"]:
        if item["type"] == "message":
            native["message"]["content"] = item["content"][0]["text"]
        elif item["type"] == "function_call":
            call = _native_call(item["call_id"], 0, item["name"], json.loads(item["arguments"]))
            native["message"].setdefault("tool_calls", []).append(call)
    return native


_STOPS = {"max_tokens": "length", "end_turn": "stop", "tool_use": "stop"}


def _messages_stream(answer: str, _: int | None) -> list[Native]:
    chunks: list[Native] = []
    block: Native = {}
    for name, data in events(answer):
        message: Native = {"role": "assistant", "content": ""}
        if name == "content_block_start":
            block = data["content_block"]
            continue
        if name == "content_block_delta":
            delta = data["delta"]
            if delta["type"] == "text_delta":
                message["content"] = delta["text"]
            elif delta["type"] == "thinking_delta":
                message["thinking"] = delta["thinking"]
            else:
                arguments = json.loads(delta["partial_json"])
                message["tool_calls"] = [_native_call(block["id"], 0, block["name"], arguments)]
            chunks.append({"message": message, "done": False})
        elif name == "message_delta":
            usage = data["usage"]
            reason = {"done_reason": _STOPS[data["delta"]["stop_reason"]]}
            counts = _counts(usage["input_tokens"], usage["output_tokens"])
            chunks.append({"message": message, "done": True, **reason, **counts})
    return chunks


def _messages_whole(answer: Any, _: int | None) -> Native:
    message: Native = {"role": "assistant", "content": ""}
    for block in answer["content"] or ():
        if block["type"] == "text":
            message["content"] = block["text"]
        elif block["type"] == "thinking":
            message["thinking"] = block["thinking"]
        else:
            call = _native_call(block["id"], 0, block["name"], block["input"])
            message.setdefault("tool_calls", []).append(call)
    usage = answer["usage"]
    reason = {"done_reason": _STOPS[answer["stop_reason"]]}
    return {"message": message, "done": True, **reason, **_counts(usage["input_tokens"], usage["output_tokens"])}
