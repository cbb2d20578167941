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


class TooBroken(ValueError):
    """There is more to mend than an accident explains."""


def repair(raw: bytes) -> bytes:
    """Mend a JSON text as Go's decoder would.

    Returns:
        Valid UTF-8 in which surrogate escapes come in pairs; the argument itself when there was nothing to mend.

    Raises:
        TooBroken: more than 100,000 places are broken.
    """
    try:
        text, mended = raw.decode(), 0
    except UnicodeDecodeError:
        text, mended = _decode_with_losses(raw)
    if _SURROGATE.search(text) is None:
        return text.encode() if mended else raw
    # An escaped backslash before "ud800" would look like a surrogate's: spelled in hex it cannot.
    plain = text.replace("\\\\", "\\u005c")
    plain, highs = _LONE_HIGH.subn(r"\\ufffd", plain, _MOST_REPAIRS + 1)
    plain, lows = _LONE_LOW.subn(r"\\ufffd", plain, _MOST_REPAIRS + 1)
    if highs + lows > _MOST_REPAIRS:
        raise TooBroken(f"it has more than {_MOST_REPAIRS} halves of surrogate pairs")
    if highs + lows:
        return plain.encode()
    return text.encode() if mended else raw


def _decode_with_losses(raw: bytes) -> tuple[str, int]:
    """Decode UTF-8 with one U+FFFD for each bad byte (Python's "replace" would give one for several)."""
    bad = len(raw) - len(raw.decode(errors="ignore").encode())
    if bad > _MOST_REPAIRS:
        raise TooBroken(f"{bad} of its bytes are not UTF-8 text")
    return _NOT_TEXT.sub("\ufffd", raw.decode(errors="surrogateescape")), bad
