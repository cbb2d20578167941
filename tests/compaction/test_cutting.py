"""Where texts are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.compaction.building import cut, marker
from ollama_gate.compaction.cutting import spans
from ollama_gate.compaction.passages import LONG, passages
from support.random_talks import TEXTS

LINES = "\n".join(f"{number:04d},{number * 7}" for number in range(300))


@given(TEXTS, st.integers(0, 2000))
def test_never_more_stays_than_was_asked_for(text: str, characters: int) -> None:
    head, tail = spans(text, characters)
    assert head >= 0
    assert tail >= 0
    assert head + tail <= min(characters, len(text))
    if characters >= len(text):
        assert head == len(text)


@pytest.mark.parametrize("characters", [100, 333, 1000, 1500])
def test_lines_stay_whole(characters: int) -> None:
    head, tail = spans(LINES, characters)
    assert LINES[:head].endswith("\n")
    assert LINES[len(LINES) - tail - 1] == "\n"
    assert head + tail > 0.7 * characters
    assert 1.2 < head / tail < 3


def test_words_stay_whole_where_there_are_no_lines() -> None:
    text = "harbour lantern " * 200
    head, tail = spans(text, 500)
    assert text[head - 1] == " " or text[head] == " "
    assert text[len(text) - tail :].startswith(("harbour", "lantern", " "))


@pytest.mark.parametrize("whole", ["👩\u200d👩\u200d👧", "🇩🇪", "e\u0301\u0323", "👍🏽", "\r\n"])
def test_what_a_reader_sees_as_one_character_is_not_broken(whole: str) -> None:
    text = whole * 400
    for characters in range(30, 60):
        head, tail = spans(text, characters)
        for part in (text[:head], text[len(text) - tail :]):
            assert part == whole * (len(part) // len(whole)), (characters, part)


def test_digits_without_any_break_are_cut_anywhere() -> None:
    head, tail = spans("7" * 5000, 900)
    assert (head, tail) == (600, 300)


@given(TEXTS, st.integers(0, 400))
def test_head_marker_and_tail_are_what_was_there(text: str, characters: int) -> None:
    head, tail = spans(text, characters)
    out = cut(text, head, tail, "ab" * 32)
    if out != text:
        said = marker(len(text) - head - tail, "ab" * 32)
        assert out == "\n".join(part for part in (text[:head], said, text[len(text) - tail :] if tail else "") if part)
        assert len(out) <= len(text) + 2


@given(TEXTS, st.integers(100, 700))
def test_passages_are_the_text_without_gaps(text: str, long: int) -> None:
    found = list(passages(text, long))
    assert all(end - start <= (2 * long if len(found) == 1 else long) for start, end in found)
    between = [0, *(place for pair in found for place in pair), len(text)]
    assert between == sorted(between)
    skipped = "".join(text[before:after] for before, after in zip(between[::2], between[1::2], strict=True))
    assert not skipped.strip()


def test_passages_end_with_paragraphs_lines_or_sentences() -> None:
    text = "".join(f"This is sentence {number} of a text. " for number in range(80))
    ends = [text[:end].rstrip()[-1] for _, end in passages(text)]
    assert set(ends) == {"."}
    assert max(end - start for start, end in passages(text)) <= LONG
