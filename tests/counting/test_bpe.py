import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from ollama_gate.counting import bpe
from ollama_gate.counting.pretokenizers import PATTERNS, RAW_TEXT
from ollama_gate.counting.tokenizer import Tokenizer, build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary
from support.small_vocabularies import BYTE, CONTROL, NORMAL, USER_DEFINED, byte_level, metadata, sentencepiece
from support.vocabularies import each, oracle_texts, tokenizer


def tokens(values: dict[str, Any], text: str, name: str = "test") -> list[str]:
    vocabulary = Vocabulary.from_metadata(values, name)
    built = build(vocabulary)
    ids = built.ids(text)
    assert built.count([text]) == [len(ids)]
    return [vocabulary.tokens[number] for number in ids]


def gemma4(pieces: list[str], merges: list[str]) -> dict[str, Any]:
    from ollama_gate.counting.letters import BYTE_TEXTS  # noqa: PLC0415 - only here

    texts = ["<bos>", *BYTE_TEXTS, *pieces]
    types = [CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)]
    return metadata("gemma4", texts, types, merges=merges, bos_token_id=0)


def test_byte_level_merges_in_order() -> None:
    assert tokens(byte_level(), "hello w") == ["hello", "Ġw"]
    assert tokens(byte_level(), "é") == ["Ã", "©"]


def test_specials_are_found_in_text_and_nothing_merges_across_them() -> None:
    assert tokens(byte_level(), "he<|im_end|>llo") == ["he", "<|im_end|>", "ll", "o"]


def test_of_two_equal_merges_the_first_counts() -> None:
    values = byte_level(merges=("a b", "b c"))
    values["tokenizer.ggml.merges"].append("a b")
    assert tokens(values, "abc") == ["ab", "c"]


def test_a_merge_whose_parts_nothing_makes_is_passed_over() -> None:
    values = byte_level(merges=("a b",))
    values["tokenizer.ggml.merges"] += ["xyz b", "nonsense"]
    assert tokens(values, "ab") == ["ab"]


def test_a_merge_that_makes_no_token_is_refused() -> None:
    values = byte_level(merges=("a b",))
    values["tokenizer.ggml.merges"] += ["b c"]
    with pytest.raises(UnknownVocabulary, match="'bc'"):
        build(Vocabulary.from_metadata(values, "test"))


def test_a_byte_without_a_token_is_dropped_but_keeps_its_neighbours_apart() -> None:
    values = byte_level(merges=("a b",))
    values["tokenizer.ggml.tokens"] = [text if text != "!" else "never" for text in values["tokenizer.ggml.tokens"]]
    assert tokens(values, "a!b ab!") == ["a", "b", "Ġ", "ab"]
    assert build(Vocabulary.from_metadata(values, "test")).facts.bytes_per_token == 0


def test_a_word_that_is_a_token_is_taken_whole_where_the_engine_ignores_merges() -> None:
    values = byte_level(merges=("b c",), specials={"abc": NORMAL})  # no merge leads to it
    assert tokens(values, "abc") == ["a", "bc"]
    values["tokenizer.ggml.pre"] = "llama-bpe"
    assert tokens(values | {"tokenizer.ggml.add_bos_token": False}, "abc") == ["abc"]


@pytest.mark.parametrize("pre", ["no-such-thing", "kimi-k2", "superbpe", "whitespace"])
def test_an_unknown_pre_tokenizer_is_refused_not_guessed(pre: str) -> None:
    with pytest.raises(UnknownVocabulary, match=pre):
        build(Vocabulary.from_metadata(byte_level() | {"tokenizer.ggml.pre": pre}, "test"))


def test_sentencepiece_joins_the_best_scored_neighbours() -> None:
    assert tokens(sentencepiece(), "ab a") == ["▁ab", "▁a"]
    assert tokens(sentencepiece(add_space_prefix=False), "ab a") == ["ab", "▁a"]


def test_sentencepiece_falls_back_to_bytes() -> None:
    assert tokens(sentencepiece(add_space_prefix=False), "aé") == ["a", "<0xC3>", "<0xA9>"]


def test_a_space_prefix_follows_every_special() -> None:
    assert tokens(sentencepiece(), "ab<start_of_turn>ab<end_of_turn>") == [
        "▁ab",
        "<start_of_turn>",
        "▁ab",
        "<end_of_turn>",
    ]


def test_a_character_that_is_no_token_still_takes_part_in_merges() -> None:
    values = sentencepiece({"▁": -9.0, "a": -1.0, "éa": -2.0}, add_space_prefix=False)
    assert tokens(values, "éaé") == ["éa", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (metadata("llama", ["a", "b", "c"], [NORMAL] * 3, scores=[0.0] * 3), "byte"),
        (sentencepiece() | {"tokenizer.ggml.scores": None}, "without scores"),
        (gemma4(["a", "\n", "\n\n"], []), "line ends"),
    ],
)
def test_what_the_library_cannot_do_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownVocabulary, match=said):
        build(Vocabulary.from_metadata(values, "test"))


def test_text_bpe_keeps_lines_apart_and_spaces_as_letters() -> None:
    values = gemma4(["a", "▁", "▁a", "\n", "\n\n", "a\n"], ["▁ a", "\n \n", "a \n"])
    assert tokens(values, " a\n\na\n") == ["▁a", "\n\n", "a", "\n"]


def test_clashing_specials_are_cut_as_the_engine_cuts_them() -> None:
    values = byte_level(specials={"[ab]": USER_DEFINED, "]xyz!": USER_DEFINED})
    assert tokens(values, "[ab]xyz!") == ["[", "a", "b", "]xyz!"]


def test_lone_surrogates_are_counted_as_go_reads_them() -> None:
    built = build(Vocabulary.from_metadata(byte_level(), "test"))
    assert built.ids("a\ud800b") == built.ids("a\ufffdb")
    assert built.count(["\udfff"]) == [3]


def test_pieces_are_the_text() -> None:
    built = build(Vocabulary.from_metadata(byte_level(), "test"))
    assert json.loads(built.pieces("hello w<|im_end|>é")) == ["hello", " w", "<|im_end|>", "\ufffd", "\ufffd"]
    assert build(Vocabulary.from_metadata(sentencepiece(), "test")).pieces("ab a\n") == b'[" ab"," a","\\n"]'


def library(built: Tokenizer) -> bpe.BpeEngine:
    assert isinstance(built.engine, bpe.BpeEngine)
    return built.engine


def test_long_texts_are_counted_in_parts() -> None:
    built = build(Vocabulary.from_metadata(byte_level(), "test"))
    line = "hello world, hello world\n"
    (one,) = built.count([line])
    assert built.count([line * 10_000, line, line * 3_000]) == [one * 10_000, one, one * 3_000]
    assert len(built.ids(line * 10_000)) == one * 10_000


@pytest.mark.parametrize(
    ("values", "cut"),
    [
        (byte_level(), bpe.WORDS),
        (byte_level(specials={"<|a b|>": USER_DEFINED}), bpe.LINES),
        (byte_level(specials={"?\nA": USER_DEFINED}), None),
        (byte_level(specials={"\nA": USER_DEFINED}), None),
        (sentencepiece(), None),
        (sentencepiece(add_space_prefix=False), bpe.LINES),
        (sentencepiece({"▁": -1.0, "\n": -1.0, "A": -1.0, "\nA": -1.0}, add_space_prefix=False), None),
    ],
)
def test_texts_are_cut_only_where_no_token_reaches_across(values: dict[str, Any], cut: re.Pattern[str] | None) -> None:
    assert library(build(Vocabulary.from_metadata(values, "test"))).cut is cut


PIECES = st.lists(
    st.sampled_from(
        ["\n", "x", "A", "one", " ", "  ", "\t", ".", "1234", "'s", "\r\n", "é", "世", "\u3000", "!\n", "s\n"]
    ),
    max_size=25,
).map("".join)
GROUPS = {patterns: name for name, patterns in PATTERNS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GROUPS.values()))
@given(before=PIECES, after=PIECES)
def test_every_pre_tokenizer_ends_a_word_at_a_cut(name: str, before: str, after: str) -> None:
    words = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[name]])

    def cut(text: str) -> list[str]:
        return [word for word, _ in words.pre_tokenize_str(text)]

    assert cut(before + "x\nA" + after) == cut(before + "x\n") + cut("A" + after)
    if name not in RAW_TEXT:
        assert cut(before + "x A" + after) == cut(before + "x") + cut(" A" + after)


UNITS = ("a", "A", "aA", " ", "\t ", "\n", " \n", "0", "!", "'s", "世", "a\u0301", "\u2028", "~", "\xa0", "Aé", "/")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GROUPS.values()))
def test_no_pre_tokenizer_takes_more_than_linear_time(name: str) -> None:
    # Quadratic time would be hours; the suite's own timeout is what this runs into.
    words = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[name]])
    for unit in UNITS:
        text = unit * 20_000 + "1x"
        assert "".join(word for word, _ in words.pre_tokenize_str(text)) == text


@pytest.mark.slow
@pytest.mark.vocab
@pytest.mark.parametrize("name", each(("gpt-2", "qwen2", "gemma3-270m", "gemma-4", "deepseek-coder")))
def test_counting_in_parts_gives_the_same_ids(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tokenizer(name)
    assert library(built).cut is not None
    texts = [text[:5000] for text in oracle_texts().values()]
    whole = [built.ids(text) for text in texts]
    for chunk in (1, 50):
        monkeypatch.setattr(bpe, "CHUNK", chunk)
        assert [built.ids(text) for text in texts] == whole
        assert built.count(texts) == [len(ids) for ids in whole]
