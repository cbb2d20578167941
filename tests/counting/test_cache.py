import base64
import struct
from pathlib import Path
from typing import Any

import orjson
import pytest

from ollama_gate.counting import cache
from ollama_gate.counting.merges import BpeRecipe
from ollama_gate.counting.store import place
from ollama_gate.counting.tokenizer import assemble, plan
from ollama_gate.counting.vocabulary import Vocabulary
from support.small_vocabularies import byte_level, sentencepiece, unigram, wordpiece

TEXT = "hello world! ab a\n<|im_end|> unknown é世\x03<start_of_turn>[SEP]"


@pytest.mark.parametrize(
    "values",
    [
        byte_level(),
        byte_level(merges=()) | {"tokenizer.ggml.pre": "falcon"},
        sentencepiece(),
        sentencepiece({"▁": -9.0, "éa": -1.0}, add_space_prefix=False),
        wordpiece(),
        unigram(),
    ],
)
def test_what_was_kept_counts_the_same(values: dict[str, Any], tmp_path: Path) -> None:
    facts, recipe = plan(Vocabulary.from_metadata(values, "phi3"))
    path = place(tmp_path, "sha256:0123")
    cache.save(path, facts, recipe)

    loaded = cache.load(path)

    assert loaded is not None
    first, second = assemble(facts, recipe), assemble(*loaded)
    assert second.ids(TEXT) == first.ids(TEXT)
    assert second.pieces(TEXT) == first.pieces(TEXT)
    assert second.facts.to_json() == first.facts.to_json()
    assert [path.name] == [found.name for found in tmp_path.iterdir()]


def test_merges_are_kept_in_four_little_endian_bytes_each() -> None:
    _, recipe = plan(Vocabulary.from_metadata(sentencepiece(), "test"))
    assert isinstance(recipe, BpeRecipe)
    assert recipe.merges
    kept = recipe.to_json()
    assert base64.b64decode(kept["merges"]) == struct.pack(f"<{len(recipe.merges)}I", *recipe.merges)
    assert BpeRecipe.from_json(orjson.loads(orjson.dumps(kept))).merges == recipe.merges


def kept(directory: Path) -> Path:
    path = place(directory, "sha256:0123")
    cache.save(path, *plan(Vocabulary.from_metadata(byte_level(), "test")))
    return path


def test_nothing_is_loaded_where_there_is_nothing(tmp_path: Path) -> None:
    assert cache.load(tmp_path / "missing") is None


@pytest.mark.parametrize("at", [0, 20, -1])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, at: int) -> None:
    path = kept(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert cache.load(path) is None


def test_a_file_cut_short_is_as_good_as_none(tmp_path: Path) -> None:
    path = kept(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert cache.load(path) is None
    path.write_bytes(b"")
    assert cache.load(path) is None


def test_a_file_of_another_builder_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kept(tmp_path)
    monkeypatch.setattr(cache, "MAKER", cache.MAKER + 1)
    assert cache.load(path) is None


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        kept(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_any_digest_makes_a_file_name(tmp_path: Path) -> None:
    names = {place(tmp_path, digest) for digest in ("sha256:0123", "../../etc/passwd", "", "é" * 999)}
    assert len(names) == 4
    assert {path.parent for path in names} == {tmp_path}


def test_facts_survive_json() -> None:
    facts, _ = plan(Vocabulary.from_metadata(sentencepiece(), "phi3"))
    assert type(facts).from_json(orjson.loads(orjson.dumps(facts.to_json()))).specials == facts.specials
