import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.catalog.modelstore import places, tokenizer_file

BLOB = "ab" * 32
LAYER = {"mediaType": "application/vnd.ollama.image.json", "digest": f"sha256:{BLOB}", "name": "tokenizer.json"}


def store(root: Path, manifest: Any, at: str = "registry.ollama.ai/library/mlx/latest") -> str:
    """A store with one model; its digest."""
    content = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    path = root / "manifests" / at
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (root / "blobs").mkdir(exist_ok=True)
    (root / "blobs" / f"sha256-{BLOB}").write_text("{}")
    return hashlib.sha256(content).hexdigest()


def test_the_tokenizer_is_a_layer_of_the_manifest(tmp_path: Path) -> None:
    others = [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "sha256:" + "cd" * 32}, 3]
    digest = store(tmp_path, {"layers": [*others, {**LAYER, "name": "config.json"}, LAYER]})
    found = tmp_path / "blobs" / f"sha256-{BLOB}"
    assert tokenizer_file("mlx", digest, [tmp_path / "empty", tmp_path]) == found
    assert tokenizer_file("mlx:latest", f"sha256:{digest}", [tmp_path]) == found
    assert tokenizer_file("mlx:8b", digest, [tmp_path]) is None


def test_a_manifest_of_another_digest_is_another_model(tmp_path: Path) -> None:
    store(tmp_path, {"layers": [LAYER]})
    assert tokenizer_file("mlx", "00" * 32, [tmp_path]) is None


@pytest.mark.parametrize("name", ["../../../etc/passwd", "mlx/../../x", "a/b/c/d", "", "/etc/passwd", "mlx:../../x"])
def test_no_name_leads_out_of_the_store(tmp_path: Path, name: str) -> None:
    digest = store(tmp_path, {"layers": [LAYER]})
    assert tokenizer_file(name, digest, [tmp_path]) is None


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[",
        [],
        {},
        {"layers": 3},
        {"layers": [{**LAYER, "digest": "sha256:../../../etc/passwd"}]},
        {"layers": [{**LAYER, "digest": None}]},
        {"layers": [{**LAYER, "digest": "sha256:" + "00" * 32}]},
        {"layers": [{**LAYER, "mediaType": "text/html"}]},
    ],
)
def test_a_manifest_that_names_no_tokenizer_leads_nowhere(tmp_path: Path, manifest: Any) -> None:
    digest = store(tmp_path, manifest)
    assert tokenizer_file("mlx", digest, [tmp_path]) is None


def test_stores_are_looked_for_where_ollama_has_them() -> None:
    service = Path("/usr/share/ollama/.ollama/models")
    assert places({}) == [service]
    assert places({"OLLAMA_MODELS": "relative", "HOME": "/home/a"}) == [Path("/home/a/.ollama/models"), service]
    assert places({"OLLAMA_MODELS": "/big/models"}) == [Path("/big/models"), service]
