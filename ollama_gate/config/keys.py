"""How one configuration key is described: its meaning, unit and allowed values stand beside its default."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from ollama_gate.config.address import parse_listen, parse_upstream
from ollama_gate.config.units import parse_duration, parse_size

_HOST_NAME = re.compile(r"\.?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)
_UNIT = re.compile(r"[A-Za-z0-9][\w@.:-]*", re.ASCII)
_NAME = r"^[^\s\x00-\x1f]+$"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+", re.ASCII)


class Section(BaseModel):
    """A table of the configuration file: frozen, strict about types, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def key(default: Any = ..., meaning: str = "", *, unit: str = "", example: Any = None, **constraints: Any) -> Any:
    """Declare a key.

    Args:
        default: the value without a declaration; None shows as absent.
        meaning: one or two sentences for the operator.
        unit: what the number counts, when it is a number.
        example: a value worth showing where the default is none.
        constraints: what pydantic's Field takes (ge, le, default_factory …).
    """
    extra: dict[str, Any] = {}
    if unit:
        extra["unit"] = unit
    if example is not None:
        extra["examples"] = [example]
    if "default_factory" not in constraints:
        constraints["default"] = default
    return Field(description=meaning, json_schema_extra=extra, **constraints)


def _path(value: object, info: ValidationInfo) -> Path:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        value = Path(value).expanduser()
    if not isinstance(value, Path):
        raise ValueError("write a path")  # noqa: TRY004  pydantic reads ValueError
    base = info.context.get("directory") if isinstance(info.context, Mapping) else None
    return value if base is None else Path(base) / value


def _log_source(value: object, info: ValidationInfo) -> object:
    """A journal's unit, or a file's name as FilePath takes it."""
    if isinstance(value, str) and value.startswith("journald:"):
        if not _UNIT.fullmatch(value.removeprefix("journald:")):
            raise ValueError(f'{value!r} names no unit: write "journald:ollama"')
        return value
    return str(_path(value, info))


def _origins(value: object) -> object:
    """A list of web origins; a string is one list in an environment variable, parted by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        return value
    for origin in value:
        if not isinstance(origin, str) or (origin != "*" and not _ORIGIN.fullmatch(origin)):
            raise ValueError(f'{origin!r} is not an origin: write "scheme://host" or "scheme://host:port", or "*"')
    return tuple(value)


def _host_names(value: object) -> object:
    """A list of host names; a string is one list in an environment variable, parted by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        return value
    for name in value:
        if not isinstance(name, str) or not _HOST_NAME.fullmatch(name):
            raise ValueError(f'{name!r} is not a host name: write "gate.example.org", without scheme and port')
    return tuple(value)


def _names(value: object) -> object:
    """A list of names; a string is one list in an environment variable, parted by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value) if isinstance(value, list) else value


def _percent(value: object) -> object:
    """A share of the window in whole text: "80%" stays text, so that the file and `config show` agree."""
    if not isinstance(value, str):
        return value
    number = value.strip().removesuffix("%").strip()
    whole, _, decimals = number.partition(".")
    plain = (whole + decimals).isascii() and whole.isdigit() and (not decimals or decimals.isdigit())
    if not value.strip().endswith("%") or not plain or len(whole) > 3 or len(decimals) > 2:
        raise ValueError(f'{value!r} is not a budget: write tokens (26000) or a share of the window ("80%")')
    if not 0 < float(number) <= 100:
        raise ValueError(f"{value!r}: a share of the window lies above 0% and not above 100%")
    return f"{number}%"


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^(0|\d+(\.\d+)? ?([KMGT]i?B|B))$", "minimum": 0}),
]
"""Bytes, written as "24GiB"."""

Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"type": ["string", "number"], "pattern": r"^(\d+(\.\d+)?|(\d+(\.\d+)?(ms|s|m|h|d))+)$", "minimum": 0}
    ),
]
"""Seconds, written as "5m"."""

Listen = Annotated[str, AfterValidator(lambda text: str(parse_listen(text)))]
"""host:port."""

UpstreamUrl = Annotated[str, AfterValidator(parse_upstream)]
"""An address as OLLAMA_HOST takes it; kept as a full URL."""

FilePath = Annotated[Path, BeforeValidator(_path), WithJsonSchema({"type": "string", "minLength": 1})]
"""A path; a relative one starts at the configuration file's directory."""

LogSource = Annotated[str, BeforeValidator(_log_source), WithJsonSchema({"type": "string", "minLength": 1})]
"""`journald:UNIT`, or the name of a file."""

Origins = Annotated[
    tuple[str, ...],
    BeforeValidator(_origins),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": rf"^(\*|{_ORIGIN.pattern})$"}}),
]
"""Web origins."""

HostNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_host_names),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": rf"^{_HOST_NAME.pattern}$"}}),
]
"""Names of hosts."""

Name = Annotated[str, Field(pattern=_NAME)]
"""A name of something, without blanks."""

Names = Annotated[
    tuple[Name, ...],
    BeforeValidator(_names),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": _NAME}}),
]
"""Names of something, without blanks."""

Budget = (
    Annotated[int, Field(ge=1)]
    | Annotated[
        str, BeforeValidator(_percent), WithJsonSchema({"type": "string", "pattern": r"^\d{1,3}(\.\d{1,2})? ?%$"})
    ]
)
"""Tokens, or a share of the window written as "80%"."""
