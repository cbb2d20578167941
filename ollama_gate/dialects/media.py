"""Pictures and sound inside a request: taken as base64, handed on as base64, never looked into.

Source: `openai/openai.go:decodeImageURL` and `anthropic/anthropic.go:resolveImageSource`, Ollama v0.33.
"""

import binascii
from typing import Final

from ollama_gate.dialects.go_fields import bad_request

_IMAGE_PREFIXES: Final = tuple(f"data:image/{name};base64," for name in ("jpeg", "jpg", "png", "webp"))
_BARE_PREFIX: Final = "data:;base64,"
_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def image_of_url(url: str) -> str:
    """The base64 text of an image in a `data:` URL.

    Raises:
        Refused: 400 with Ollama's text: another kind of URL, another type of image, or bad base64.
    """
    if url.startswith(("http://", "https://")):
        raise bad_request("image URLs are not currently supported, please use base64 encoded data instead")
    for prefix in (_BARE_PREFIX, *_IMAGE_PREFIXES):
        if url.startswith(prefix):
            payload = url[len(prefix) :]
            if base64_fault(payload) is None:
                return payload
            break
    raise bad_request("invalid image input")


def base64_fault(payload: str) -> str | None:
    """What Go's decoder (`base64.StdEncoding`) has against this text; None when it is sound."""
    # Go skips line breaks and nothing else; strict mode would not.
    text = payload.replace("\r", "").replace("\n", "") if "\n" in payload or "\r" in payload else payload
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, and characters outside ASCII
        return f"illegal base64 data at input byte {_first_fault(payload)}"
    return None


def _first_fault(payload: str) -> int:
    """Where the first character stands that base64 does not have, or the group of four that is not complete."""
    for index, character in enumerate(payload):
        if character not in _ALPHABET and character not in "\r\n=":
            return len(payload[:index].encode("utf-8", "surrogatepass"))
    return len(payload) // 4 * 4
