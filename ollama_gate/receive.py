"""Taking a request from the client: whose it is, and its body, within limits and without holding others up.

The loop reads and does small things only. A body beyond `ELSEWHERE` is decompressed, decoded and understood in a
thread. What holds the interpreter there at a stretch is bounded by the limit on text: payloads are taken out before.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from aiohttp import BodyPartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import istr

from ollama_gate.config import Config
from ollama_gate.conversations import conversation_key, prompt_key
from ollama_gate.counting.bound import texts_of, users_of
from ollama_gate.counting.remembered import counted_key
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import InferenceRequest, Json, Kind, Weight
from ollama_gate.values import frozen
from ollama_gate.wire.body import decode_json
from ollama_gate.wire.encoding import decode_content, too_large
from ollama_gate.wire.payloads import Lifted, StandIns, TooMuchText, in_pieces, lift, spelled

T = TypeVar("T")
_X_API_KEY: Final = istr("x-api-key")
"""Headers are found in half the time by a name that knows its form in lower case, as those of `hdrs` do."""
ELSEWHERE: Final = 128 * 1024
"""Bytes from which on a body is none of the loop's business."""
WEIGHED: Final = 1024 * 1024
"""Bytes of text from which on a body is weighed (`requests.Weight`): whoever looks through it takes milliseconds."""
_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="body")
_doing: Final[set[asyncio.Future[Any]]] = set()

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PART = 256
"""Bytes that a part of a form costs beside what stands in it, so that empty ones have an end too."""


def client_of(request: web.BaseRequest) -> str:
    """Whom to be fair to: the key that a client sent, as a hash, else its address."""
    headers = request.headers
    key = headers.get(hdrs.AUTHORIZATION) or headers.get(_X_API_KEY)
    if key:
        return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return request.remote or ""


def has_left(request: web.BaseRequest) -> bool:
    """Whether the client's connection is gone or going: a write may tell of it before the cancellation does."""
    return request.transport is None or request.transport.is_closing()


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """How long a body may be, in bytes after decompression."""

    whole: int
    text: int
    """Without large images."""


Read = Callable[[dict[str, Any]], tuple[Json, InferenceRequest]]


@frozen
class Received:
    """A body as it came, decompressed."""

    text: bytes
    """JSON, with stand-ins for large payloads."""
    identity: bytes = b""
    """What tells it from every other body: the text itself, or the hash of a long one."""
    size: int = 0
    """Bytes on the wire."""
    stand_ins: StandIns | None = None
    limit: int = 0
    """Bytes of text that were allowed."""

    async def understood(self, read: Read) -> tuple[Json, InferenceRequest]:
        """This body, decoded and folded, and the native request that it means.

        Args:
            read: makes both of the decoded body, purely; called in a thread where that takes long.

        Raises:
            Refused: 400, the text cannot be read; 413, there is more text than is allowed; and what `read` refuses.
        """
        if len(self.text) < ELSEWHERE and self.stand_ins is None:
            return read(decode_json(self.text))
        return await elsewhere(lambda: self._understood(read))

    def _understood(self, read: Read) -> tuple[Json, InferenceRequest]:
        body, inference = read(decode_json(self.text))
        if self.stand_ins is not None:
            inference = replace(inference, body=self._whole(inference.body))
        return body, weighed(inference) if len(self.text) > WEIGHED else inference

    async def everything(self) -> dict[str, Any]:
        """The decoded body, every payload in its place again.

        Raises:
            Refused: 400, the text cannot be read; 413, that is more text than is allowed.
        """
        if len(self.text) < ELSEWHERE and self.stand_ins is None:
            return decode_json(self.text)
        return await elsewhere(lambda: self._whole(decode_json(self.text)))

    def _whole(self, body: Any) -> dict[str, Any]:
        """A native body with every payload that is text in its place again.

        Raises:
            Refused: 413, that is more text than is allowed.
        """
        if self.stand_ins is None:
            return cast("dict[str, Any]", body)
        try:
            return self.stand_ins.text_put_back(body, self.limit - len(self.text))
        except TooMuchText as long:
            raise Refused(too_much_text(self.limit)) from long


async def receive(request: web.BaseRequest, limit: BodyLimit) -> Received:
    """A JSON body, read and decompressed, its large payloads taken out.

    Raises:
        Refused: see `read_body` and `decode_content`; 413 for more text than is allowed.
    """
    raw = await read_body(request, limit.whole)
    encoding = request.headers.get("Content-Encoding")
    if len(raw) < ELSEWHERE and (encoding is None or len(raw) < _PACKED):
        return _received(raw, encoding, limit)
    return await elsewhere(lambda: _received(raw, encoding, limit))


def _received(raw: bytes | bytearray, encoding: str | None, limit: BodyLimit) -> Received:
    whole = decode_content(raw, encoding, limit.whole)
    if len(whole) < ELSEWHERE and len(whole) <= limit.text:
        text = bytes(whole)
        return Received(text, text, len(raw), limit=limit.text)
    wide = min(limit.text, _WIDE)
    try:
        lifted = lift(whole, limit.text)
    except TooMuchText as long:
        raise Refused(too_much_text(limit.text)) from long
    if len(lifted.text) > wide and not _is_narrow(lifted.text):
        raise Refused(too_much_text(wide))
    identity = hashlib.blake2b(lifted.text).digest()
    stand_ins = StandIns(lifted.payloads) if lifted.payloads else None
    return Received(lifted.text, identity, len(raw), stand_ins, wide if lifted.payloads else limit.text)


def _is_narrow(text: bytes) -> bool:
    return text.isascii() and b"\\u" not in text


def weighed(inference: InferenceRequest) -> InferenceRequest:
    """The same request with what would take long to learn of its body; to be called in a thread."""
    body = inference.body
    chat = inference.kind is Kind.CHAT
    weight = Weight(
        body,
        texts_of(body) if chat else None,
        tuple(users_of(body)) if chat else (),
        counted_key(body),
        prompt_key(inference),
        conversation_key(inference),
        frozenset([message.get("role") for message in body.get("messages") or ()]) if chat else frozenset(),
    )
    return replace(inference, weight=weight)


def body_limit(config: Config) -> BodyLimit:
    """How long inference requests may be."""
    return BodyLimit(config.server.max_body, config.server.max_text)


def outgoing(text: bytes, stand_ins: StandIns | None, lines: list[bytes]) -> bytes | AsyncIterator[bytes]:
    """An encoded body as it is sent, every payload in its place; its length goes to the headers.

    Args:
        text: JSON, with stand-ins.
        stand_ins: for what they stand.
        lines: headers of the request that it is sent with.
    """
    if stand_ins is None:
        return text
    pieces = stand_ins.put_back(text)
    lines.append(b"Content-Length: %d" % sum(map(len, pieces)))
    return _one_by_one(pieces)


async def _one_by_one(pieces: list[bytes | memoryview]) -> AsyncIterator[bytes]:
    for piece in in_pieces(pieces):
        yield piece


async def elsewhere(work: Callable[[], T]) -> T:
    """The result of a pure function that takes long, from a thread."""
    doing = asyncio.get_running_loop().run_in_executor(_THREADS, work)
    _doing.add(doing)
    doing.add_done_callback(_doing.discard)
    try:
        return await doing
    finally:
        del doing  # what it failed with knows this frame: together they would keep a body until Python looks for cycles


def at_work() -> bool:
    """Whether a large body is being read in a thread."""
    return bool(_doing)


_WIDE: Final = 6 << 20
"""Most bytes of text that is not plain ASCII: one wide letter makes Python keep four bytes for each of a string, and
filling them holds everybody up. An escape may stand for such a letter."""
_PACKED: Final = 4 * 1024
"""Bytes of a compressed body that are decompressed by the loop: they may become a thousand times as many."""


def received_at_hand(request: web.BaseRequest, limit: BodyLimit) -> Received | None:
    """A small, plain body that came with the head; None where there is something to wait for, to unpack, or to refuse.

    Raises:
        Refused: 400 for a body that breaks the rules of HTTP.
    """
    headers = request.headers
    said = headers.get(hdrs.CONTENT_LENGTH)
    if said is None or hdrs.CONTENT_ENCODING in headers or not request.content.is_eof():
        return None
    length = int(said)
    if length >= ELSEWHERE or length > limit.text or length > limit.whole:
        return None
    raw = _here(request)
    return Received(raw, raw, len(raw), None, limit.text)


def body_at_hand(request: web.BaseRequest, limit: int) -> bytes | None:
    """The whole body where all of it came with the head; None where there is something to wait for.

    A body that says that it is too long is refused from its headers alone, so that a client which sends it again and
    again costs nothing.

    Raises:
        Refused: 413 for a body that is longer than `limit` bytes, 400 for one that breaks the rules of HTTP.
    """
    length = request.content_length
    if length is not None and length > limit:
        raise too_large(limit)
    if not request.content.is_eof():
        return None
    whole = _here(request)
    if len(whole) > limit:
        raise too_large(limit)
    return whole


async def read_body(request: web.BaseRequest, limit: int) -> bytes | bytearray:
    """The whole body as it came, still compressed if it was.

    Args:
        request: the client's request.
        limit: bytes.

    Raises:
        Refused: 413 for a body that is longer, 400 for one that breaks the rules of HTTP.
    """
    at_hand = body_at_hand(request, limit)
    if at_hand is not None:
        return at_hand
    await say_continue(request)
    content = request.content
    whole, long = await _next(request), bytearray()
    while whole and not content.at_eof():
        data = await _next(request)
        if not long:
            long += whole
        long += data
        if len(long) > limit:
            raise too_large(limit)
        if not data:
            break
    if len(whole) > limit:
        raise too_large(limit)
    return long or whole


async def _next(request: web.BaseRequest) -> bytes:
    try:
        return await request.content.readany()
    except HttpProcessingError as bad:
        raise invalid_body(bad) from bad


def _here(request: web.BaseRequest) -> bytes:
    try:
        return request.content.read_nowait()
    except HttpProcessingError as bad:
        raise invalid_body(bad) from bad


def invalid_body(bad: HttpProcessingError) -> Refused:
    """The refusal of a body that is no HTTP, or comes too slowly."""
    last = {"Connection": "close"}
    if bad.code == 408:  # access/connections.py:TooSlow
        return Refused(Refusal(408, "request_timeout", bad.message, type="api_error", headers=last))
    why = bad.message.split("\n")[0].rstrip(": ")  # what follows shows what was sent
    return Refused(Refusal(400, "invalid_body", f"the request body breaks the rules of HTTP: {why}", headers=last))


async def read_form(request: web.BaseRequest, limit: int) -> tuple[Json, StandIns | None]:
    """The fields of a multipart form as texts, the part that is named `file` in base64, and what they stand for.

    Raises:
        Refused: 400 for what is no such form, 413 for one whose parts are longer than `limit` bytes together.
    """
    length = request.content_length
    if length is not None and length > limit:
        raise too_large(limit)
    if "Content-Type" not in request.headers:
        raise Refused(_not_a_form("it has no Content-Type"))
    await say_continue(request)
    fields: dict[str, Any] = {}
    file: Lifted | None = None
    size = 0
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise Refused(_not_a_form("a part is a form itself"))
            data = bytearray()
            size += _PART + sum(len(name) + len(value) for name, value in part.headers.items())
            if size > limit:
                raise too_large(limit)
            while piece := await part.read_chunk():
                size += len(piece)
                if size > limit:
                    raise too_large(limit)
                data += piece
            name = part.name or ""
            if name != "file":
                fields[name] = data.decode("utf-8", "replace")
            elif len(data) < ELSEWHERE:
                file = spelled(data)
            else:
                file = await elsewhere(partial(spelled, data))
    except HttpProcessingError as bad:
        raise invalid_body(bad) from bad
    except (ValueError, AssertionError) as bad:
        raise Refused(_not_a_form(str(bad) or type(bad).__name__)) from bad
    if file is not None:
        fields["file"] = file.text.decode()
    return fields, StandIns(file.payloads) if file is not None and file.payloads else None


def _not_a_form(why: str) -> Refusal:
    return Refusal(400, "invalid_body", f"the request body must be a multipart form with a file: {why}"[:300])


async def say_continue(request: web.BaseRequest) -> None:
    """Tell a client that asked (`Expect: 100-continue`) to send its body; curl does for long ones."""
    expected = request.headers.get("Expect")
    if expected is not None and expected.lower() == "100-continue" and request.transport is not None:
        request.transport.write(_CONTINUE)


def too_much_text(limit: int) -> Refusal:
    """The refusal of a body whose text alone is more than any window holds."""
    return Refusal(
        413,
        "text_too_large",
        f"the request has more than {limit} bytes beside its images, the most text that this gate takes "
        "(server.max_text). Send less text.",
        details={"limit_bytes": limit},
        headers={"x-should-retry": "false"},
    )
