"""Anthropic's content blocks, made messages of /api/chat (`anthropic/anthropic.go:convertMessage`, Ollama v0.33)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ollama_gate.dialects.anthropic_documents import KINDS, Unreadable, readable
from ollama_gate.dialects.go_fields import Place, bad_request, flag, items, mismatch, record, text
from ollama_gate.dialects.go_json import go_json, sorted_keys
from ollama_gate.dialects.media import base64_fault
from ollama_gate.dialects.tool_calls import native_call
from ollama_gate.dialects.translation import NOTE_CONTENT_LEFT_OUT, quoted
from ollama_gate.errors import Refused
from ollama_gate.requests import Json

REQUEST: Final = Place("MessagesRequest")
_BLOCK: Final = Place("MessagesRequest", "messages.")


@dataclass(slots=True)
class _Collected:
    """What the blocks of one message hold."""

    texts: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    thinking: str = ""


def system_messages(system: Any) -> list[dict[str, Any]]:
    """The system prompt as one message, its text blocks joined as they are; none when it is empty."""
    if isinstance(system, list):
        system = "".join(
            block["text"]
            for block in system
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        )
    return [{"role": "system", "content": system}] if isinstance(system, str) and system else []


def native_messages(message: Json, index: int, notes: list[str]) -> list[dict[str, Any]]:
    """The native messages of one message: usually one, more with tool results, none when it is empty.

    A message of the role `system` stays where it is.

    Args:
        message: the client's message.
        index: its number.
        notes: gets a note when a block was left out.

    Raises:
        Refused: 400 with Ollama's own text.
    """
    role = text(message, "role", _BLOCK).lower()
    found = _Collected()
    blocks = _blocks(message, index)
    known = [_collect(block, f"messages[{index}].content[{at}]", found) for at, block in enumerate(blocks)]
    if not all(known):
        kinds = [block.get("type") or "" for block in blocks]
        told = any(known) or any(result["content"] or "images" in result for result in found.results)
        if not told and role == "user" and "redacted_thinking" not in kinds:
            raise _unknown(index, kinds)
        notes.append(NOTE_CONTENT_LEFT_OUT)
    messages: list[dict[str, Any]] = []
    native: dict[str, Any] = {"role": role, "content": "".join(found.texts)}
    if found.images:
        native["images"] = found.images
    if found.calls:
        native["tool_calls"] = found.calls
    if found.thinking:
        native["thinking"] = found.thinking
    if native["content"] or len(native) > 2:
        messages.append(native)
    # Results come before what the user says about them, and after what anybody else does.
    return [*found.results, *messages] if role == "user" else [*messages, *found.results]


def _blocks(message: Json, index: int) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if content is None:
        if "content" not in message:
            # Ollama says "unexpected end of JSON input" here, which leads nowhere.
            raise bad_request(f"messages[{index}].content is required", f"messages[{index}].content")
        return []
    if not isinstance(content, list):
        raise mismatch(content, REQUEST, "messages", "[]anthropic.ContentBlock")
    for block in content:
        if block is not None and not isinstance(block, dict):
            raise mismatch(block, REQUEST, "messages", "anthropic.ContentBlock")
    return [block or {} for block in content]


def _unknown(index: int, kinds: list[str]) -> Refused:
    """The refusal of what a user says in blocks that nobody here can read: without them there is no message."""
    named = ", ".join(dict.fromkeys(quoted(kind[:40]) for kind in kinds))
    return bad_request(
        f"messages[{index}].content has only blocks of the type {named}, which cannot be read here. "
        "Send text or images.",
        f"messages[{index}].content[0]",
    )


def _collect(block: Json, where: str, found: _Collected) -> bool:
    """Add one block; False for a kind of block that is not known."""
    for name in ("type", "text", "id", "name", "tool_use_id", "thinking", "signature"):
        text(block, name, _BLOCK)
    flag(block, "is_error", _BLOCK)
    if block.get("type") not in KINDS:  # where it is a switch: {"enabled": true}
        items(block, "citations", _BLOCK, "anthropic.Citation")
    match block.get("type"):
        case "text":
            found.texts.append(block.get("text") or "")
        case "image":
            source = record(block, "source", _BLOCK, "anthropic.ImageSource")
            if source is None:
                raise bad_request("invalid image source")
            found.images.append(_image(source))
        case "tool_use" | "server_tool_use" as type_:
            if type_ == "tool_use":
                for name in ("id", "name"):
                    if not block.get(name):
                        raise bad_request(f"tool_use block missing required '{name}' field")
            arguments = block.get("input", {})
            if arguments is not None and not isinstance(arguments, dict):
                raise mismatch(arguments, _BLOCK, "input", "api.ToolCallFunctionArguments")
            found.calls.append(native_call(block.get("id") or "", block.get("name") or "", arguments))
        case kind if kind in KINDS:
            try:
                written, images = readable(block)
            except Unreadable as why:
                raise bad_request(f"{where} {why}. Send its text.", where) from None
            found.texts.append(_apart(found.texts, written))
            found.images.extend(images)
        case "tool_result":
            content, images, whole = _result_content(block.get("content"))
            found.results.append(_result(block, content, images))
            return whole
        case "web_search_tool_result":
            found.results.append(_result(block, _search_content(block.get("content")), []))
        case "thinking":
            if block.get("thinking") is not None:
                found.thinking = block["thinking"]
        case _:
            return False
    return True


def _result(block: Json, content: str, images: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"role": "tool", "content": content}
    if images:
        result["images"] = images
    if block.get("tool_use_id"):
        result["tool_call_id"] = block["tool_use_id"]
    return result


def _result_content(content: Any) -> tuple[str, list[str], bool]:
    """Text and images of a tool's result, and whether that is all; what is neither counts as nothing, as in Ollama."""
    if content is None or isinstance(content, str):
        return content or "", [], True
    texts: list[str] = []
    images: list[str] = []
    whole = isinstance(content, list)
    for part in content if isinstance(content, list) else ():
        match part.get("type") if isinstance(part, dict) else None:
            case "text" if isinstance(part.get("text"), str):
                texts.append(part["text"])
            case "image":
                source = part.get("source")
                if not isinstance(source, dict):
                    raise bad_request("invalid tool_result image source")
                images.append(_image(source))
            case str(kind) if kind in KINDS:
                # A tool gave it, not the user, and it stays in the conversation: the model is told, nobody is refused.
                try:
                    written, pictures = readable(part)
                except Unreadable as why:
                    written, pictures, whole = f"[This result {why}.]", [], False
                texts.append(_apart(texts, written))
                images.extend(pictures)
            case "tool_reference" if isinstance(part.get("tool_name"), str):
                texts.append(_apart(texts, part["tool_name"]))
            case _:
                whole = False
    return "".join(texts), images, whole


def _apart(texts: list[str], written: str) -> str:
    """A text that is no part of the sentence before it."""
    return f"\n\n{written}\n\n" if any(texts) else f"{written}\n\n"


def _image(source: Json) -> str:
    kind_of_source = source.get("type")
    if kind_of_source != "base64":
        named = kind_of_source if isinstance(kind_of_source, str) else ""
        raise bad_request(f"invalid image source type: {named}. Only base64 images are supported.")
    payload = source.get("data")
    payload = payload if isinstance(payload, str) else ""
    fault = base64_fault(payload)
    if fault is not None:
        raise bad_request(f"invalid base64 image data: {fault}")
    return payload


def _search_content(content: Any) -> str:
    """An earlier web search's result as the text that the model saw (`formatWebSearchToolResultContent`)."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        lines = []
        for item in content:
            if not isinstance(item, dict):
                continue
            if item.get("type") == "web_search_tool_result_error":
                return _search_error(item)
            if item.get("type") == "web_search_result":
                lines.append(f"- {_string(item.get('title'))}: {_string(item.get('url'))}\n")
        return "".join(lines)
    if isinstance(content, dict) and content.get("type") == "web_search_tool_result_error":
        return _search_error(content)
    return go_json(sorted_keys(content)).decode()


def _search_error(item: Mapping[str, Any]) -> str:
    code = _string(item.get("error_code"))
    return f"web_search_tool_result_error: {code}" if code else "web_search_tool_result_error"


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
