"""A safetensors model: Ollama does not tell its vocabulary, and its store on this host does."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from support.gate import running_gate
from support.http import ask

CHAT = {"model": "mlx", "messages": [{"role": "user", "content": "one two three"}]}


@dataclass(frozen=True)
class Safetensors(Model):
    """A model as Ollama tells of it that runs on MLX: no vocabulary, another format."""

    manifest: str = ""

    @cached_property
    def digest(self) -> str:
        return self.manifest

    @cached_property
    def details(self) -> Mapping[str, Any]:
        return {**super().details, "format": "safetensors"}

    @cached_property
    def model_info(self) -> Mapping[str, Any]:
        return {key: value for key, value in super().model_info.items() if not key.startswith("tokenizer.")}


def store(root: Path) -> str:
    """Ollama's store with one model; its digest."""
    engine = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "one": 1}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    (root / "blobs").mkdir(parents=True)
    engine.save(str(root / "written.json"))
    blob = hashlib.sha256((root / "written.json").read_bytes()).hexdigest()
    (root / "written.json").rename(root / "blobs" / f"sha256-{blob}")
    layer = {"mediaType": "application/vnd.ollama.image.json", "digest": f"sha256:{blob}", "name": "tokenizer.json"}
    manifest = json.dumps({"schemaVersion": 2, "layers": [layer]}).encode()
    place = root / "manifests" / "registry.ollama.ai" / "library" / "mlx" / "latest"
    place.parent.mkdir(parents=True)
    place.write_bytes(manifest)
    return hashlib.sha256(manifest).hexdigest()


async def test_its_tokenizer_is_read_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    model = Safetensors("mlx:latest", mode=Mode.GO, text="go-chatml", manifest=store(tmp_path))
    async with Rehearsal(Settings(models=(model,))) as ollama, running_gate(ollama.url) as gate:
        told = (await ask(gate.address, "POST", "/gate/tokenize", {"model": "mlx", "text": "one two three"})).json
        counted = (await ask(gate.address, "POST", "/gate/count", CHAT)).json
    assert (told["count"], told["pieces"]) == (3, ["one", "<unk>", "<unk>"])
    assert (counted["rung"], counted["parts"]["messages"]) == ("estimate", 3)
    assert counted["at_most"] > counted["tokens"]


async def test_without_the_store_it_is_bounded_and_the_reason_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "elsewhere"))
    model = Safetensors("mlx:latest", mode=Mode.GO, text="go-chatml", manifest=store(tmp_path))
    async with Rehearsal(Settings(models=(model,))) as ollama, running_gate(ollama.url) as gate:
        counted = (await ask(gate.address, "POST", "/gate/count", CHAT)).json
    assert counted["rung"] == "bound"
    assert "OLLAMA_MODELS" in counted["why"]
