"""Text that Go's decoder mends and a strict parser refuses: bytes that are not UTF-8, and halves of surrogate pairs.

`encoding/json` turns each byte of invalid UTF-8 and each lone escape of U+D800 to U+DFFF into one U+FFFD (recorded from
Ollama v0.33). JavaScript clients that slice strings send such halves, so they are mended here before anything is
counted, at the level of bytes: the strict and fast parser then reads the result.
"""

import re

_MOST_REPAIRS = 100_000
"""A few stray bytes are an accident worth mending; a body full of them is not text."""

_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_HIGH = re.compile(rf"{_HIGH}(?!{_LOW})")
_LONE_LOW = re.compile(rf"(?<!{_HIGH}){_LOW}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_TEXT = re.compile("[\udc80-\udcff]")
_SEAM = re.compile(
    rb"[^\\u0-9a-fA-F\x80-\xff]"  # stands in no escape, or ends one of two characters
    rb"|[\xc0-\xff]|(?<=[\x80-\xbf]{3})[\x80-\xbf]"  # begins a character, or goes on where none does
    rb"|(?<=[^\\]{5})[u0-9a-fA-F]"  # too far from a backslash to be of an escape
    + rf"|(?<=[^\\])(?:(?<!{_HIGH})|(?!{_LOW}))\\".encode()  # begins an escape, and is no second half
)
"""Where a text may be cut between two of its bytes: before one of these. Outside a run of backslashes one is near."""
_PIECE = 64 * 1024
"""Bytes that are mended in one go, in which no other thread runs: some 10 ms where each of them is broken."""


class TooBroken(ValueError):
    """There is more to mend than an accident explains."""


def repair(raw: bytes) -> bytes:
    """Mend a JSON text as Go's decoder would, piece by piece, so that other threads run meanwhile.

    Returns:
        Valid UTF-8 in which surrogate escapes come in pairs; the argument itself when there was nothing to mend.

    Raises:
        TooBroken: more than 100,000 places are broken.
    """
    pieces: list[bytes] = []
    bytes_mended = halves = at = 0
    while at < len(raw):
        end = _cut(raw, at)
        piece, bad, lone = _mended(raw[at:end])
        bytes_mended, halves, at = bytes_mended + bad, halves + lone, end
        if bytes_mended > _MOST_REPAIRS:
            raise TooBroken(f"more than {_MOST_REPAIRS} of its bytes are not UTF-8 text")
        if halves > _MOST_REPAIRS:
            raise TooBroken(f"it has more than {_MOST_REPAIRS} halves of surrogate pairs")
        pieces.append(piece)
    return b"".join(pieces) if bytes_mended or halves else raw


def _cut(raw: bytes, start: int) -> int:
    """Where a piece ends that begins at `start`, so that no character, no escape and no pair of them is torn apart."""
    end = start + _PIECE
    if end >= len(raw):
        return len(raw)
    if raw[end - 1 : end + 1] == rb"\\":
        run = end - start - len(raw[start:end].rstrip(b"\\"))  # two of them are one escape
        return end - run % 2
    found = _SEAM.search(raw, end)
    return found.start() if found is not None else len(raw)


def _mended(raw: bytes) -> tuple[bytes, int, int]:
    """A piece of text, how many of its bytes were mended, and how many halves of pairs."""
    try:
        text, bad = raw.decode(), 0
    except UnicodeDecodeError:
        text, bad = _decode_with_losses(raw)
    if _SURROGATE.search(text) is None:
        return (text.encode() if bad else raw), bad, 0
    # An escaped backslash before "ud800" would look like a surrogate's: spelled in hex it cannot.
    plain = text.replace("\\\\", "\\u005c")
    plain, highs = _LONE_HIGH.subn(r"\\ufffd", plain)
    plain, lows = _LONE_LOW.subn(r"\\ufffd", plain)
    return (plain if highs + lows else text).encode(), bad, highs + lows


def _decode_with_losses(raw: bytes) -> tuple[str, int]:
    """Decode UTF-8 with one U+FFFD for each bad byte (Python's "replace" would give one for several)."""
    bad = len(raw) - len(raw.decode(errors="ignore").encode())
    return _NOT_TEXT.sub("\ufffd", raw.decode(errors="surrogateescape")), bad
