"""Taking a request from the client: its body, within a limit, and whose it is."""

import hashlib
from typing import Any

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from ollama_gate.errors import Refusal, Refused

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PART = 256
"""Bytes that a part of a form costs beside what stands in it, so that empty ones have an end too."""


def client_of(request: web.BaseRequest) -> str:
    """Whom to be fair to: the key that a client sent, as a hash, else its address."""
    key = request.headers.get("Authorization") or request.headers.get("x-api-key")
    if key:
        return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return request.remote or ""


def body_at_hand(request: web.BaseRequest, limit: int) -> bytes | None:
    """The whole body where all of it came with the head; None where there is something to wait for.

    A body that says that it is too long is refused from its headers alone, so that a client which sends it again and
    again costs nothing.

    Raises:
        Refused: 413 for a body that is longer than `limit` bytes, 400 for one that breaks the rules of HTTP.
    """
    length = request.content_length
    if length is not None and length > limit:
        raise Refused(too_large(limit))
    if not request.content.is_eof():
        return None
    whole = _here(request)
    if len(whole) > limit:
        raise Refused(too_large(limit))
    return whole


async def read_body(request: web.BaseRequest, limit: int) -> bytes:
    """The whole body as it came, still compressed if it was.

    Args:
        request: the client's request.
        limit: bytes.

    Raises:
        Refused: 413 for a body that is longer, 400 for one that breaks the rules of HTTP.
    """
    whole = body_at_hand(request, limit)
    if whole is not None:
        return whole
    await say_continue(request)
    content, parts, size = request.content, [], 0
    while data := await _next(request):
        size += len(data)
        if size > limit:
            raise Refused(too_large(limit))
        parts.append(data)
        if content.at_eof():
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _next(request: web.BaseRequest) -> bytes:
    try:
        return await request.content.readany()
    except HttpProcessingError as bad:
        raise _invalid(bad) from bad


def _here(request: web.BaseRequest) -> bytes:
    try:
        return request.content.read_nowait()
    except HttpProcessingError as bad:
        raise _invalid(bad) from bad


def _invalid(bad: HttpProcessingError) -> Refused:
    if bad.code == 408:  # access/connections.py:TooSlow
        return Refused(Refusal(408, "request_timeout", bad.message, type="api_error", headers={"Connection": "close"}))
    return Refused(Refusal(400, "invalid_body", f"the request body breaks the rules of HTTP: {bad.message}"))


async def read_form(request: web.BaseRequest, limit: int) -> dict[str, Any]:
    """The fields of a multipart form: texts as str, the part that is named `file` as bytes.

    Raises:
        Refused: 400 for what is no such form, 413 for one whose parts are longer than `limit` bytes together.
    """
    length = request.content_length
    if length is not None and length > limit:
        raise Refused(too_large(limit))
    await say_continue(request)
    fields: dict[str, Any] = {}
    size = 0
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise Refused(_not_a_form("a part is a form itself"))
            data = bytearray()
            size += _PART + sum(len(name) + len(value) for name, value in part.headers.items())
            if size > limit:
                raise Refused(too_large(limit))
            while piece := await part.read_chunk():
                size += len(piece)
                if size > limit:
                    raise Refused(too_large(limit))
                data += piece
            name = part.name or ""
            fields[name] = bytes(data) if name == "file" else data.decode("utf-8", "replace")
    except HttpProcessingError as bad:
        raise _invalid(bad) from bad
    except (ValueError, AssertionError) as bad:
        raise Refused(_not_a_form(str(bad) or type(bad).__name__)) from bad
    return fields


def _not_a_form(why: str) -> Refusal:
    return Refusal(400, "invalid_body", f"the request body must be a multipart form with a file: {why}"[:300])


async def say_continue(request: web.BaseRequest) -> None:
    """Tell a client that asked (`Expect: 100-continue`) to send its body; curl does for long ones."""
    expected = request.headers.get("Expect")
    if expected is not None and expected.lower() == "100-continue" and request.transport is not None:
        request.transport.write(_CONTINUE)


def too_large(limit: int) -> Refusal:
    """The refusal of a body by its bytes; never used for tokens, because agents read 413 differently."""
    return Refusal(
        413,
        "body_too_large",
        f"the request body is larger than {limit} bytes, the most that this gate takes (server.max_body). "
        "Send fewer or smaller images, or ask the operator for a higher limit.",
        details={"limit_bytes": limit},
        headers={"x-should-retry": "false"},
    )
