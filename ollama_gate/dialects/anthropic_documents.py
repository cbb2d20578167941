"""Documents and search results in Anthropic's content blocks, as the text that is in them.

Ollama v0.33 leaves such blocks out without a word (`anthropic/anthropic.go:convertMessage`), and with them what a user
asks about. Where there is text, it is kept; the name of what it comes from stands before it.
"""

from typing import Any, Final

from ollama_gate.dialects.media import base64_fault
from ollama_gate.requests import Json

KINDS: Final = frozenset({"document", "search_result"})
"""Types of blocks that are read here."""


class Unreadable(Exception):
    """There is no text in a block; the message says why, and goes on after the block's name."""


def readable(block: Json) -> tuple[str, list[str]]:
    """The text of one of these blocks, and the images in it as base64.

    Raises:
        Unreadable: a document's source is a PDF, a URL or a file; or it is not what Anthropic's API has.
    """
    texts = [value for key in ("title", "context") if isinstance(value := block.get(key), str) and value]
    images: list[str] = []
    source = block.get("source")
    if block.get("type") == "search_result":
        if isinstance(source, str):
            texts.append(source)
        _read(block.get("content"), texts, images)
        return "\n".join(texts), images
    kind = source.get("type") if isinstance(source, dict) else None
    if isinstance(source, dict) and kind == "text" and isinstance(source.get("data"), str):
        texts.append(source["data"])
    elif isinstance(source, dict) and kind == "content":
        _read(source.get("content"), texts, images)
    else:
        named = kind if isinstance(kind, str) else "of no type"
        raise Unreadable(f"is a document whose source ({named[:40]}) is no text, and cannot be read here")
    return "\n".join(texts), images


def _read(content: Any, texts: list[str], images: list[str]) -> None:
    """Add text and images of a list of blocks, or of a text."""
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        held = part if isinstance(part, dict) else {}
        source = held.get("source")
        if held.get("type") == "text" and isinstance(held.get("text"), str):
            texts.append(held["text"])
        elif held.get("type") == "image" and isinstance(source, dict) and _is_base64(source):
            images.append(source["data"])
        else:
            raise Unreadable("has a part that is neither text nor an image in base64")


def _is_base64(source: Json) -> bool:
    data = source.get("data")
    return source.get("type") == "base64" and isinstance(data, str) and base64_fault(data) is None
