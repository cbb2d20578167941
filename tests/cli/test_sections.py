"""A long prompt taken apart, and put together again without loss."""

from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.cli.sections import CORE, UNIT, changing, repeated, sections, slug, split

TEXT = """Before.

# One
first
```sh
# no heading
```
## Two ##
second
"""
PASSAGE = "Always run the whole test suite before you say that something works, and say what failed in plain words."


def words(text: str) -> int:
    return len(text.split())


def test_sections_begin_at_headings_and_not_in_code() -> None:
    assert [(one.level, one.title) for one in sections(TEXT)] == [(0, ""), (1, "One"), (2, "Two")]
    assert sections(TEXT)[1].text == "# One\nfirst\n```sh\n# no heading\n```\n"


def test_an_underlined_line_is_a_heading_and_a_rule_is_none() -> None:
    text = (
        "Rules\r\n=====\r\nbe short\r\n\r\n"
        "Tools\r\n---\r\nfew\r\n---\r\n\r\n- one\r\n---\r\n\r\n```\r\n\r\nx\r\n===\r\n"
    )
    found = sections(text)
    assert [(one.level, one.title) for one in found] == [(1, "Rules"), (2, "Tools")]
    assert "".join(one.text for one in found) == text
    assert [one.title for one in sections("---\nname: x\n---\ntext\n")] == [""]


lines = st.sampled_from(
    ["# a\n", "===\n", "---\r\n", "## b c\n", "text\n", "```\n", "~~~~\n", "\n", "#no\n", "x\r\n", "\u2028", "last"]
)


@given(st.lists(lines).map("".join) | st.text())
def test_sections_put_together_are_the_text(text: str) -> None:
    assert "".join(one.text for one in sections(text)) == text


@given(st.lists(st.tuples(lines, st.integers(1, 3000)), max_size=40))
def test_units_put_together_are_the_text(made: list[tuple[str, int]]) -> None:
    text = "".join(line + ("word " * size + "\n\n") for line, size in made)
    units = split(sections(text), words)
    assert "".join(unit.text for unit in units) == text
    assert units[0].tokens <= CORE


def test_units_are_as_large_as_they_should_be() -> None:
    text = "".join(f"# Part {number}\n\n" + "word " * 900 + "\n\n" for number in range(20))
    core, *units = split(sections(text), words)
    assert core.tokens == 2 * 903
    assert all(2_000 <= unit.tokens <= UNIT for unit in units)
    assert [unit.title for unit in units[:2]] == ["Part 2", "Part 5"]


def test_a_section_larger_than_a_unit_is_cut_between_paragraphs() -> None:
    text = "# Long\n\n" + "".join("word " * 1500 + "\n\n" for _ in range(6))
    units = split(sections(text), words)
    assert "".join(unit.text for unit in units) == text
    assert all(unit.tokens <= UNIT for unit in units)
    assert {unit.title for unit in units[1:]} == {"Long"}


def test_a_passage_that_stands_twice_is_found_whole_with_its_places() -> None:
    parts = sections(f"# A\n{PASSAGE}\n# B\nother words here\n# C\n  {PASSAGE.upper()}\n")
    [found] = repeated(parts)
    assert found.words == len(PASSAGE.split())
    assert found.sections == (0, 2)
    assert PASSAGE.startswith(found.excerpt)


def test_a_passage_that_stands_three_times_wastes_two() -> None:
    assert len(repeated(sections(f"# A\n{PASSAGE}\n\n{PASSAGE}\n\n{PASSAGE}\n"))) == 2
    assert repeated(sections("# A\n" + " ".join(map(str, range(500))))) == []


@given(st.lists(st.sampled_from(["a", "b", "# c\n", "\n"]), max_size=200).map(" ".join))
def test_looking_for_passages_ends_and_counts_no_word_too_often(text: str) -> None:
    found = repeated(sections(text))
    assert sum(one.words for one in found) <= len(text.split())


def test_what_changes_from_session_to_session_is_seen() -> None:
    assert changing(sections("# A\nSet $PATH and use cost of $5.\n")) == []
    parts = sections("# A\nThe date is 2026-11-30.\n# B\nYou are {{ name }}.\n# C\nNothing.\n")
    assert changing(parts) == [(0, "2026-11-30"), (1, "{{ name }}")]


def test_a_title_becomes_a_name_of_a_file() -> None:
    assert slug("Ollama's own log!") == "ollama-s-own-log"
    assert slug("日本語 / ../..") == "untitled"


def test_a_first_section_larger_than_a_core_begins_it() -> None:
    paragraph = "\n" + "word " * 299 + "end\n"
    parts = sections("# First\n" + paragraph * 10 + "# Second\n" + paragraph)
    core, *units = split(parts, lambda text: len(text.split()))
    assert 0 < core.tokens <= 2000
    assert "".join(unit.text for unit in (core, *units)) == "".join(part.text for part in parts)
