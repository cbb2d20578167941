import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting.letters import BYTE_TEXTS
from ollama_gate.counting.specials import TokenType
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary
from support.small_vocabularies import (
    BYTE,
    CONTROL,
    NORMAL,
    USER_DEFINED,
    byte_level,
    metadata,
    sentencepiece,
    unigram,
    wordpiece,
)


def read(values: dict[str, Any], name: str = "test:latest") -> Vocabulary:
    return Vocabulary.from_metadata(values, name)


def test_arrays_that_are_null_say_that_verbose_is_missing() -> None:
    shown = {key: None if isinstance(value, list) else value for key, value in byte_level().items()}
    with pytest.raises(UnknownVocabulary, match="verbose"):
        read(shown)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "tokenizer.ggml.model is missing"),
        (metadata("rwkv", ["a"], [1]), "'rwkv'"),
        (metadata("none", ["a"], [1]), "'none'"),
        (metadata("gpt2", [], []), "no tokens"),
        (metadata("gpt2", ["a", "a"], [1, 1], merges=[]), "same text"),
        (metadata("gpt2", ["a", "b"], [1], merges=[]), "1 entries for 2 tokens"),
        (metadata("gpt2", ["a", "b"], [1, 1]), "merges is missing"),
        (byte_level(merges_=0) | {"tokenizer.ggml.tokens": "abc"}, "not a list of strings"),
        (byte_level() | {"tokenizer.ggml.token_type": ["1"] * 999}, "not a list of numbers"),
        (sentencepiece({"a": float("nan")}), "no score"),
        (sentencepiece({"a": 1e300}), "no score"),
        (sentencepiece({"a": 10**400}), "no score"),
        (byte_level(add_eos_token=True, eos_token_id=10**6) | {"tokenizer.ggml.tokens": ["a"]}, "EOS"),
    ],
)
def test_what_cannot_be_read_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownVocabulary, match=said):
        read(values)


@pytest.mark.parametrize(
    ("values", "adds"),
    [
        (byte_level(), (False, False)),
        (byte_level(add_bos_token=True, bos_token_id=3), (True, False)),
        (byte_level(add_bos_token=True, add_eos_token=True), (True, True)),
        (byte_level() | {"tokenizer.ggml.pre": "llama-bpe"}, (True, False)),
        (byte_level(add_bos_token=False) | {"tokenizer.ggml.pre": "llama-bpe"}, (False, False)),
        (byte_level() | {"tokenizer.ggml.pre": "tekken"}, (True, False)),
        (sentencepiece(), (True, False)),
        (sentencepiece(add_bos_token=False), (False, False)),
        (metadata("gemma4", ["a", "b"], [1, 1], merges=[], add_bos_token=False, bos_token_id=1), (True, False)),
        (wordpiece(), (True, True)),
        (wordpiece(add_bos_token=False, add_eos_token=False), (True, True)),
        (metadata("t5", ["a", "b", "c"], [1, 1, 1]), (False, True)),
    ],
)
def test_what_is_added_follows_the_engine(values: dict[str, Any], adds: tuple[bool, bool]) -> None:
    vocabulary = read(values)
    assert (vocabulary.add_bos, vocabulary.add_eos) == adds


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    vocabulary = read(sentencepiece(bos_token_id=10**6, eos_token_id=-1))
    assert (vocabulary.bos_id, vocabulary.eos_id) == (1, 2)


def test_glm_has_no_bos_unless_named() -> None:
    assert read(byte_level() | {"tokenizer.ggml.pre": "chatglm-bpe"}).bos_id is None
    assert read(byte_level(bos_token_id=5) | {"tokenizer.ggml.pre": "chatglm-bpe"}).bos_id == 5


def test_the_pre_tokenizer_is_default_where_nothing_is_said() -> None:
    values = byte_level()
    del values["tokenizer.ggml.pre"]
    assert read(values).pre == "default"
    assert read(values | {"tokenizer.ggml.pre": ""}).pre == "default"


def test_empty_tokens_get_the_engines_names() -> None:
    assert read(metadata("gpt2", ["a", "", ""], [1, 1, 1], merges=[])).tokens == ["a", "[EMPTY_1]", "[EMPTY_2]"]


def test_types_are_normal_where_the_file_has_none() -> None:
    values = byte_level()
    del values["tokenizer.ggml.token_type"]
    vocabulary = read(values)
    assert set(vocabulary.types[:-1]) == {TokenType.NORMAL}
    assert [token.text for token in vocabulary.specials.tokens] == ["<|im_end|>"]  # forced


@pytest.mark.parametrize("name", ["phi3:mini", "me/Phi-3-medium:latest"])
def test_the_tokens_of_phi_3_swallow_white_space(name: str) -> None:
    values = sentencepiece(specials={"<|user|>": CONTROL, "<|endoftext|>": CONTROL})
    swallow = {token.text: token.rstrip for token in read(values, name).specials.tokens}
    assert swallow == {"<unk>": False, "<s>": False, "</s>": True, "<|user|>": True, "<|endoftext|>": False}


def test_a_model_made_from_phi_3_is_known_by_its_architecture() -> None:
    values = sentencepiece(specials={"<|user|>": CONTROL}) | {"general.architecture": "phi3"}
    assert [token.text for token in read(values, "helper").specials.tokens if token.rstrip] == ["</s>", "<|user|>"]
    assert not any(token.rstrip for token in read(values | {"general.name": "Other"}, "phi3").specials.tokens)


def test_tokens_that_swallow_others_of_white_space_are_refused() -> None:
    with pytest.raises(UnknownVocabulary, match="swallow white space"):
        read(sentencepiece(specials={"<|user|>": CONTROL, "  ": USER_DEFINED}), "phi3")


def test_a_blank_that_is_no_token_costs_its_three_bytes() -> None:
    values = metadata("gpt2", list(BYTE_TEXTS), [BYTE] * 256, merges=[], pre="granite-embed-multi-311m", bos_token_id=0)
    found = build(read(values))
    assert found.count([" !"]) == [4]
    assert (found.facts.byte_bound(2) or 0) >= 4 + found.facts.adds


def test_the_name_in_the_file_counts_more_than_ollamas() -> None:
    values = sentencepiece() | {"general.name": "Llama 2"}
    assert not any(token.rstrip for token in read(values, "phi3").specials.tokens)


@pytest.mark.parametrize(
    ("more", "mask"),
    [({"general.architecture": "nomic-bert-moe"}, "<mask>"), ({"general.name": "modern-bert base"}, "[MASK]")],
)
def test_masks_swallow_white_space_before_them(more: dict[str, str], mask: str) -> None:
    values = metadata("bert", ["[PAD]", "[UNK]", mask], [CONTROL] * 3, bos_token_id=0, seperator_token_id=0) | more
    assert {token.text: token.lstrip for token in read(values).specials.tokens}[mask]


@pytest.mark.parametrize("charsmap", [[1, 2, 255], base64.b64encode(bytes([1, 2, 255])).decode()])
def test_bytes_come_as_numbers_from_a_file_and_as_base64_from_json(charsmap: Any) -> None:
    values = metadata("t5", ["a", "b", "c"], [NORMAL] * 3, precompiled_charsmap=charsmap)
    assert read(values).charsmap == bytes([1, 2, 255])


def test_bytes_that_are_none_are_refused() -> None:
    with pytest.raises(UnknownVocabulary, match="precompiled_charsmap"):
        read(metadata("t5", ["a", "b", "c"], [NORMAL] * 3, precompiled_charsmap="*"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
EXTRA = [
    "general.name",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.fim_pre_token_id",
    "tokenizer.ggml.normalizer.lowercase",
]
VALUES = [byte_level(), sentencepiece(), wordpiece(), unigram(), metadata("gemma4", ["a", "b"], [1, 1], merges=["a b"])]


@given(base=st.sampled_from(VALUES), data=st.data())
def test_hostile_metadata_is_refused_or_read_but_never_breaks_anything(
    base: dict[str, Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.sampled_from(sorted({*base, *EXTRA})), min_size=1, max_size=3))
    damaged = base | {key: data.draw(JSON) for key in keys}
    try:
        build(Vocabulary.from_metadata(damaged, "test"))
    except UnknownVocabulary as error:
        assert str(error)  # noqa: PT017 - either outcome is right, another exception is not
