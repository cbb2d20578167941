"""Which passages have to do with a question."""

import pytest

from ollama_gate.compaction.ranking import by_words, combined, words

FILLER = [f"On day {day} the keeper of the ferry wrote down what came in." for day in range(40)]


@pytest.mark.parametrize(
    ("question", "passage"),
    [
        ("What is the vault code?", "The vault code is QUARRY-5519."),
        ("where does QUARRY-5519 open", "It said quarry 5519 on the door"),
        ("金庫の暗証番号は何ですか", "昨日、金庫の暗証番号を変えました"),
        ("비밀번호가 무엇입니까", "새 비밀번호는 칠입니다"),
        ("Wie heißt der Kurier?", "Der KURIER kommt morgen."),
    ],
)
def test_the_passage_with_the_questions_rare_words_comes_first(question: str, passage: str) -> None:
    texts = [*FILLER[:17], passage, *FILLER[17:]]
    scores = by_words(question, texts)
    assert max(scores) == scores[17] == 1.0
    assert all(0 <= score < 1 for at, score in enumerate(scores) if at != 17)


@pytest.mark.parametrize("question", ["", "???", "zebra", '" OR NEAR(', "'; DROP TABLE passages; --", "a " * 5000])
def test_a_question_without_common_words_ranks_nothing(question: str) -> None:
    assert by_words(question, FILLER) == [0.0] * len(FILLER)
    assert by_words(question, []) == []


def test_a_word_that_all_have_is_worth_little_but_not_nothing() -> None:
    assert all(score > 0 for score in by_words("ferry", FILLER))


def test_words_are_told_apart() -> None:
    assert words("QUARRY-5519 get_price naïve Straße") == ["quarry", "5519", "get", "price", "naïve", "straße"]
    assert words("漢字仮名mixed字") == ["漢字", "字仮", "仮名", "mixed", "字"]


def test_meaning_counts_for_six_tenths() -> None:
    assert combined([1.0, 0.5, 0.0], None) == [1.0, 0.5, 0.0]
    assert combined([1.0, 0.5, 0.0], [0.5, None, -1.0]) == pytest.approx([0.7, 0.2, 0.0])
