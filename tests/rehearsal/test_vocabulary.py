"""The rehearsal's own vocabulary, and real ones from GGUF files against llama.cpp's token ids."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.rehearsal import MODELS, Model
from ollama_gate.rehearsal.vocabulary import CONTROL_TOKENS, Vocabulary, rehearsal_metadata
from support.vocabularies import ORACLE, each, vocabulary_file

PLAIN = MODELS[0].vocabulary


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert PLAIN.decode(PLAIN.encode(text)) == text


@given(st.text())
def test_a_text_never_has_more_tokens_than_bytes(text: str) -> None:
    assert len(PLAIN.encode(text)) <= len(text.encode())


@pytest.mark.parametrize("token", CONTROL_TOKENS)
def test_control_tokens_count_as_one_wherever_they_are_typed(token: str) -> None:
    assert len(PLAIN.encode(f"a{token}b")) == 3


def test_a_bos_is_added_where_the_metadata_says_so() -> None:
    with_bos = Vocabulary(rehearsal_metadata(add_bos=True))
    assert with_bos.specials == (1, 0)
    assert with_bos.decode(with_bos.encode("hi", special=True)) == "<|endoftext|>hi"
    assert PLAIN.specials == (0, 0)


def test_the_metadata_is_that_of_a_gguf_file() -> None:
    metadata = rehearsal_metadata()
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert len(set(tokens)) == len(tokens) == len(types)
    assert all(merge.count(" ") == 1 for merge in metadata["tokenizer.ggml.merges"])
    assert {tokens[metadata[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")} == {
        "<|endoftext|>",
        "<|im_end|>",
    }


@pytest.mark.vocab
@pytest.mark.slow
@pytest.mark.parametrize("name", each(["qwen2", "llama-bpe", "llama-spm", "gemma3-270m", "bert-bge"]))
def test_real_vocabularies_give_llama_cpps_ids(name: str) -> None:
    path = vocabulary_file(name)
    vocabulary = Model("rehearsal-real:latest", gguf=str(path)).vocabulary
    texts: dict[str, str] = json.loads((ORACLE / "texts.json").read_text("utf-8"))
    expected: dict[str, Any] = json.loads((ORACLE / f"{name}.json").read_text("utf-8"))["texts"]
    if name == "bert-bge":
        del texts["random_unicode"]  # holds characters that this Python's Unicode does not know yet
    for key, text in texts.items():
        repaired = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        ids = vocabulary.encode(repaired)
        digest = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]
        wanted = expected[key]
        assert (len(ids), digest) == (wanted["n"], wanted["sha"]), key
        assert len(vocabulary.encode(repaired, special=True)) == wanted["n_add_special"], key
