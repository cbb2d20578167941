import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.config.units import format_duration, format_size, parse_duration, parse_size, told_apart


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * 1024**3),
        ("24 GB", 24 * 1000**3),
        ("1.5 kib", 1536),
        ("0.3B", 0),
        ("512MiB", 512 * 1024**2),
        ("0", 0),
        ("7B", 7),
        ("2TiB", 2 * 1024**4),
        (0, 0),
        (1048576, 1048576),
    ],
)
def test_a_size_is_a_number_of_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("24G", "24GiB"),
        ("24", '"24GiB" or "24MiB"'),
        ("1048576", "1048576B"),
        ("24 parsecs", "not a unit"),
        ("", "not a size"),
        ("-1GiB", "not a size"),
        ("1e9", "not a size"),
        ("١GiB", "not a size"),
        ("9" * 400, "not a size"),
        (-1, "not negative"),
        (True, "write a size"),
        (1.5, "write a size"),
        (None, "write a size"),
        (["1GiB"], "write a size"),
    ],
)
def test_what_is_no_size_is_refused_with_the_way_to_write_it(text: object, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("300s", 300),
        (300, 300),
        (0.25, 0.25),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("1 h 30 m", 5400),
        ("1.5s", 1.5),
        ("1d", 86400),
        ("12", 12),
        ("0", 0),
    ],
)
def test_a_time_is_a_number_of_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["5 minutes", "m", "", "-5s", "1e3", "5m3", "inf", "nan", "٣s", "5s" * 0, "s5"])
def test_what_is_no_time_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(ValueError, match='write "5m"'):
        parse_duration(text)


@pytest.mark.parametrize("value", [-1, math.inf, math.nan, -0.5, True, None, [5]])
def test_a_time_is_finite_and_not_negative(value: object) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_duration(value)


@given(st.integers(0, 10**18 - 1))
def test_a_written_size_reads_back_as_the_same_bytes(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 10**12))
def test_a_written_time_reads_back_as_the_same_milliseconds(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.text(max_size=40))
def test_any_text_is_a_size_or_a_refusal(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) >= 0
        except ValueError as refused:
            assert str(refused)  # noqa: PT017  either outcome is fine, and the refusal says something


def test_sizes_that_differ_are_told_so_that_one_sees_it() -> None:
    assert told_apart() == []
    assert told_apart(2**30) == ["1.0 GiB"]
    assert told_apart(2**30, 2**31) == ["1.0 GiB", "2.0 GiB"]
    assert told_apart(2**30, 2**30) == ["1.0 GiB", "1.0 GiB"]
    assert told_apart(2**30, 2**30 + 2**25) == ["1.00 GiB", "1.03 GiB"]


@given(st.integers(0, 2**47), st.integers(-(2**20), 2**20))
def test_one_byte_more_is_seen(size: int, more: int) -> None:
    other = max(size + more, 0)
    one, two = told_apart(size, other)
    assert (one == two) == (size == other)
    assert len(told_apart(2**64 + size, 2**64 + other)) == 2
