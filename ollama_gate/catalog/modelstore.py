"""Files of Ollama's own model store that the API does not tell of: the tokenizer of a safetensors model.

A manifest is a JSON file at `manifests/<host>/<namespace>/<model>/<tag>`; its layers name files `blobs/sha256-<hex>`
(`manifest/manifest.go` and `manifest/paths.go`, Ollama v0.33). Paths are made of validated parts only, and a manifest
counts only if it has the very digest that Ollama gave.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from ollama_gate.catalog.names import InvalidName, parse

_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_MEDIA_TYPE: Final = "application/vnd.ollama.image.json"
_LONGEST: Final = 4 << 20
"""Bytes of a manifest that is read."""


def places(environ: Mapping[str, str]) -> list[Path]:
    """Where Ollama keeps its models: `OLLAMA_MODELS`, the user's place, that of the service on Linux."""
    found = [Path(told)] if Path(told := environ.get("OLLAMA_MODELS", "")).is_absolute() else []
    if home := environ.get("HOME"):
        found.append(Path(home) / ".ollama" / "models")
    return [*found, Path("/usr/share/ollama/.ollama/models")]


def tokenizer_file(name: str, digest: str, roots: Iterable[Path]) -> Path | None:
    """The `tokenizer.json` of a model, in the first store that has this very model and can be read.

    Args:
        name: the model's name as /api/tags has it.
        digest: its digest there, which is that of its manifest.
        roots: where to look; see `places`.
    """
    try:
        parts = parse(name)
    except InvalidName:
        return None
    for root in roots:
        manifest = root / "manifests" / parts.host / parts.namespace / parts.model / parts.tag
        blob = _blob(manifest, digest)
        if blob is not None and (found := root / "blobs" / blob).is_file():
            return found
    return None


def _blob(manifest: Path, digest: str) -> str | None:
    try:
        with manifest.open("rb") as file:
            content = file.read(_LONGEST)
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest() != digest.removeprefix("sha256:"):
        return None
    try:
        layers = orjson.loads(content).get("layers")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return next(filter(None, map(_tokenizer, layers if isinstance(layers, list) else ())), None)


def _tokenizer(layer: Any) -> str | None:
    """The file of a layer if it is the tokenizer."""
    if not isinstance(layer, dict) or layer.get("mediaType") != _MEDIA_TYPE or layer.get("name") != "tokenizer.json":
        return None
    found = _DIGEST.fullmatch(str(layer.get("digest")))
    return f"sha256-{found[1]}" if found is not None else None
