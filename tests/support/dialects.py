"""The translated dialects seen from outside: their endpoints, and native answers made from recorded ones."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ollama_gate.dialects import anthropic, openai, responses
from ollama_gate.dialects.lane import Lane
from ollama_gate.dialects.translation import ServerTools, Stamp
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import AnswerFacts, AnswerWriter, InferenceRequest, Json

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
ENDPOINTS: Mapping[str, Lane] = {
    **{path: lane for path, lane in openai.LANES.items() if not lane.form},
    responses.PATH: responses.LANE,
    anthropic.PATH: anthropic.LANE,
}
STAMP = Stamp(created=1796026839, id="7f3a")
NO_FACTS = AnswerFacts()
BROKEN = "an error was encountered while running the model: unexpected EOF"
"""What Ollama says when its runner dies (recorded in dies-native-chat-stream)."""

_IDS = re.compile(r'"(id|item_id|request_id)":"(?:chatcmpl-|cmpl-|msg_|resp_|rs_|fc_|req_)[^"]*"')
_TIMES = re.compile(r'"(created|created_at|completed_at)":\d+')


def parse(
    path: str, body: Json, headers: Mapping[str, str] | None = None, server_tools: ServerTools = "drop"
) -> InferenceRequest:
    """Read a body of a translated route."""
    return ENDPOINTS[path].parse(body, headers or {}, server_tools)


def refusal_of(path: str, body: Json, server_tools: ServerTools = "drop") -> Refusal:
    """The refusal that a body gets; fails when it gets none."""
    try:
        parse(path, body, server_tools=server_tools)
    except Refused as no:
        return no.refusal
    raise AssertionError(f"{path} was not refused")


def writer_for(path: str, body: Json, facts: AnswerFacts = NO_FACTS) -> AnswerWriter:
    """The writer of the answer to a body."""
    return writer_of(path, parse(path, body), body, facts)


def writer_of(path: str, request: InferenceRequest, body: Json, facts: AnswerFacts = NO_FACTS) -> AnswerWriter:
    """The writer of the answer to a request that was parsed from a body."""
    make = ENDPOINTS[path].writer
    assert make is not None
    return make(request, body, STAMP, facts)


def streamed(path: str, body: Json, *chunks: Json, facts: AnswerFacts = NO_FACTS) -> str:
    """Everything the client sees of a stream, its end included when there is one."""
    writer = writer_for(path, {**body, "stream": True}, facts)
    sent = b"".join(writer.feed(chunk) for chunk in chunks)
    return (sent + (writer.finish() or b"")).decode()


def whole(path: str, body: Json, answer: Json, facts: AnswerFacts = NO_FACTS) -> Any:
    """A whole answer, decoded."""
    return orjson.loads(writer_for(path, body, facts).whole(answer))


def said(content: str = "", **message: Any) -> dict[str, Any]:
    """One native chat chunk."""
    return {"model": "m", "message": {"role": "assistant", "content": content, **message}, "done": False}


def done(reason: str = "stop", prompt: int = 11, completion: int = 6, **more: Any) -> dict[str, Any]:
    """The last native chat chunk."""
    return {
        "model": "m",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": reason,
        "prompt_eval_count": prompt,
        "eval_count": completion,
        **more,
    }


def called(name: str, arguments: Json, call_id: str = "call_1", index: int = 0) -> dict[str, Any]:
    """A native tool call."""
    return {"id": call_id, "function": {"index": index, "name": name, "arguments": arguments}}


def events(sent: str) -> Iterator[tuple[str, Any]]:
    """(event name, decoded data) of a stream; the name is empty on nameless streams, comments are left out."""
    for block in sent.split("\n\n"):
        name, data = "", None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = line.removeprefix("data: ")
        if data is not None:
            yield name, data if data == "[DONE]" else json.loads(data)


def normal(answer: str) -> str:
    """An answer without its ids and times."""
    return _TIMES.sub(r'"\1":0', _IDS.sub(r'"\1":"-"', answer))


def as_ollama_reads_it(native: Json) -> dict[str, Any]:
    """A native request with what Ollama's structs drop left out, so that two spellings of one request are equal."""
    read = {key: value for key, value in native.items() if value not in (None, "", [])}
    read["options"] = {key: value for key, value in (native.get("options") or {}).items() if value not in (None, [])}
    read["messages"] = [
        {**message, "role": message["role"].lower(), "tool_calls": [_read_call(each) for each in calls_in(message)]}
        for message in native.get("messages") or ()
    ]
    read["tools"] = [_read_tool(tool) for tool in native.get("tools") or ()]
    return read


def as_its_layer_makes_it(path: str, native: Json) -> dict[str, Any]:
    """The same of what the gate makes of a request on a route of /v1, without the one thing that it adds.

    Ollama's layers for responses and messages forget by what name a tool was called that gave a result.
    """
    read = as_ollama_reads_it(native)
    if path in {RESPONSES, MESSAGES}:
        called = {call[1] for message in read["messages"] for call in message["tool_calls"]}
        for message in read["messages"]:
            if message["role"] == "tool":
                assert message.pop("tool_name", None) in {None, *called}
    return read


def calls_in(message: Json) -> list[Any]:
    """The native tool calls of a message."""
    return list(message.get("tool_calls") or ())


def _read_call(call: Json) -> tuple[Any, ...]:
    function = call["function"]
    return call.get("id"), function["name"], json.dumps(function["arguments"], sort_keys=True)


def _read_tool(tool: Json) -> tuple[Any, ...]:
    function = tool.get("function") or {}
    parameters = function.get("parameters") or {}
    return (
        tool.get("type"),
        function.get("name", ""),
        function.get("description", ""),
        parameters.get("type", ""),
        parameters.get("required") or None,
        _read_properties(parameters.get("properties")),
    )


def _read_properties(properties: Json | None) -> list[tuple[str, Any]]:
    """In order, with the keys that api.ToolProperty has."""
    kept = ("anyOf", "type", "items", "description", "enum", "required")
    return [
        (name, {key: schema[key] for key in kept if schema.get(key) not in (None, "", [])})
        for name, schema in (properties or {}).items()
    ]
