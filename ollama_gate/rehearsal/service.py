"""The state behind all routes: settings, installed models, who is loaded, faults and the journal."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ollama_gate.rehearsal.catalogue import MODELS
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.faults import Fault, Faults, parse
from ollama_gate.rehearsal.journal import Entry, Journal
from ollama_gate.rehearsal.models import Model, full_name
from ollama_gate.rehearsal.options import Options, resolve
from ollama_gate.rehearsal.scheduler import Scheduler

_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"(?:(?:{_PART}(?::\d+)?/)?{_PART}/)?{_PART}(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?")


@dataclass(frozen=True, slots=True)
class Settings:
    """What Ollama takes from its environment, and what only a rehearsal has."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    models: tuple[Model, ...] = MODELS
    version: str = "0.33.0-rc2"
    context_length: int = 4096
    """OLLAMA_CONTEXT_LENGTH, or the default of a machine without a big GPU."""
    num_parallel: int = 1
    max_queue: int = 512
    max_loaded_models: int = 3
    keep_alive: float = 300.0
    """Seconds a model stays after its last request."""
    load_seconds: float = 0.0
    rate: float = 0.0
    """Tokens a second; 0 as fast as they can be sent."""
    prompt_rate: float = 0.0
    """Prompt tokens a second; 0 takes no time."""
    faults: tuple[Fault, ...] = ()
    keep_body: int = 1 << 22
    """Bytes of each request body that the journal keeps."""


@dataclass(slots=True)
class Service:
    """One rehearsal server's state."""

    settings: Settings
    journal: Journal = field(init=False)
    faults: Faults = field(init=False)
    scheduler: Scheduler = field(init=False)
    models: dict[str, Model] = field(init=False)
    """By canonical name."""
    blobs: dict[str, int] = field(default_factory=dict)
    """Uploaded blobs: size by digest; their bytes are not kept."""

    def __post_init__(self) -> None:
        """Start with the settings' models."""
        settings = self.settings
        self.journal = Journal(keep_body=settings.keep_body)
        self.faults = Faults(settings.faults)
        self.scheduler = Scheduler(
            parallel=settings.num_parallel,
            max_queue=settings.max_queue,
            max_loaded=settings.max_loaded_models,
            keep_alive=settings.keep_alive,
            load_seconds=settings.load_seconds,
            changed=self.journal.changed,
        )
        self.models = {canonical(model.name): model for model in settings.models}

    def reset(self) -> None:
        """As at the start: nothing loaded, nothing recorded, only the standing faults and models."""
        self.journal.clear()
        self.faults.reset()
        self.scheduler.clear()
        self.blobs.clear()
        self.models = {canonical(model.name): model for model in self.settings.models}

    def find(self, name: str) -> Model | None:
        """The installed model of that name, any case, with or without tag, host and namespace."""
        return self.models.get(canonical(name))

    def find_or_404(self, name: str) -> Model:
        """As generate and chat look for it.

        Raises:
            StatusError: 400 for what is not a name, 404 for one that is not installed.
        """
        if not _NAME.fullmatch(name.removesuffix(":local")):
            raise StatusError(400, "invalid model name")
        model = self.find(name)
        if model is None:
            raise StatusError(404, f"model '{name}' not found")
        return model

    def options(self, model: Model, asked: Mapping[str, Any]) -> Options:
        """The options in force for a request to `model`."""
        default = Options(num_ctx=self.settings.context_length)
        return resolve(default, model.parameters, asked)


def canonical(name: str) -> str:
    """A model name as installed models are compared: full, lower case."""
    return full_name(name.removesuffix(":local")).lower()


def faults_of(options: Mapping[str, Any] | None, header: str) -> tuple[Fault, ...]:
    """Faults asked for by one request: `x-rehearsal-fault`, or `rehearsal_fault` among its options.

    Raises:
        StatusError: 400 when they cannot be read.
    """
    asked = [header, str((options or {}).get("rehearsal_fault") or "")]
    try:
        return tuple(parse(text) for texts in asked for text in filter(None, texts.split(";")))
    except ValueError as wrong:
        raise StatusError(400, str(wrong)) from None


@dataclass(slots=True)
class Call:
    """One request on its way through the routes."""

    service: Service
    entry: Entry
    faults: tuple[Fault, ...] = ()

    def fault(self, kind: str, model: str = "") -> Fault | None:
        """The fault of that kind, if it is meant for this model."""
        return next((f for f in self.faults if f.kind == kind and f.model in {"", model}), None)

    def note(self, text: str) -> None:
        """Say in the journal what happened."""
        self.entry.notes.append(text)


def stamp() -> str:
    """The time as Go writes it: RFC 3339, nanoseconds without trailing zeros, UTC."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    fraction = f".{nanoseconds:09d}".rstrip("0").rstrip(".")
    return f"{_second(seconds)}{fraction}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
