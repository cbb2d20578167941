"""What the gate has learned of models, kept on disk, so that a restart does not begin with estimates again.

One small JSON file for each Ollama: margin, image cost and trust by model digest, mode and Ollama's version. Losing it
costs nothing but learning anew, so a file that cannot be read is as good as none, and one that cannot be written is
only said.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from ollama_gate import __version__
from ollama_gate.counting.trust import Trust
from ollama_gate.files import appearing

_FORMAT: Final = 1
_MOST: Final = 1024
"""Models that are remembered; the one that was met first goes."""
_LONGEST: Final = 4 << 20
"""Bytes of a file that is read."""
_FILE: Final = "file:"
KEEP_EVERY: Final = 30.0
"""Seconds between two writes, at least."""

log = structlog.get_logger("ollama_gate")


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one model from Ollama's own numbers."""

    trust: Trust = field(default_factory=Trust)
    checked: bool = False
    """Whether the rendering here was compared with Ollama's."""
    image_tokens: float | None = None
    """Tokens of one image."""


def remembered_as(digest: str, mode: str, version: str, file: str) -> str:
    """What a model is remembered by.

    Args:
        digest: the model's.
        mode: how its prompts are rendered.
        version: Ollama's; empty where that is not known.
        file: of a tokenizer that is not the model's own; empty for that.
    """
    return " ".join(filter(None, (digest, mode, version, file and f"{_FILE}{file}")))


def of_a_file(key: str) -> bool:
    """Whether a model is remembered with a tokenizer of this machine's, of which others know nothing."""
    return f" {_FILE}" in key


def merged(mine: Learned, theirs: Learned) -> Learned:
    """What two gates know of one model, at its worst: doubts and errors of either, and checks that either made.

    Merging again what was merged changes nothing, in whatever order it comes.
    """
    if mine == theirs:
        return mine
    one, other = mine.trust, theirs.trust
    return Learned(
        Trust(
            rendering=one.rendering and other.rendering,
            vocabulary=one.vocabulary and other.vocabulary,
            bound=one.bound and other.bound,
            agreed=max(one.agreed, other.agreed),
            ratio=_larger(one.ratio, other.ratio),
            samples=max(one.samples, other.samples),
            why=max(one.why, other.why),
        ),
        mine.checked or theirs.checked,
        _larger(mine.image_tokens, theirs.image_tokens),
    )


def _larger(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def place(directory: Path, url: str) -> Path:
    """The file for one Ollama."""
    return directory / f"learned-{blake2b(url.encode(), digest_size=8).hexdigest()}.json"


class LearnedBook:
    """All that was learned of the models of one Ollama. It lives on one event loop; reading and writing do not."""

    def __init__(self, path: Path) -> None:
        """Begin with nothing; `load` reads what there is."""
        self.path = path
        self._models: OrderedDict[str, Learned] = OrderedDict()
        self._written: bytes = b""
        self._problem = ""

    def __len__(self) -> int:
        """How many models it knows."""
        return len(self._models)

    def get(self, key: str) -> Learned | None:
        """What is known of a model; the key is digest, mode and Ollama's version."""
        return self._models.get(key)

    def all(self) -> dict[str, Learned]:
        """What is known of each model."""
        return dict(self._models)

    def put(self, key: str, learned: Learned) -> None:
        """Take over what is known of a model now; it is written with the next `save`."""
        self._models[key] = learned
        if len(self._models) > _MOST:
            self._models.popitem(last=False)

    async def load(self) -> None:
        """Read the file; whatever is wrong with it is logged, and nothing of it used."""
        try:
            read = await asyncio.to_thread(_read, self.path)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as bad:
            log.warning("what was learned cannot be read: it is learned anew", file=str(self.path), problem=str(bad))
            return
        for key, learned in read.items():
            self._models.setdefault(key, learned)

    async def save(self) -> None:
        """Write the file anew if anything has changed; it appears whole or not at all."""
        content = orjson.dumps(
            {
                "format": _FORMAT,
                "gate": __version__,
                "models": {key: asdict(learned) for key, learned in self._models.items()},
            }
        )
        if content == self._written or not self._models:
            return
        try:
            await asyncio.to_thread(_write, self.path, content)
        except OSError as bad:
            if str(bad) != self._problem:
                self._problem = str(bad)
                log.warning("what was learned cannot be written", file=str(self.path), problem=self._problem)
            return
        self._written, self._problem = content, ""

    async def keep(self, every: float = KEEP_EVERY) -> None:
        """Save again and again, for ever."""
        while True:
            await asyncio.sleep(every)
            await self.save()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        file.write(content)


def _read(path: Path) -> dict[str, Learned]:
    """What a file says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not what `save` writes.
    """
    with path.open("rb") as file:
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise ValueError("it is too long")
    saved = orjson.loads(content)
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT or not isinstance(saved.get("models"), dict):
        raise ValueError("it is of another format")
    same = saved.get("gate") == __version__
    return {key: learned_of(row, same=same) for key, row in saved["models"].items()}


def learned_of(row: Any, *, same: bool) -> Learned:
    """One model's row, as `asdict` makes it.

    Args:
        row: what was read.
        same: whether this version of the gate wrote it. Of another's only what it measured counts, because it rendered
            and counted otherwise.

    Raises:
        ValueError: it is none.
    """
    trust = row.get("trust") if isinstance(row, dict) else None
    if not isinstance(trust, dict):
        raise ValueError("a model has no trust")  # noqa: TRY004 - the file is wrong, not a type of ours
    image_tokens, ratio = _positive(row, "image_tokens"), _positive(trust, "ratio")
    if not same:
        return Learned(Trust(ratio=ratio), image_tokens=image_tokens)
    found: dict[str, Any] = {}
    for each in fields(Trust):
        value = trust.get(each.name)
        if each.name == "ratio":
            found["ratio"] = ratio
        elif type(value) is not type(each.default) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{each.name} is not what it was")
        else:
            found[each.name] = value
    return Learned(Trust(**found), row.get("checked") is True, image_tokens)


def _positive(holder: Mapping[str, Any], name: str) -> float | None:
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6 or not math.isfinite(value):
        raise ValueError(f"{name} is not what it was")
    return float(value)
