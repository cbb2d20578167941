"""The configuration told three ways from one source, the code: an example file, a JSON schema and a page for people."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from ollama_gate.config.keys import Size
from ollama_gate.config.loading import variable
from ollama_gate.config.model import Config
from ollama_gate.config.problems import keys_of
from ollama_gate.config.units import format_duration, format_size

SCHEMA_FILE = "ollama-gate.schema.json"
_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Entry:
    """One key, in words."""

    section: str
    name: str
    meaning: str
    unit: str
    default: str
    """As TOML; empty where the key is absent by default."""
    allowed: str
    """Words or bounds; empty where the unit says enough."""
    example: str
    """A value as TOML, the default where there is one."""
    variable: str


def entries() -> list[Entry]:
    """Every key of every section but [models], in the order of the file."""
    return [
        _entry(section, name, field)
        for section in Config.model_fields
        if section != "models"
        for name, field in keys_of(section).items()
    ]


def example() -> str:
    """The annotated example file. Every key is commented, so that a copy of it changes nothing and pins no default."""
    lines = [
        f"#:schema ./{SCHEMA_FILE}",
        "# ollama-gate.toml: every key with its meaning, unit and default. Nothing has to be set: take the # away from",
        "# the keys that you change.",
        '# Sizes are written "24GiB" or "24GB", times "5m" or "30s". Unknown keys are errors.',
        "# Each key outside [models] can also be set by an environment variable: OLLAMA_GATE_<SECTION>_<KEY>.",
        "# `ollama-gate check` tries this file; `systemctl reload ollama-gate` (SIGHUP) takes it up without a pause.",
    ]
    for section, field in Config.model_fields.items():
        if section == "models":
            continue
        lines += ["", "", f"# {field.description}", f"[{section}]"]
        for entry in entries():
            if entry.section == section:
                lines += ["", *_comment(entry)]
                lines.append(f"# {entry.name} = {entry.example}")
    lines += [
        "",
        "",
        "# What single models get: the keys of [defaults], each optional. A name with a dot or colon needs the quotes.",
        '# [models."qwen3-coder:30b"]',
        "# num_ctx = 32768",
        "# budget = 26000",
    ]
    return "\n".join(lines) + "\n"


def schema() -> str:
    """The JSON schema of the file, for editors."""
    tree = Config.model_json_schema()
    tree = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": "Configuration of ollama-gate.",
        **{name: value for name, value in tree.items() if name not in {"title", "description"}},
    }
    return json.dumps({**_plain(tree), "title": "ollama-gate.toml"}, indent=2, ensure_ascii=False) + "\n"


def page() -> str:
    """The reference for people, in Markdown."""
    parts = [_HEAD]
    for section, field in Config.model_fields.items():
        if section == "models":
            continue
        parts.append(f"## [{section}]\n\n{field.description}\n")
        parts.extend(_paragraph(entry) for entry in entries() if entry.section == section)
    parts.append(_MODELS)
    return "\n".join(parts)


def toml(value: object) -> str:
    """One value as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case tuple() | list():
            return f"[{', '.join(toml(item) for item in value)}]"
        case _:
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def in_unit(value: object, unit: str) -> str:
    """A key's value as TOML, in the unit that people read: bytes as "24GiB", seconds as "5m"."""
    if isinstance(value, int) and not isinstance(value, bool) and unit == "size":
        return toml(format_size(value))
    if isinstance(value, float) and unit == "time":
        return toml(format_duration(value))
    return toml(value)


def shown(config: Config) -> str:
    """A configuration as a TOML file that gives the same configuration back: every key, the models' own ones too.

    What nobody declared in [defaults] stays a comment, because declaring it says something about every model.
    """
    lines: list[str] = []
    for section in Config.model_fields:
        if section in {"models", "defaults"}:
            continue
        lines += ["", f"[{section}]", *_values(getattr(config, section), section, undeclared="")]
    lines += ["", "[defaults]", *_values(config.defaults, "defaults", undeclared="# ")]
    for name, keys in config.models.items():
        lines += ["", f"[models.{toml(name)}]", *_values(keys, "models", undeclared=None)]
    return "\n".join(lines[1:]) + "\n"


def _values(table: Any, section: str, *, undeclared: str | None) -> Iterator[str]:
    """A line for each key that has a value; what was not declared after the mark given, or not at all."""
    for name, field in keys_of(section).items():
        value = getattr(table, name)
        mark = "" if name in table.model_fields_set else undeclared
        if value is not None and mark is not None:
            yield f"{mark}{name} = {in_unit(value, _extra(field).get('unit', ''))}"


def _entry(section: str, name: str, field: FieldInfo) -> Entry:
    extra = _extra(field)
    unit = extra.get("unit", "")
    absent = field.default_factory is not None or field.default is None
    default = "" if absent else in_unit(field.default, unit)
    examples = extra.get("examples", [])
    return Entry(
        section=section,
        name=name,
        meaning=field.description or "",
        unit=unit,
        default=default,
        allowed=_allowed(field, unit),
        example=toml(examples[0]) if examples else default,
        variable=variable(section, name),
    )


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}


def _allowed(field: FieldInfo, unit: str) -> str:
    words = list(_words(field.annotation))
    if words:
        return " | ".join(words)
    bounds = []
    for limit in field.metadata:
        if isinstance(limit, Ge):
            bounds.append(f"at least {_bare(limit.ge, unit)}")
        elif isinstance(limit, Gt):
            bounds.append(f"above {_bare(limit.gt, unit)}")
        elif isinstance(limit, Le):
            bounds.append(f"at most {_bare(limit.le, unit)}")
    return ", ".join(bounds)


def _bare(number: object, unit: str) -> str:
    return in_unit(number, unit).strip('"')


def _words(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from (toml(word) for word in get_args(annotation))
    elif get_origin(annotation) in {Union, UnionType}:
        kinds = get_args(annotation)
        if any(get_origin(kind) is Literal for kind in kinds):
            for kind in kinds:
                yield from ["true", "false"] if kind is bool else _words(kind)
    elif annotation == Size:
        yield "a size"
    elif get_origin(annotation) is Annotated:
        yield "a number"


def _comment(entry: Entry) -> list[str]:
    facts = [entry.unit, entry.allowed, f"default {entry.default}" if entry.default else "default: absent"]
    text = f"{entry.meaning} ({'; '.join(fact for fact in facts if fact)})"
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def _paragraph(entry: Entry) -> str:
    rows = [
        ("unit", entry.unit),
        ("allowed", f"`{entry.allowed}`" if '"' in entry.allowed else entry.allowed),
        ("default", f"`{entry.default}`" if entry.default else "absent"),
        ("example", f"`{entry.name} = {entry.example}`" if not entry.default else ""),
        ("variable", f"`{entry.variable}`"),
    ]
    facts = "".join(f"- {label}: {text}\n" for label, text in rows if text)
    return f"### {entry.section}.{entry.name}\n\n{entry.meaning}\n\n{facts}"


def _plain(node: Any) -> Any:
    """The schema without pydantic's generated titles and without defaults in bytes and seconds."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {name: _plain(value) for name, value in node.items() if not (name == "title" and isinstance(value, str))}
    if "anyOf" in result:
        result["anyOf"] = [choice for choice in result["anyOf"] if choice != {"type": "null"}]  # TOML has no null
    if "default" in result and result["default"] is None:
        del result["default"]
    default, unit = result.get("default"), node.get("unit", "")
    if isinstance(default, Path):
        del result["default"]
    elif isinstance(default, int | float) and not isinstance(default, bool) and unit in {"size", "time"}:
        result["default"] = format_size(int(default)) if unit == "size" else format_duration(default)
    return result


_HEAD = """\
# Configuration

<!-- Written by `ollama-gate config reference`; a test compares this page with the code. -->

ollama-gate runs without a file. With one, it reads the first of these that there is:

1. the file named by `--config`,
2. the file named by `OLLAMA_GATE_CONFIG`,
3. `ollama-gate.toml` in the working directory,
4. `/etc/ollama-gate/ollama-gate.toml`.

Then come the environment variables named below, which win over the file; `OLLAMA_UPSTREAM` is short for
`OLLAMA_GATE_UPSTREAM_URL`. An empty variable counts as unset.

Sizes are written `"24GiB"` (1024 based), `"24GB"` (1000 based) or as a number of bytes; times `"5m"`, `"1h30m"`,
`"250ms"` or as a number of seconds. An unknown key, section or variable is an error that names the nearest known one,
and all that is wrong is said at once. `ollama-gate check` tries a file, `ollama-gate config show` prints what is in
force. SIGHUP (`systemctl reload ollama-gate`) reads the file again; a file with an error is refused with a log line and
the old configuration stays.

`ollama-gate config example` prints a file with every key; `ollama-gate config schema` prints the JSON schema that
editors complete and check it with.
"""

_MODELS = """\
## [models."name"]

What a single model gets: the keys of `[defaults]`, each optional. A key that is not there is taken from `[defaults]`.
Names are Ollama's, in any spelling (`qwen3`, `qwen3:latest`, `library/qwen3`), in quotes where they hold a dot or a
colon; two sections for one model are an error. Single models are set in the file only, not by variables.

```toml
[models."qwen3-coder:30b"]
num_ctx = 32768
budget = 26000
```
"""
