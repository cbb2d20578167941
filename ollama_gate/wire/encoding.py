"""Content-Encoding: a request body back to what the client compressed, within a limit on the *decoded* size.

Ollama itself decodes zstd on `/v1` only (`server/cloud_proxy.go:cloudPassthroughMiddleware`, v0.33). The gate takes
gzip, deflate and zstd on every route and sends on what it decoded. Decoding stops as soon as the limit is passed, so a
body that would grow a thousandfold costs no more than the limit.
"""

import zlib
from collections.abc import Callable

import zstandard

from ollama_gate.errors import Refusal, Refused

ACCEPTED = "zstd, gzip, deflate"
"""What a 415 answer names in its Accept-Encoding header (RFC 9110, 15.5.16)."""

_PLAIN = frozenset({"", "identity", "none", "utf-8", "utf8", "ascii", "us-ascii", "iso-8859-1", "latin1"})
"""No coding: the standard's own word for it, and the charsets that clients write into the wrong header."""
_MOST_CODINGS = 3
"""Codings applied one over the other. Nobody needs two; a longer list is an attack."""
_MOST_FRAMES = 1024
"""Frames (zstd) or members (gzip) of one body. Thousands of empty ones would cost time and hold nothing."""
_INPUT_STEP = 64 * 1024
"""Bytes given to zlib at a time, so that what is left over after a member is never a copy of the whole body."""
_OUTPUT_STEP = 1024 * 1024
"""Bytes taken from zlib at a time, so that no copy of them holds other threads up."""
_ZSTD_STEP = 512
"""Bytes given to zstd at a time. A block of 4 bytes can hold 128 KiB, so one step yields at most 16 MiB."""
_ZSTD_WINDOW = 8 * 1024 * 1024
"""The largest window a decoder has to provide for `Content-Encoding: zstd` (RFC 9659)."""


def decode_content(raw: bytes | bytearray, content_encoding: str | None, limit: int) -> bytes | bytearray:
    """Decode a body as its Content-Encoding header says.

    Args:
        raw: the body as it came.
        content_encoding: the header's value, None when there is none.
        limit: bytes that the decoded body, and the result of each stacked coding, may have.

    Returns:
        The decoded body, at most `limit` bytes.

    Raises:
        Refused: 413 `body_too_large`, 415 `unsupported_encoding`, or 400 `invalid_body` for a stream that is broken,
            cut short, or followed by something else.
    """
    if content_encoding is None and len(raw) <= limit:
        return raw
    codings = codings_of(content_encoding)
    for coding in codings:
        if coding not in _DECODERS:
            raise _unsupported(f"Content-Encoding {coding[:40]!r} is not supported; send one of {ACCEPTED}, or none.")
    if len(codings) > _MOST_CODINGS:
        raise _unsupported(f"Content-Encoding names {len(codings)} codings; at most {_MOST_CODINGS} are undone.")
    if len(raw) > limit:
        raise too_large(limit)
    for coding in reversed(codings):
        raw = _DECODERS[coding](raw, limit)
    return raw


def codings_of(content_encoding: str | None) -> list[str]:
    """The codings that a Content-Encoding header names, in lower case, without those that change nothing."""
    codings = (coding.strip().lower() for coding in (content_encoding or "").split(","))
    return [coding for coding in codings if coding not in _PLAIN]


def _gzip(raw: bytes | bytearray, limit: int) -> bytearray:
    """Every member of a gzip stream (RFC 1952)."""
    out = bytearray()
    rest: bytes | bytearray = raw
    for _ in range(_MOST_FRAMES):
        rest = _inflate(rest, 16 + zlib.MAX_WBITS, out, limit, coding="gzip")
        if not rest:
            return out
    raise _broken("gzip", f"it has more than {_MOST_FRAMES} members")


def _deflate(raw: bytes | bytearray, limit: int) -> bytearray:
    """A zlib stream as RFC 9110 means it, or a bare deflate stream as some clients send it."""
    has_zlib_header = len(raw) > 1 and raw[0] & 0x0F == zlib.DEFLATED and (raw[0] << 8 | raw[1]) % 31 == 0
    out = bytearray()
    rest = _inflate(raw, zlib.MAX_WBITS if has_zlib_header else -zlib.MAX_WBITS, out, limit, coding="deflate")
    if rest:
        raise _broken("deflate", "something follows its end")
    return out


def _inflate(raw: bytes | bytearray, window_bits: int, out: bytearray, limit: int, *, coding: str) -> bytes | bytearray:
    """Append one deflated stream to `out`; returns what follows it."""
    stream = zlib.decompressobj(window_bits)
    position = 0
    while not stream.eof:
        piece: bytes | bytearray = stream.unconsumed_tail
        if not piece:
            piece = raw[position : position + _INPUT_STEP]
            position += len(piece)
            if not piece:
                raise _broken(coding, "it ends too early")
        try:
            out += stream.decompress(piece, min(limit - len(out) + 1, _OUTPUT_STEP))
        except zlib.error as error:
            raise _broken(coding, "its data is corrupt") from error
        if len(out) > limit:
            raise too_large(limit)
    return raw[position - len(stream.unused_data) :]


def _zstd(raw: bytes | bytearray, limit: int) -> bytearray:
    """Every frame of a zstd stream (RFC 8878); skippable frames hold nothing."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    out = bytearray()
    rest: bytes | bytearray = raw
    for _ in range(_MOST_FRAMES):
        frame = decompressor.decompressobj()
        position = 0
        while not frame.eof:
            piece = rest[position : position + _ZSTD_STEP]
            position += len(piece)
            if not piece:
                raise _broken("zstd", "it ends too early")
            try:
                out += frame.decompress(piece)
            except zstandard.ZstdError as error:
                raise _broken("zstd", "its data is corrupt, or its window is larger than 8 MiB") from error
            if len(out) > limit:
                raise too_large(limit)
        rest = rest[position - len(frame.unused_data) :]
        if not rest:
            return out
    raise _broken("zstd", f"it has more than {_MOST_FRAMES} frames")


_DECODERS: dict[str, Callable[[bytes | bytearray, int], bytearray]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}


def too_large(limit: int) -> Refused:
    """The refusal of a body by its bytes; never used for tokens, because agents read 413 differently."""
    return Refused(
        Refusal(
            status=413,
            code="body_too_large",
            message=f"The request body is larger than {limit} bytes, the most that this gate takes (server.max_body), "
            "compressed or not. Send fewer or smaller images, or ask the operator for a higher limit.",
            details={"limit_bytes": limit},
            headers={"x-should-retry": "false"},
        )
    )


def _unsupported(message: str) -> Refused:
    return Refused(
        Refusal(status=415, code="unsupported_encoding", message=message, headers={"Accept-Encoding": ACCEPTED})
    )


def _broken(coding: str, why: str) -> Refused:
    return Refused(
        Refusal(
            status=400,
            code="invalid_body",
            message=f"The request body cannot be decompressed as {coding}: {why}.",
        )
    )
