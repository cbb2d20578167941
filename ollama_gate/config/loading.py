"""From a TOML file and environment variables to a `Config`, or to a list of everything that is wrong."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ollama_gate.config.model import Config, default_cache_dir
from ollama_gate.config.problems import InvalidConfig, Problem, dotted, from_validation, keys_of, nearest
from ollama_gate.config.server import default_keys

PREFIX = "OLLAMA_GATE_"
UPSTREAM = "OLLAMA_UPSTREAM"
"""A short name for OLLAMA_GATE_UPSTREAM_URL."""
OTHER_VARIABLES = frozenset(
    {"OLLAMA_GATE_CONFIG", "OLLAMA_GATE_REAL_UPSTREAM", "OLLAMA_GATE_TEST_CACHE", "OLLAMA_GATE_TEST_POSTGRES"}
)
"""Variables with the prefix that are not keys: the file's path, and three that the tests read."""
SEARCH = (Path("ollama-gate.toml"), Path("/etc/ollama-gate/ollama-gate.toml"))
LARGEST_FILE = 4 * 1024**2


def find(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one given, else $OLLAMA_GATE_CONFIG, else the first of `SEARCH` that exists."""
    if path is not None:
        return path
    if named := environ.get("OLLAMA_GATE_CONFIG"):
        return Path(named)
    return next((place for place in SEARCH if place.is_file()), None)


def load(path: Path | None, environ: Mapping[str, str], canonical: Callable[[str], str] | None = None) -> Config:
    """Read the configuration.

    Args:
        path: the file; None searches (`find`) and, where there is none, takes the defaults.
        environ: environment variables. OLLAMA_GATE_<SECTION>_<KEY> comes before the file; an empty one is none.
        canonical: the catalog's rule for model names. With it, `Config.models` is keyed by canonical names.

    Raises:
        InvalidConfig: with every problem found; nothing of the configuration is used then.
    """
    file = find(path, environ)
    tables = {} if file is None else _read(file)
    where = "configuration" if file is None else str(file)
    overrides, sources, problems = _from_environment(environ)
    for section, values in overrides.items():
        table = tables.setdefault(section, {})
        if isinstance(table, dict):
            table.update(values)
    directory = None if file is None else file.absolute().parent
    config = None
    try:
        config = Config.model_validate(tables, context={"directory": directory})
    except ValidationError as error:
        problems += from_validation(error, tables, sources, where)
    if config is not None:
        problems += _across_keys(config, sources, where)
        if canonical is not None:
            config, wrong = config.for_models(canonical)
            problems += [Problem(where, f'models."{name}"', what) for name, what in wrong]
        if "cache_dir" not in config.counting.model_fields_set:
            counting = config.counting.model_copy(update={"cache_dir": default_cache_dir(environ)})
            config = config.model_copy(update={"counting": counting})
        if "keys" not in config.access.model_fields_set:
            access = config.access.model_copy(update={"keys": default_keys(environ, root=os.geteuid() == 0)})
            config = config.model_copy(update={"access": access})
    if config is None or problems:
        raise InvalidConfig(problems)
    return config


def variable(section: str, name: str) -> str:
    """The environment variable of one key."""
    return f"{PREFIX}{section}_{name}".upper()


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise InvalidConfig([Problem(str(file), "", "there is no such file")]) from None
    except OSError as error:
        raise InvalidConfig([Problem(str(file), "", f"cannot be read: {error.strerror}")]) from error
    if len(data) > LARGEST_FILE:
        raise InvalidConfig([Problem(str(file), "", "is larger than 4 MiB and so not a configuration file")])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfig([Problem(str(file), "", f"is not UTF-8 at byte {error.start}")]) from error
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        what = "is nested too deep" if isinstance(error, RecursionError) else f"is not TOML: {error}"
        if re.search(r"^\s*\[models\.[^\"'\]]*:", text, re.MULTILINE):
            what += ' (a model name with a colon is written in quotes, [models."qwen3:8b"])'
        raise InvalidConfig([Problem(str(file), "", what)]) from error


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], dict[str, str], list[Problem]]:
    keys = {
        variable(section, name): (section, name)
        for section in Config.model_fields
        if section != "models"
        for name in keys_of(section)
    }
    values: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    problems: list[Problem] = []
    given = {name: text for name, text in sorted(environ.items()) if text and name.startswith(PREFIX)}
    if environ.get(UPSTREAM):
        keys[UPSTREAM] = ("upstream", "url")
        given = {UPSTREAM: environ[UPSTREAM], **given}  # the long name comes later and wins
    for name, text in given.items():
        if name in OTHER_VARIABLES:
            continue
        if name not in keys:
            problems.append(Problem(name, "", _unknown_variable(name, keys)))
            continue
        section, key = keys[name]
        values.setdefault(section, {})[key] = _typed(text, keys_of(section)[key].annotation)
        sources[dotted((section, key))] = name
    return values, sources, problems


def _unknown_variable(name: str, keys: Mapping[str, Any]) -> str:
    if name.startswith(f"{PREFIX}MODELS"):
        return 'single models are set in the file only, under [models."name"]'
    guess = nearest(name.removeprefix(PREFIX), [key.removeprefix(PREFIX).lower() for key in keys])
    return f"unknown variable: did you mean {PREFIX}{guess.upper()}?" if guess else "unknown variable: unset it"


def _typed(text: str, annotation: object) -> object:
    """An environment variable's text as the TOML value that it would be in the file."""
    text = text.strip()
    if annotation is str:
        return text
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?\d{1,18}\.\d{1,18}", text, re.ASCII):
        return float(text)
    return text


def _across_keys(config: Config, sources: Mapping[str, str], where: str) -> list[Problem]:
    """What no single key shows."""
    problems: list[Problem] = []
    for name, keys in [("", config.defaults), *config.models.items()]:
        policy = config.model_policy(name)
        own = {"num_ctx", "budget"} & keys.model_fields_set
        path: tuple[str, ...] = ("models", name) if name else ("defaults",)
        if isinstance(policy.budget, int) and policy.budget >= policy.num_ctx and own:
            key = dotted((*path, "budget" if "budget" in own else "num_ctx"))
            what = (
                f"the budget of {policy.budget} tokens does not fit the window of {policy.num_ctx}: "
                f"lower budget to {policy.num_ctx - 1} or less, or raise num_ctx"
            )
            problems.append(Problem(sources.get(key, where), key, what))
    if config.server.tls_key is not None and config.server.tls_cert is None:
        what = "is there without tls_cert: name the certificate too"
        problems.append(Problem(sources.get("server.tls_key", where), "server.tls_key", what))
    if config.shared.enabled and config.archive.url is None:
        what = 'takes a database: archive.url = "postgresql://user@host/database"'
        problems.append(Problem(sources.get("shared.enabled", where), "shared.enabled", what))
    listen, upstream = config.server.address, config.upstream.address
    if listen.port == upstream.port and listen.here and upstream.here:
        key = "upstream.url"
        what = f"{config.upstream.url} is the gate's own address ({config.server.listen}): name Ollama's instead"
        problems.append(Problem(sources.get(key, where), key, what))
    return problems
