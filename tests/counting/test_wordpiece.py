from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting import wordpiece
from ollama_gate.counting.characters import CharacterMap
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary
from support.small_vocabularies import metadata
from support.small_vocabularies import wordpiece as vocabulary

PAD, UNK, CLS, SEP, HELLO, WORLD, UN, KNOWN, S, DOT, CHINESE = range(11)

TOKENIZER = build(Vocabulary.from_metadata(vocabulary(), "test"))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        (" \n\t\xa0\u3000", []),
        ("hello world", [HELLO, WORLD]),
        ("HELLO\u2003World", [HELLO, WORLD]),
        ("héllo", [HELLO]),
        ("he\u0301llo", [HELLO]),
        ("hel\x00l\u200bo\ufffd", [HELLO]),
        ("unknowns", [UN, KNOWN, S]),
        ("hellos.", [HELLO, S, DOT]),
        ("hellox", [UNK]),
        ("x" * 1000, [UNK]),
        ("世世hello世", [CHINESE, CHINESE, HELLO, CHINESE]),
        ("hello[SEP]world", [HELLO, SEP, WORLD]),
        ("[sep]", [UNK, UNK, UNK]),
        ("[UNK]", [UNK]),
    ],
)
def test_words_are_made_of_the_longest_pieces(text: str, ids: list[int]) -> None:
    assert TOKENIZER.ids(text) == ids
    assert TOKENIZER.count([text, text]) == [len(ids)] * 2


def test_both_markers_are_added() -> None:
    assert (TOKENIZER.facts.adds, TOKENIZER.facts.bos_text) == (2, "[CLS]")


@given(st.lists(st.sampled_from(["hello", " ", "\n", "世", ".", "s", "x", "[SEP]", "é"]), max_size=40))
def test_where_a_text_is_normalised_in_parts_makes_no_difference(parts: list[str]) -> None:
    text = "".join(parts)
    whole = TOKENIZER.ids(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wordpiece, "CHUNK", 3)
        assert TOKENIZER.ids(text) == whole
        assert TOKENIZER.count([text]) == [len(whole)]


def test_case_and_accents_stay_where_the_file_says_so() -> None:
    values = metadata(
        "bert", ["[UNK]", "▁É", "▁e"], [3, 1, 1], unknown_token_id=0, bos_token_id=0, seperator_token_id=0
    )
    assert build(Vocabulary.from_metadata(values, "test")).ids("É e") == [2, 2]
    cased = values | {"tokenizer.ggml.normalizer.lowercase": False}
    assert build(Vocabulary.from_metadata(cased, "test")).ids("É e") == [1, 2]


def test_a_vocabulary_without_an_unknown_token_is_refused() -> None:
    values = metadata("bert", ["[CLS]", "[SEP]"], [3, 3], bos_token_id=0, seperator_token_id=1)
    with pytest.raises(UnknownVocabulary, match="unknown token"):
        build(Vocabulary.from_metadata(values, "test"))


ASSIGNED = [*range(0xD800), *range(0xE000, 0x18E00), *range(0x1A000, 0x20100), *range(0xE0000, 0xE0200), 0x10FFFF]
"""Code points of the planes that hold more than ideographs."""


@pytest.mark.slow
@pytest.mark.parametrize(("strip_accents", "digest"), [(True, "f9318137dbc7a356"), (False, "001bac98998c4562")])
def test_every_character_is_what_the_engines_tables_make_of_it(*, strip_accents: bool, digest: str) -> None:
    # The digest was taken of llama.cpp b10488's own tables (src/unicode-data.cpp), put through its rules.
    table = CharacterMap(lowercase=True, strip_accents=strip_accents)
    made = "|".join(table[code] for code in ASSIGNED)
    assert sha256(made.encode()).hexdigest()[:16] == digest
