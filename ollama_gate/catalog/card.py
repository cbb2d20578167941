"""What the gate must know of one model, read from Ollama's own description of it.

Sources: `/api/tags` (name, digest, size), `/api/show` (everything else), Ollama v0.33, `server/routes.go:GetModelInfo`.
Capabilities are taken from `/api/show`, because those of `/api/tags` are wrong for native-mode models and some
embedders.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ollama_gate.requests import LOAD_OPTIONS, Json


class Mode(StrEnum):
    """Who turns messages into the prompt's text (`server/routes.go:chatModeForModel`, Ollama v0.33)."""

    RENDERER = "renderer"
    """A Go function inside Ollama, named in the Modelfile; its text changes with Ollama's version."""
    GO_TEMPLATE = "go template"
    JINJA = "jinja"
    """llama-server renders the chat template of the GGUF file."""
    CHATML = "chatml"
    """Neither template: llama-server falls back to ChatML on /api/chat, /api/generate sends the bare prompt."""
    REMOTE = "remote"
    """A cloud model: nothing is rendered or counted here."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model as Ollama describes it. Two names with one digest have equal cards but for the name."""

    key: str
    """Canonical name, the key of budgets, windows and metrics."""
    name: str
    """Display name, as /api/tags writes it."""
    digest: str
    mode: Mode
    template: str = ""
    """Go template or jinja text, by mode; empty for renderers."""
    renderer: str = ""
    parser: str = ""
    system: str = ""
    messages: tuple[Json, ...] = ()
    """Modelfile MESSAGEs, put in front of the request's."""
    capabilities: frozenset[str] = frozenset()
    architecture: str = ""
    family: str = ""
    format: str = "gguf"
    trained: int | None = None
    """Trained context length in tokens."""
    num_ctx: int | None = None
    """Modelfile PARAMETER num_ctx."""
    load_options: Mapping[str, int | bool] = field(default_factory=dict)
    """Modelfile PARAMETERs that decide how the model is loaded (`requests.LOAD_OPTIONS`)."""
    num_predict: int | None = None
    """Modelfile PARAMETER num_predict."""
    blob: str = ""
    """Path of the GGUF file on Ollama's host; names that share it share one runner."""
    size: int = 0
    """Bytes of all the model's files, from /api/tags."""
    model_info: Json = field(default_factory=dict, repr=False)
    """Metadata without the big arrays."""
    show: Json = field(default_factory=dict, repr=False)
    """The whole answer of /api/show, for whoever computes memory from it."""
    runner: str = field(init=False)
    """What Ollama shares a runner by: the weights' file, or the digest where that is not known."""

    def __post_init__(self) -> None:
        """Have at hand what every request asks for."""
        object.__setattr__(self, "runner", self.blob or self.digest)

    @property
    def embeds(self) -> bool:
        """Whether the model makes embeddings; such a model does not chat, and the reverse."""
        return "embedding" in self.capabilities

    @property
    def vision(self) -> bool:
        """Whether the model takes pictures."""
        return "vision" in self.capabilities

    @property
    def thinks(self) -> bool:
        """Whether thinking is on unless a request says otherwise."""
        return "thinking" in self.capabilities


_DIRECTIVE: Final = re.compile(r"^(RENDERER|PARSER|FROM)[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_BLOCK: Final = re.compile(r'"""[\s\S]*?"""')
_PARAMETER: Final = re.compile(r"^([a-z_]+)[ \t]+(-?\d+|true|false)[ \t]*$", re.MULTILINE)
_BARE: Final = "{{ .Prompt }}"


def card_from_show(key: str, name: str, digest: str, show: Json, *, size: int = 0) -> ModelCard:
    """Read a model's card from an answer of /api/show (verbose or not)."""
    info, details = _object(show, "model_info"), _object(show, "details")
    directives = _directives(_text(show, "modelfile"))
    parameters = {name: _value(text) for name, text in _PARAMETER.findall(_text(show, "parameters"))}
    architecture = _text(info, "general.architecture")
    template = _text(show, "template")
    renderer = directives.get("RENDERER", "") or _text(show, "renderer")
    parser = directives.get("PARSER", "") or _text(show, "parser")
    trained = info.get(f"{architecture}.context_length")
    remote = bool(_text(show, "remote_model") or _text(show, "remote_host"))
    mode = _mode(template, renderer=renderer, parser=parser, remote=remote)
    return ModelCard(
        key=key,
        name=name,
        digest=digest,
        mode=mode,
        template="" if mode in (Mode.RENDERER, Mode.CHATML, Mode.REMOTE) else template,
        renderer=renderer,
        parser=parser,
        system=_text(show, "system"),
        messages=tuple(message for message in _list(show, "messages") if isinstance(message, dict)),
        capabilities=frozenset(word for word in _list(show, "capabilities") if isinstance(word, str)),
        architecture=architecture,
        family=_text(details, "family"),
        format=_text(details, "format") or "gguf",
        trained=trained if isinstance(trained, int) and trained > 0 else None,
        num_ctx=_positive(parameters.get("num_ctx")),
        load_options={name: value for name, value in parameters.items() if name in LOAD_OPTIONS},
        num_predict=_whole(parameters.get("num_predict")),
        blob=directives.get("FROM", "") if directives.get("FROM", "").startswith("/") else "",
        size=size,
        model_info={key: value for key, value in info.items() if not isinstance(value, list)},
        show=show,
    )


def _mode(template: str, *, renderer: str, parser: str, remote: bool) -> Mode:
    if remote:
        return Mode.REMOTE
    if renderer:
        return Mode.RENDERER
    if "{%" in template:
        return Mode.JINJA
    if template.strip() in ("", _BARE) and not parser:
        return Mode.CHATML
    return Mode.GO_TEMPLATE


def _directives(modelfile: str) -> dict[str, str]:
    """FROM, RENDERER and PARSER lines, outside any quoted block (a template may hold such words too)."""
    plain = "\n".join(line for line in _BLOCK.sub("", modelfile).splitlines() if not line.startswith("#"))
    found: dict[str, str] = {}
    for word, value in _DIRECTIVE.findall(plain):
        found.setdefault(word, value.strip('"'))
    return found


def _text(holder: Mapping[str, Any], key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def _object(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _list(holder: Mapping[str, Any], key: str) -> list[Any]:
    value = holder.get(key)
    return value if isinstance(value, list) else []


def _value(text: str) -> int | bool:
    return text == "true" if text in ("true", "false") else int(text)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _positive(value: object) -> int | None:
    number = _whole(value) or 0
    return number if number > 0 else None
