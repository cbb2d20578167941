"""The `input` of a responses request: items, made messages of /api/chat.

Decoding and conversion are two passes, as in `openai/responses.go` (`unmarshalResponsesInputItem`, then
`FromResponsesRequest`; Ollama v0.33), because only what the first one refuses is told with the item's number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ollama_gate.dialects.go_fields import Place, bad_request, element, items, kind, record, text
from ollama_gate.dialects.media import image_of_url
from ollama_gate.dialects.tool_calls import name_results, native_call, parsed_arguments
from ollama_gate.dialects.translation import nameless_call, quoted
from ollama_gate.errors import Refused
from ollama_gate.requests import Json
from ollama_gate.wire.body import Census

T = TypeVar("T")

_MESSAGE: Final = Place("ResponsesInputMessage")
_CALL: Final = Place("ResponsesFunctionCall")
_OUTPUT: Final = Place("ResponsesFunctionCallOutput")
_REASONING: Final = Place("ResponsesReasoningInput")
_SEARCH: Final = Place("ResponsesWebSearchCall")
_TEXT: Final = Place("ResponsesTextContent")
_OUTPUT_TEXT: Final = Place("ResponsesOutputTextContent")
_IMAGE: Final = Place("ResponsesImageContent")
_FILE: Final = Place("ResponsesFileContent")


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Image:
    url: str
    stored: bool
    """Whether it has the id of a file of OpenAI's."""


@dataclass(frozen=True, slots=True)
class _File:
    """Refused, but only once everything else was read."""


_Part = _Text | _Image | _File


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    parts: list[_Part]


@dataclass(frozen=True, slots=True)
class _Call:
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class _Output:
    call_id: str
    parts: list[_Part]


@dataclass(frozen=True, slots=True)
class _Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class _Search:
    """What Ollama searched earlier; the assistant's message after it carries the result."""


_Item = _Message | _Call | _Output | _Reasoning | _Search


def input_messages(value: Any, instructions: str) -> list[dict[str, Any]]:
    """The native messages of a request: instructions first, as a system message, then the input.

    Args:
        value: a text, which is the user's, or a list of items; None for no input.
        instructions: may be empty.

    Raises:
        Refused: 400 with Ollama's own text.
    """
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(value, str):
        if value:
            messages.append({"role": "user", "content": value})
        return messages
    decoded = [] if value is None else _decoded_list("input", value, _decoded_item)
    _convert(decoded, messages)
    name_results(messages)
    return messages


def _decoded_list(name: str, value: Any, decode: Callable[[Any], T]) -> list[T]:
    """Each element decoded; what is wrong with one is told with its number."""
    if not isinstance(value, list):
        raise bad_request(
            f"{name} must be a string or array: "
            f"json: cannot unmarshal {kind(value)} into Go value of type []json.RawMessage"
        )
    found = []
    for index, each in enumerate(value):
        try:
            found.append(decode(each))
        except Refused as no:
            raise bad_request(f"{name}[{index}]: {no.refusal.message}") from None
    return found


def _object(value: Any, go_type: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"json: cannot unmarshal {kind(value)} into Go value of type {go_type}")
    return value


def _decoded_item(value: Any) -> _Item:
    item = _object(value, 'struct { Type string "json:\\"type\\""; Role string "json:\\"role\\"" }')
    place = Place("")
    kind_of_item = text(item, "type", place)
    if not kind_of_item and text(item, "role", place):
        kind_of_item = "message"  # the short form: {"role": …, "content": …}
    match kind_of_item:
        case "message":
            return _Message(text(item, "role", _MESSAGE), _parts("content", item.get("content")))
        case "function_call":
            text(item, "id", _CALL)
            if not (name := text(item, "name", _CALL)):
                raise nameless_call("name")
            return _Call(text(item, "call_id", _CALL), name, text(item, "arguments", _CALL))
        case "function_call_output":
            return _Output(text(item, "call_id", _OUTPUT), _parts("output", item.get("output")))
        case "reasoning":
            text(item, "id", _REASONING)
            kind_of_summary = "openai.ResponsesReasoningSummary"
            summary = items(item, "summary", _REASONING, kind_of_summary) or ()
            told = [element(each, _REASONING, "summary", kind_of_summary) for each in summary]
            return _Reasoning(text(item, "encrypted_content", _REASONING) or _thought(item.get("content"), told))
        case "web_search_call":
            record(item, "action", _SEARCH, "openai.ResponsesWebSearchAction")
            return _Search()
        case "":
            raise bad_request("input item missing required 'type' field")
        case _:
            raise bad_request(f"unknown input item type: {quoted(kind_of_item)}")


def _thought(content: Any, summary: list[Json]) -> str:
    """Thinking that is not where Ollama looks: all of it, as other servers tell it, else what was told of it."""
    for parts in (content if isinstance(content, list) else (), summary):
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        if thought := "\n\n".join(each for each in texts if each):
            return thought
    return ""


def _parts(name: str, value: Any) -> list[_Part]:
    if value is None:
        return []
    if isinstance(value, str):
        return [_Text(value)]
    return _decoded_list(name, value, _decoded_part)


def _decoded_part(value: Any) -> _Part:
    part = _object(value, 'struct { Type string "json:\\"type\\"" }')
    match text(part, "type", Place("")):
        case "input_text":
            return _Text(text(part, "text", _TEXT))
        case "output_text":
            return _Text(text(part, "text", _OUTPUT_TEXT))
        case "input_image":
            return _Image(text(part, "image_url", _IMAGE), stored=bool(part.get("file_id")))
        case "input_file":
            for name in ("file_data", "file_id", "file_url", "filename"):
                text(part, name, _FILE)
            return _File()
        case unknown:
            raise bad_request(f"unknown content type: {unknown}")


def _convert(decoded: list[_Item], messages: list[dict[str, Any]]) -> None:
    """Turn items into messages and append them; what belongs to one assistant turn becomes one message."""
    thinking, census = "", Census()
    for index, item in enumerate(decoded):
        match item:
            case _Reasoning():
                thinking = item.text  # belongs to the assistant's message or call that follows
            case _Message():
                message = _with_content({"role": item.role}, item.parts)
                if item.role == "assistant" and thinking:
                    message["thinking"] = thinking
                    thinking = ""
                following = decoded[index + 1] if index + 1 < len(decoded) else None
                if not _merged(message, following, messages):
                    messages.append(message)
            case _Call():
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": ""})
                messages[-1].setdefault("tool_calls", []).append(_native_call(item, census))
                if thinking:
                    messages[-1]["thinking"] = thinking
                    thinking = ""
            case _Output():
                result = _with_content({"role": "tool"}, item.parts)
                if item.call_id:
                    result["tool_call_id"] = item.call_id
                messages.append(result)
            case _Search():
                pass
    if thinking:
        messages.append({"role": "assistant", "content": "", "thinking": thinking})


def _merged(message: Mapping[str, Any], following: _Item | None, messages: list[dict[str, Any]]) -> bool:
    """Fold what an assistant says between its call and the call's output into the call's message.

    So the output follows the message with the call, as chat templates want it.
    """
    if message["role"] != "assistant" or not isinstance(following, _Output) or not following.call_id or not messages:
        return False
    last = messages[-1]
    ids = {call.get("id") for call in last.get("tool_calls", ())}
    if last["role"] != "assistant" or following.call_id not in ids:
        return False
    if last["content"] and message["content"]:
        last["content"] += "\n"
    last["content"] += message["content"]
    if "images" in message:
        last["images"] = [*last.get("images", ()), *message["images"]]
    if "thinking" in message:
        last["thinking"] = message["thinking"]
    return True


def _native_call(call: _Call, census: Census) -> dict[str, Any]:
    try:
        arguments = parsed_arguments(call.arguments, census) if call.arguments else {}
    except ValueError as error:
        raise bad_request(f"failed to parse function call arguments: {error}") from None
    return native_call(call.call_id, call.name, arguments)


def _with_content(message: dict[str, Any], parts: list[_Part]) -> dict[str, Any]:
    """Texts joined as they are, images beside them; unlike on chat completions the parts stay one message."""
    images = []
    content = []
    for part in parts:
        match part:
            case _Text():
                content.append(part.text)
            case _Image():
                if part.stored and not part.url:
                    raise bad_request("file inputs are not currently supported")
                if part.url:
                    images.append(image_of_url(part.url))
            case _File():
                raise bad_request("file inputs are not currently supported")
    message["content"] = "".join(content)
    if images:
        message["images"] = images
    return message
