import itertools
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting import chunking
from ollama_gate.counting.chunking import Chunk, TooTight, chunks
from ollama_gate.counting.tokenizer import Tokenizer, build
from ollama_gate.counting.vocabulary import Vocabulary
from support.small_vocabularies import byte_level, sentencepiece, wordpiece
from support.vocabularies import oracle_texts, tokenizer


def made(metadata: dict[str, object]) -> Tokenizer:
    return build(Vocabulary.from_metadata(metadata, "made by hand"))


SMALL = {"bpe": made(byte_level()), "sentencepiece": made(sentencepiece()), "wordpiece": made(wordpiece())}


def letters(texts: Sequence[str]) -> list[int]:
    """A count that is easy to follow: one token a character."""
    return [len(text) for text in texts]


def cut(text: str, most: int, overlap: int = 0) -> list[str]:
    return [text[chunk.start : chunk.end] for chunk in chunks(text, letters, most=most, overlap=overlap)]


def assert_whole(text: str, found: Sequence[Chunk], engine: Tokenizer, most: int, overlap: int) -> None:
    assert "".join(text[chunk.fresh : chunk.end] for chunk in found) == text
    for before, chunk in zip([None, *found], found, strict=False):
        assert chunk.tokens == engine.count([text[chunk.start : chunk.end]])[0] <= most
        assert chunk.fresh == (before.end if before else 0) < chunk.end
        assert (before.fresh if before else 0) <= chunk.start <= chunk.fresh
        assert engine.count([text[chunk.start : chunk.fresh]])[0] <= overlap


ALPHABET = st.sampled_from(
    [*"ab .\n!?。 \t\u00a0\u3000'\")he世é", "hello", " world", "\n\n", ". ", "<|im_end|>", "👩‍👩‍👧", "\ud800"]
)


@pytest.mark.parametrize("engine", SMALL)
@given(
    st.lists(ALPHABET, max_size=80).map("".join),
    st.integers(32, 60),
    st.integers(0, 20),
)
def test_nothing_is_lost_and_every_chunk_is_within(engine: str, text: str, most: int, overlap: int) -> None:
    counted = SMALL[engine]
    assert_whole(text, list(chunks(text, counted.count, most=most, overlap=overlap)), counted, most, overlap)


@pytest.mark.vocab
def test_hostile_texts_under_a_real_vocabulary() -> None:
    engine = tokenizer("bert-bge")
    for name, long in oracle_texts().items():
        text = long[:300]
        found = list(chunks(text, engine.count, most=40, overlap=8))
        assert_whole(text, found, engine, 40, 8)
        assert len(found) > 1 or engine.count([text])[0] <= 40, name


def test_it_is_cut_at_paragraphs_before_sentences_before_words_before_characters() -> None:
    assert cut("one two.\n\nthree. four five", 20) == ["one two.\n\n", "three. four five"]
    assert cut("one. two three four", 12) == ["one. ", "two three ", "four"]
    assert cut("one two three", 8) == ["one two ", "three"]
    assert cut("abcdefghij kl", 4) == ["abcd", "efgh", "ij ", "kl"]
    assert cut("一二。三四五。六七", 5) == ["一二。", "三四五。", "六七"]
    assert cut("", 5) == []
    assert cut("fits", 4) == ["fits"]


def test_a_chunk_takes_all_paragraphs_that_fit() -> None:
    assert cut("a\n\nb\n\nc\n\nd", 7) == ["a\n\nb\n\n", "c\n\nd"]


def test_an_overlap_repeats_whole_sentences_else_words_else_characters() -> None:
    assert cut("Aa bb. Cc dd. Ee ff. Gg.", 14, 7) == ["Aa bb. Cc dd. ", "Cc dd. Ee ff. ", "Ee ff. Gg."]
    assert cut("aa bb cc dd", 6, 3) == ["aa bb ", "bb cc ", "cc dd"]
    assert cut("abcdefgh", 4, 2) == ["abcd", "cdef", "efgh"]


def test_an_overlap_gives_way_where_a_word_would_be_broken() -> None:
    assert cut("aaa bbbbbbbb c", 9, 4) == ["aaa ", "bbbbbbbb ", "c"]


def test_a_character_that_is_too_much_by_itself_is_said() -> None:
    with pytest.raises(TooTight, match="position 2"):
        list(chunks("ab👩", SMALL["bpe"].count, most=3))


def test_the_longest_fitting_end_is_found_whatever_the_first_guess() -> None:
    words = "".join(f"{'w' * (1 + 7 * number % 23)} " for number in range(500))
    for most in (24, 50, 333):
        found = cut(words, most)
        for chunk, after in itertools.pairwise(found):
            assert len(chunk) + after.index(" ") + 1 > most


@pytest.mark.parametrize("text", [".", "?)", " ", "\n", "\n \n", "a", ". ", "。"], ids=repr)
def test_runs_of_one_thing_cost_time_in_proportion(text: str) -> None:
    calls = 0

    def count(texts: Sequence[str]) -> list[int]:
        nonlocal calls
        calls += 1
        return letters(texts)

    long = text * 20_000
    assert "".join(long[chunk.fresh : chunk.end] for chunk in chunks(long, count, most=100)) == long
    assert calls < len(long) / 100 * 12


@pytest.mark.parametrize("most", [1, 3, 50])
@pytest.mark.parametrize("overlap", [0, 1])
def test_what_is_counted_of_a_text_without_a_break_grows_with_its_length(most: int, overlap: int) -> None:
    counted = 0

    def count(texts: Sequence[str]) -> list[int]:
        nonlocal counted
        counted += sum(map(len, texts))
        return letters(texts)

    spent = []
    for length in (5_000, 10_000):
        counted = 0
        found = list(chunks("x" * length, count, most=most, overlap=min(overlap, most // 2)))
        assert found[-1].end == length
        spent.append(counted / length)
    assert spent[1] < spent[0] * 1.1


def test_the_rest_of_a_broken_word_is_joined_to_what_follows_where_it_fits() -> None:
    assert cut("x" * 43 + " abc", 10) == ["x" * 10, "x" * 10, "x" * 10, "x" * 10, "xxx abc"]


@given(st.lists(ALPHABET, max_size=80).map("".join), st.integers(1, 9))
def test_places_to_cut_are_the_same_however_the_text_is_searched(text: str, scanned: int) -> None:
    places = [chunking._PARAGRAPH, chunking._SENTENCE, chunking._WORD]
    expected = sorted({found.end() for place in places for found in place.finditer(text)} | {len(text)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "_SCANNED", scanned)
        assert chunking._ends(text, *places).tolist() == expected


@pytest.mark.slow
def test_places_to_cut_take_few_bytes_each() -> None:
    text = "a " * 200_000
    tracemalloc.start()
    try:
        places = chunking._ends(text, chunking._WORD)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(places) == 200_000
    assert most < 30 * len(places)
