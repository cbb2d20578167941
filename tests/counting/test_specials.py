from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting.specials import (
    END_NAMES,
    FIM_NAMES,
    HARMONY_NAMES,
    Partition,
    Special,
    Specials,
    TokenType,
    engine_types,
    stripped,
)
from ollama_gate.errors import UnknownVocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = TokenType.NORMAL, TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED


def numbered(texts: Sequence[str]) -> dict[str, int]:
    return {text: number for number, text in enumerate(texts)}


def specials(*texts: str, rstrip: bool = False, lstrip: bool = False) -> Specials:
    return Specials(
        tuple(Special(number, text, CONTROL, lstrip=lstrip, rstrip=rstrip) for number, text in enumerate(texts))
    )


def cut(partition: Partition, text: str) -> list[str]:
    return [part if isinstance(part, str) else f"[{part.text}]" for part in partition.cut(text)]


def longest_first(texts: Sequence[str], text: str) -> list[str]:
    """The engine's way, written down as plainly as can be."""
    parts = [text]
    for token in sorted(texts, key=lambda text: -len(text)):
        parts = [
            piece
            for part in parts
            for piece in (
                [part]
                if part.startswith("[")
                else [bit for between in part.split(token) for bit in (f"[{token}]", between)][1:]
            )
            if piece
        ]
    return parts


def leftmost(texts: Sequence[str], text: str) -> list[str]:
    """How a scanner works: at each place the longest that fits."""
    found, plain, at = [], "", 0
    while at < len(text):
        here = max((token for token in texts if text.startswith(token, at)), key=len, default="")
        if here:
            found += [plain, f"[{here}]"]
            plain = ""
        else:
            plain += text[at]
        at += len(here) or 1
    return [part for part in [*found, plain] if part]


SETS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=5, unique=True)


@given(SETS, st.text("abcd", max_size=14))
def test_texts_are_cut_at_the_longest_special_first(texts: list[str], text: str) -> None:
    assert cut(Partition(specials(*texts)), text) == longest_first(texts, text)


@given(SETS, st.text("abcd", max_size=14))
def test_a_plain_text_is_cut_alike_from_the_left(texts: list[str], text: str) -> None:
    partition = Partition(specials(*texts))
    if partition.plain(text):
        assert leftmost(texts, text) == longest_first(texts, text)


def test_a_clash_is_no_plain_text() -> None:
    partition = Partition(specials(">>TITLE<<", "<|endoftext|>"))

    assert partition.clashes == (">>TITLE<<|endoftext|>",)
    assert not partition.plain("a >>TITLE<<|endoftext|> b")
    assert partition.plain("a >>TITLE<< <|endoftext|> b")
    assert cut(partition, ">>TITLE<<|endoftext|>") == [">>TITLE<", "[<|endoftext|>]"]


def test_runs_of_one_character_do_not_clash() -> None:
    assert Partition(specials(*("\n" * length for length in range(1, 32)))).clashes == ()


def test_white_space_after_a_stripping_token_vanishes() -> None:
    partition = Partition(specials("<|end|>", rstrip=True))

    assert cut(partition, "a <|end|> \t\n\v\f\r b<|end|>") == ["a ", "[<|end|>]", "b", "[<|end|>]"]
    assert cut(partition, "<|end|>\xa0<|end|>  ") == ["[<|end|>]", "\xa0", "[<|end|>]"]
    assert partition.plain("a <|end|>b")
    assert not partition.plain("a <|end|>\nb")


def test_white_space_before_a_stripping_token_vanishes() -> None:
    partition = Partition(specials("<mask>", lstrip=True))

    assert cut(partition, " a \n<mask> b") == [" a", "[<mask>]", " b"]
    assert not partition.plain("a <mask>")


@given(text=st.text(" \nab|", max_size=20), lstrip=st.booleans(), rstrip=st.booleans())
def test_stripping_pieces_is_what_cutting_does(*, text: str, lstrip: bool, rstrip: bool) -> None:
    token = Special(0, "|", CONTROL, lstrip=lstrip, rstrip=rstrip)
    pieces = stripped(text.split("|"), token)
    parts = Partition(Specials((token,))).cut(text)
    assert [piece for piece in pieces if piece] == [part for part in parts if isinstance(part, str)]


def test_split_set_leaves_out_what_touches_another() -> None:
    def kept(*texts: str) -> list[str]:
        return [token.text for token in specials(*texts).split_set(" ".join(texts))]

    assert kept("<|one|>", "<|two|>") == ["<|one|>", "<|two|>"]
    assert kept("<|one|>", "|>") == []  # contained
    assert kept("abcd", "cdef") == []  # overlapping
    assert kept("abca", "wxyz") == ["wxyz"]  # overlapping itself
    assert kept("<s>", "<|one|>") == ["<|one|>"]  # too short


def test_split_set_needs_the_marker_in_the_template() -> None:
    assert specials("<|one|>", "<|two|>").split_set("{{ x }}<|two|>") == (Special(1, "<|two|>", CONTROL),)


@pytest.mark.parametrize("text", sorted(END_NAMES | FIM_NAMES["pre"] | FIM_NAMES["sep"]))
def test_some_texts_are_control_tokens_whatever_the_file_says(text: str) -> None:
    assert engine_types(numbered(["a", text]), [NORMAL, NORMAL], []) == [NORMAL, CONTROL]


@pytest.mark.parametrize("text", sorted(HARMONY_NAMES))
def test_harmony_names_are_user_defined(text: str) -> None:
    assert engine_types(numbered([text]), [CONTROL], []) == [USER_DEFINED]


def test_a_fim_part_that_the_file_names_is_left_alone() -> None:
    assert engine_types(numbered(["<PRE>", "<SUF>"]), [NORMAL, NORMAL], ["pre"]) == [NORMAL, CONTROL]


def test_two_candidates_for_one_fim_part_are_refused_unless_it_makes_no_difference() -> None:
    with pytest.raises(UnknownVocabulary, match="pad"):
        engine_types(numbered(["[PAD]", "<PAD>"]), [CONTROL, NORMAL], [])
    assert engine_types(numbered(["[PAD]", "<PAD>"]), [CONTROL, USER_DEFINED], []) == [CONTROL, USER_DEFINED]


def test_harmony_end_is_user_defined_where_calls_can_be_made() -> None:
    assert engine_types(numbered(["<|end|>", "<|return|>", "<|call|>"]), [CONTROL] * 3, []) == [
        USER_DEFINED,
        CONTROL,
        CONTROL,
    ]
    assert engine_types(numbered(["<|end|>", "<|call|>"]), [NORMAL] * 2, []) == [CONTROL, CONTROL]


def test_gemma_4_has_no_special_s() -> None:
    assert engine_types(numbered(["</s>", "<|tool_response>"]), [CONTROL, NORMAL], []) == [NORMAL, CONTROL]
