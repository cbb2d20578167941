"""What is wrong with a configuration, said so that it can be put right: where, what, and what to do."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ollama_gate.config.model import Config
from ollama_gate.config.units import format_duration, format_size, parse_duration, parse_size
from ollama_gate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right."""

    where: str
    """A file, or the name of an environment variable."""
    key: str
    """The key as the file spells it, `section.key`; empty for the file as a whole."""
    what: str
    """What is wrong and what to do, one sentence."""

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.what}" if self.key else f"{self.where}: {self.what}"


class InvalidConfig(ConfigError):
    """A configuration that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Carry the problems; the message has one line for each."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)), None)


def dotted(parts: Sequence[str | int]) -> str:
    """A key's path as TOML spells it: model names, which hold dots and colons, in quotes."""
    return ".".join(
        f'"{part}"' if not str(part).replace("_", "").replace("-", "").isalnum() else str(part) for part in parts
    )


def from_validation(
    error: ValidationError, raw: Mapping[str, Any], sources: Mapping[str, str], file: str
) -> list[Problem]:
    """Problems from pydantic's error, one for each key.

    Args:
        error: what pydantic found.
        raw: the tables that were validated.
        sources: environment variable by dotted key, for values that came from one.
        file: where the others came from.
    """
    problems: dict[str, Problem] = {}
    for entry in error.errors(include_url=False):
        where = tuple(entry["loc"])
        depth = 3 if where[:1] == ("models",) else 2
        path = where[:depth]
        key = dotted(path)
        what = _unknown(path, raw) if entry["type"] == "extra_forbidden" else _sentence(path, entry)
        if key not in problems or entry["type"] == "value_error":
            problems[key] = Problem(sources.get(key, file), key, what)
    return list(problems.values())


def keys_of(section: str) -> dict[str, Any]:
    """The fields of one section, [models."name"] included."""
    annotation = Config.model_fields["defaults" if section == "models" else section].annotation
    assert isinstance(annotation, type)  # noqa: S101  every section is a class
    assert issubclass(annotation, BaseModel)  # noqa: S101  as above
    return dict(annotation.model_fields)


def _unknown(path: tuple[str | int, ...], raw: Mapping[str, Any]) -> str:
    name = str(path[-1])
    if len(path) == 1:
        if guess := nearest(name, Config.model_fields):
            return f"unknown section: did you mean [{guess}]?"
        homes = [section for section in Config.model_fields if section != "models" and name in keys_of(section)]
        if homes:
            return f"unknown key at the top of the file: it belongs in [{homes[0]}]"
        return f"unknown section: the known ones are {', '.join(Config.model_fields)}"
    section = str(path[0])
    known = keys_of(section)
    value: Any = raw
    for part in path:
        value = value.get(part, {}) if isinstance(value, Mapping) else {}
    if section == "models" and isinstance(value, Mapping):
        full = ".".join(str(part) for part in path[1:])
        return f'unknown key: a model name with a dot is written in quotes, [models."{full}"]'
    if guess := nearest(name, known):
        return f"unknown key: did you mean `{guess}`?"
    homes = [other for other in Config.model_fields if other != "models" and name in keys_of(other)]
    if homes:
        return f"unknown key here: it belongs in [{homes[0]}]"
    return f"unknown key: the known ones are {', '.join(known)}"


def _sentence(path: tuple[str | int, ...], entry: Mapping[str, Any]) -> str:
    context = entry.get("ctx", {})
    value = entry.get("input")
    kind = entry["type"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        allowed = [text.strip("' ") for text in context["expected"].replace(" or ", ", ").split(",")]
        guess = nearest(str(value), allowed)
        hint = f" (did you mean {guess!r}?)" if guess else ""
        return f"{value!r} is not one of {', '.join(allowed)}{hint}"
    if kind in {"model_type", "dict_type"}:
        return f"is a table: write [{dotted(path)}] with keys in it"
    if kind in _TYPES:
        return f"{value!r} is not {_TYPES[kind]}"
    if kind in _BOUNDS:
        word, name = _BOUNDS[kind]
        return f"{_in_unit(path, value)} is {word} {_in_unit(path, context[name])}"
    return f"{value!r}: {entry['msg']}"


_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "tuple_type": 'a list of texts, ["…", "…"]',
}
_BOUNDS = {
    "greater_than_equal": ("below the least allowed,", "ge"),
    "greater_than": ("not above", "gt"),
    "less_than_equal": ("above the most allowed,", "le"),
}


def _in_unit(path: tuple[str | int, ...], number: Any) -> str:
    extra = keys_of(str(path[0]))[str(path[-1])].json_schema_extra or {}
    if extra.get("unit") == "size":
        return format_size(parse_size(number))
    if extra.get("unit") == "time":
        return format_duration(parse_duration(number))
    return f"{number}"
