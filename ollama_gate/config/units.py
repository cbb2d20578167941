"""Sizes and times as people write them: "24GiB" is a number of bytes, "5m" a number of seconds."""

import math
import re
from fractions import Fraction

_SIZE_UNITS = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_SIZE_NAMES = ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB")
_TIME_UNITS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86400)}
_A_BYTE = 10
"""Places to which a byte shows in a number of GiB."""
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_TIME = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:ms|[smhd]))+", re.ASCII)
_TIME_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|[smhd])", re.ASCII)


def parse_size(value: object) -> int:
    """Bytes for a size such as "24GiB" (1024 based), "24 GB" (1000 based) or a whole number of bytes.

    A text without a unit is refused unless it is "0": who writes "24" means 24 GiB.

    Raises:
        ValueError: with a sentence that says how to write it.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a size is not negative")
        return value
    if not isinstance(value, str):
        raise ValueError('write a size as "24GiB", "512MiB" or a whole number of bytes')  # noqa: TRY004  pydantic reads ValueError
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f'{value!r} is not a size: write "24GiB", "512MiB" or a whole number of bytes')
    number, unit = match.groups()
    if unit.lower() in {"k", "m", "g", "t"}:
        raise ValueError(
            f"{value!r} is ambiguous: write {number}{unit.upper()}iB (1024 based) or {number}{unit.upper()}B"
        )
    if not unit and Fraction(number):
        raise ValueError(
            f'{value!r} is a size without a unit: write "{number}GiB" or "{number}MiB" ("{number}B" for bytes)'
        )
    factor = _SIZE_UNITS.get(unit.lower() or "b")
    if factor is None:
        raise ValueError(f"{unit!r} is not a unit of size: use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return int(Fraction(number) * factor)


def format_size(size: int) -> str:
    """The shortest exact text for a number of bytes; `parse_size` gives the same number back."""
    for name in _SIZE_NAMES:
        factor = _SIZE_UNITS[name.lower()]
        if size and size % factor == 0:
            return f"{size // factor}{name}"
    return f"{size}B"


def in_gib(size: float, places: int = 1) -> str:
    """A number of bytes for people, to a tenth of a GiB or to more places."""
    return f"{size / 1024**3:.{places}f} GiB"


def told_apart(*sizes: int) -> list[str]:
    """Numbers of bytes as `in_gib` tells them, to so many places that those that differ look different."""
    for places in range(1, _A_BYTE):
        told = [in_gib(size, places) for size in sizes]
        if len(set(told)) == len(set(sizes)):
            return told
    return [in_gib(size, _A_BYTE) for size in sizes]


def parse_duration(value: object) -> float:
    """Seconds for a time such as "5m", "1h30m", "250ms", or a number of seconds.

    Raises:
        ValueError: with a sentence that says how to write it.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value) or value < 0:
            raise ValueError("a time is a finite number of seconds and not negative")
        return float(value)
    if not isinstance(value, str):
        raise ValueError('write a time as "5m", "30s", "250ms" or a number of seconds')  # noqa: TRY004  as above
    text = value.strip().replace(" ", "")
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text, re.ASCII):
        return float(text)
    if _TIME.fullmatch(text) is None:
        raise ValueError(f'{value!r} is not a time: write "5m", "1h30m", "30s", "250ms" or a number of seconds')
    return float(sum(Fraction(number) * _TIME_UNITS[unit] for number, unit in _TIME_PART.findall(text)))


def format_duration(seconds: float) -> str:
    """A short text for a number of seconds, exact to the millisecond."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    whole = milliseconds // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"
