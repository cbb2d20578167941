from collections.abc import Mapping
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollama_gate.counting import scored
from ollama_gate.counting.merges import recipe
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from support.small_vocabularies import sentencepiece
from support.vocabularies import each, metadata

LETTERS = "ab"
DENSE = ["".join(letters) for size in (2, 3, 4, 5) for letters in product(LETTERS, repeat=size)]


def joined(text: str, scores: Mapping[str, float]) -> list[str]:
    """What the engine makes of a text: of all neighbours that make a token it joins the best, over and over.

    Of equal scores the token that comes first in the vocabulary, of one token's splits that with the shorter left part.
    """
    ids = {piece: number for number, piece in enumerate(scores)}
    parts = list(text)
    while True:
        joins = [
            (-scores[left + right], ids[left + right], len(left), at)
            for at, (left, right) in enumerate(pairwise(parts))
            if left + right in ids
        ]
        if not joins:
            return parts
        at = min(joins)[-1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def as_trained(joins: list[tuple[int, int, int]]) -> dict[str, float]:
    """A vocabulary as training makes it: each piece of two before it, and mostly scored below both."""
    scores = dict.fromkeys(LETTERS, 0.0)
    for place, (left, right, luck) in enumerate(joins):
        pieces = list(scores)
        scores.setdefault(pieces[left % len(pieces)] + pieces[right % len(pieces)], float(luck - place // 2))
    return scores


ANY = st.lists(st.tuples(st.sampled_from(DENSE), st.integers(-12, 0)), unique_by=lambda piece: piece[0]).map(
    lambda pieces: dict.fromkeys(LETTERS, 0.0) | {piece: float(score) for piece, score in pieces}
)
TRAINED = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from((0, 0, 0, 3))), max_size=20).map(
    as_trained
)


@pytest.mark.slow
@settings(max_examples=300)
@given(scores=ANY | TRAINED, data=st.data())
def test_what_is_left_out_is_never_missed(scores: dict[str, float], data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(list(scores)), max_size=12)))
    values = sentencepiece(scores, add_space_prefix=False)
    built = Vocabulary.from_metadata(values, "test")
    expected = joined(text, scores)
    assert [built.tokens[number] for number in build(built).ids(text)] == expected


def splits(scores: Mapping[str, float]) -> list[str]:
    pieces = list(scores)
    found = scored.merges(pieces, list(scores.values()), {piece: number for number, piece in enumerate(pieces)})
    return [f"{pieces[left]}+{pieces[right]}" for left, right in zip(found[::2], found[1::2], strict=True)]


def test_one_split_of_a_token_is_enough_where_the_other_never_happens() -> None:
    scores = {"a": 0.0, "b": 0.0, "c": 0.0, "ab": -1.0, "bc": -2.0, "abc": -3.0}
    assert splits(scores) == ["a+b", "b+c", "ab+c"]


def test_splits_between_which_it_is_not_clear_all_stay() -> None:
    assert splits({"a": 0.0, "aa": -1.0, "aaa": -2.0}) == ["a+a", "a+aa", "aa+a"]


def test_a_token_that_begins_as_a_byte_is_written_keeps_all_its_splits() -> None:
    letters = dict.fromkeys("<0xAb>", 0.0)
    scores = letters | {"<0": -1.0, "xA": -2.0, "<0x": -3.0, "<0xA": -4.0}
    assert splits(scores) == ["<+0", "x+A", "<0+x", "<0+xA", "<0x+A"]


@pytest.mark.slow
@pytest.mark.vocab
@pytest.mark.parametrize("name", each(("llama-spm", "phi-3", "gemma3-270m")))
def test_a_real_vocabulary_needs_hardly_more_than_one_split_a_token(name: str) -> None:
    known = Vocabulary.from_metadata(metadata(name), name)
    pairs = list(recipe(known).pairs())
    assert len({left + right for left, right in pairs}) <= len(pairs) < 1.1 * len(known.tokens)
