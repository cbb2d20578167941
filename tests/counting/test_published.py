import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers, processors

from ollama_gate.counting.facts import PUBLISHED
from ollama_gate.counting.published import load
from ollama_gate.errors import UnknownVocabulary
from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from ollama_gate.rehearsal.vocabulary import rehearsal_metadata
from support.gate import running_gate
from support.http import ask

WORDS = {"<unk>": 0, "<s>": 1, "hello": 2, "world": 3, "a": 4}


def words(path: Path, *, bos: bool = False) -> Path:
    engine = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.add_special_tokens([AddedToken("<s>", special=True)])
    engine.enable_truncation(2)
    if bos:
        engine.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    engine.save(str(path))
    return path


def rehearsals(path: Path) -> Path:
    """The rehearsal's own vocabulary as a published file."""
    told = rehearsal_metadata()
    tokens = told["tokenizer.ggml.tokens"]
    merges = [(merge[: merge.find(" ", 1)], merge[merge.find(" ", 1) + 1 :]) for merge in told["tokenizer.ggml.merges"]]
    engine = tokenizers.Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
    qwen = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(qwen), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    special = [token for token, kind in zip(tokens, told["tokenizer.ggml.token_type"], strict=True) if kind != 1]
    engine.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    engine.save(str(path))
    return path


def test_a_file_counts_whole_texts_and_knows_its_bos(tmp_path: Path) -> None:
    plain, adding = load(words(tmp_path / "tokenizer.json")), load(words(tmp_path / "other.json", bos=True))
    assert plain.count(["hello world hello", "<s>hello", ""]) == [3, 2, 0]
    assert (plain.facts.model, plain.facts.adds) == (PUBLISHED, 0)
    assert (adding.facts.adds_bos, adding.facts.adds_eos, adding.facts.bos_text) == (True, False, "<s>")
    assert adding.count(["hello"]) == [1]
    assert plain.pieces("hello <s>") == b'["hello","<s>"]'
    assert (plain.facts.byte_bound(10), plain.facts.bytes_per_token) == (None, 0)


def test_a_directory_is_taken_by_its_tokenizer_json(tmp_path: Path) -> None:
    words(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    found = load(tmp_path)
    assert (found.facts.bos_text, found.facts.eos_text) == ("<s>", "</s>")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b"\xff" * 100])
def test_what_is_none_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UnknownVocabulary, match="is no tokenizer"):
        load(tmp_path / "tokenizer.json")
    with pytest.raises(UnknownVocabulary, match="cannot be read"):
        load(tmp_path / "nowhere.json")


def test_slow_files_take_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnknownVocabulary, match=r"pip install 'ollama-gate\[transformers\]'"):
        load(tmp_path)


def test_with_transformers_its_tokenizer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return [1] * add_special_tokens + [7] * len(text.split())

        def convert_ids_to_tokens(self, number: int) -> str:
            return f"<{number}>"

        def __len__(self) -> int:
            return 9

    def make(path: str, **options: Any) -> Slow:
        assert options == {"local_files_only": True, "trust_remote_code": False}
        if path != str(tmp_path):
            raise OSError("no files")
        return Slow()

    library = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=make))
    monkeypatch.setitem(sys.modules, "transformers", library)
    found = load(tmp_path)
    assert (found.count(["a b c"]), found.facts.adds_bos, found.facts.bos_text) == ([3], True, "<1>")
    (tmp_path / "inner").mkdir()
    with pytest.raises(UnknownVocabulary, match="transformers cannot load"):
        load(tmp_path / "inner")


def chat(number: int) -> dict[str, Any]:
    return {"model": "named", "messages": [{"role": "user", "content": f"Say {number}."}], "stream": False}


@pytest.mark.slow
async def test_a_named_tokenizer_is_an_estimate_until_ollama_has_agreed_with_it(tmp_path: Path) -> None:
    named = {"named": {"tokenizer": str(rehearsals(tmp_path / "tokenizer.json"))}}
    model = Model("named:latest", mode=Mode.GO, text="go-chatml")
    async with (
        Rehearsal(Settings(models=(model,))) as ollama,
        running_gate(
            ollama.url, models=named, counting={"cache_dir": str(tmp_path)}, defaults={"num_ctx": 256}
        ) as gate,
    ):
        rungs = []
        for number in range(8):
            reply = await ask(gate.address, "POST", "/api/chat", chat(number))
            assert reply.status == 200
            rungs.append((await ask(gate.address, "POST", "/gate/count", chat(number))).json["rung"])
    assert rungs[0] == "estimate"
    assert rungs[-1] == "exact"


@pytest.mark.slow
async def test_a_named_tokenizer_that_is_another_one_never_becomes_exact(tmp_path: Path) -> None:
    named = {"named": {"tokenizer": str(words(tmp_path / "tokenizer.json"))}}
    model = Model("named:latest", mode=Mode.GO, text="go-chatml")
    async with (
        Rehearsal(Settings(models=(model,))) as ollama,
        running_gate(
            ollama.url, models=named, counting={"cache_dir": str(tmp_path)}, defaults={"num_ctx": 256}
        ) as gate,
    ):
        for number in range(8):
            reply = await ask(gate.address, "POST", "/api/chat", chat(number))
            assert (reply.status, reply.gate("rung")) != (200, "exact")
        told = (await ask(gate.address, "POST", "/gate/count", chat(1))).json
    assert told["rung"] == "estimate"
    assert json.loads(ollama.journal[-1].body)["truncate"] is False


async def test_a_named_tokenizer_that_is_not_there_leaves_the_bound(tmp_path: Path) -> None:
    named = {"named": {"tokenizer": str(tmp_path / "nowhere.json")}}
    model = Model("named:latest", mode=Mode.GO, text="go-chatml")
    async with Rehearsal(Settings(models=(model,))) as ollama, running_gate(ollama.url, models=named) as gate:
        told = (await ask(gate.address, "POST", "/gate/count", chat(1))).json
    assert told["rung"] == "bound"
    assert "cannot be read" in told["why"]
