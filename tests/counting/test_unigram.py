import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting.charsmap import Replacements, decoded
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary
from support.small_vocabularies import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, compiled, metadata, unigram

STRETCHES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=3)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)


def tokens(values: dict[str, Any], text: str) -> list[str]:
    vocabulary = Vocabulary.from_metadata(values, "test")
    built = build(vocabulary)
    ids = built.ids(text)
    assert built.count([text]) == [len(ids)]
    return [vocabulary.tokens[number] for number in ids]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("ab", ["▁ab"]),
        ("ab ab", ["▁ab", "▁ab"]),
        ("  ab", ["▁", "▁", "▁ab"]),
        ("   ", ["▁", "▁", "▁"]),
        ("ａb\u3000\nb\u0300", ["▁ab", "▁", "▁", "b"]),
        ("ﷺ", ["▁a", "▁", "b"]),
        ("xyz", ["▁", "<unk>"]),
        ("x y", ["▁", "<unk>", "▁", "<unk>"]),
        ("ab</s>ab", ["▁ab", "</s>", "▁ab"]),
    ],
)
def test_the_best_pieces_are_taken(text: str, found: list[str]) -> None:
    assert tokens(unigram(), text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [("  ab   a\n", ["▁ab", "▁", "a"]), ("   ", []), ("\x01", []), ("a \x01 b", ["▁", "a", "▁", "b"])],
)
def test_spaces_are_merged_where_the_file_says_so(text: str, found: list[str]) -> None:
    values = unigram({"▁": -3.0, "▁ab": -4.0, "a": -5.0, "b": -5.0}, remove_extra_whitespaces=True)
    assert tokens(values, text) == found


def test_eos_is_added_unless_the_file_says_otherwise() -> None:
    assert build(Vocabulary.from_metadata(unigram(), "test")).facts.adds == 1
    assert build(Vocabulary.from_metadata(unigram(add_eos_token=False), "test")).facts.adds == 0


def test_no_bound_is_claimed() -> None:
    facts = build(Vocabulary.from_metadata(unigram(), "test")).facts
    assert (facts.byte_bound(100), facts.bytes_per_token) == (None, 0)


def test_a_user_defined_token_costs_nothing_and_an_unused_one_is_as_if_it_were_not_there() -> None:
    values = metadata(
        "t5",
        ["<pad>", "</s>", "<unk>", "▁", "a", "b", "bb", "aaaa"],
        [CONTROL, CONTROL, UNKNOWN, NORMAL, NORMAL, NORMAL, USER_DEFINED, UNUSED],
        scores=[0.0, 0.0, 0.0, -3.0, -4.0, -4.0, -99.0, -1000.0],
    )
    assert tokens(values, "abbaaaa") == ["a", "bb", "a", "a", "a", "a"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (unigram() | {"tokenizer.ggml.scores": None}, "without scores"),
        (unigram(precompiled_charsmap=[1, 2]), "normalisation"),
        (
            unigram(
                precompiled_charsmap=list(struct.pack("<I256I", 1024, *[0] * 97, 97 | 1 << 8 | 5000 << 10, *[0] * 158))
            ),
            "normalisation",
        ),
        (
            metadata(
                "t5", ["a", "</s>", "<unk>", "b"], [NORMAL, CONTROL, UNKNOWN, UNUSED], scores=[-1.0, 0.0, 0.0, -2.0]
            ),
            "unused",
        ),
    ],
)
def test_what_cannot_be_exact_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UnknownVocabulary, match=said):
        build(Vocabulary.from_metadata(values, "test"))


@given(st.dictionaries(STRETCHES, TEXTS, max_size=8))
def test_a_compiled_normalisation_is_read_back(replacements: dict[str, str]) -> None:
    assert decoded(compiled(replacements)) == replacements


@given(st.binary(max_size=60))
def test_a_hostile_normalisation_is_refused_or_read(charsmap: bytes) -> None:
    try:
        decoded(charsmap)
    except UnknownVocabulary as error:
        assert str(error)  # noqa: PT017 - either outcome is right, another exception is not


def test_a_normalisation_that_goes_in_circles_is_refused() -> None:
    units = [0] * 256
    units[ord("a")] = ord("a") | ord("a") << 10  # its children are the root's
    with pytest.raises(UnknownVocabulary, match="never ends"):
        decoded(struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"\0")


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("xyz", max_size=2), max_size=6), st.text("abcd"))
def test_the_longest_known_stretch_is_replaced_at_each_place(replacements: dict[str, str], text: str) -> None:
    expected, at = "", 0
    while at < len(text):
        known = [length for length in (3, 2, 1) if text[at : at + length] in replacements and at + length <= len(text)]
        length = known[0] if known else 1
        expected += replacements[text[at : at + length]] if known else text[at]
        at += length
    assert Replacements(replacements)(text) == expected
