"""Numbers and strings as Go prints and marshals them, against recorded truth; and their laws."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ollama_gate.counting.rendering.gotemplate.gofmt import Verb, display, format_operand, go_quote
from ollama_gate.counting.rendering.gotemplate.gojson import digits, encode, json_float, quote, quote_key, shortest
from ollama_gate.counting.rendering.gotemplate.values import box_any
from ollama_gate.errors import RenderError
from support.gotemplates import recorded

SCALARS = recorded("scalars")
finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]))


def test_numbers_print_as_in_go() -> None:
    for number, printed, marshalled, fixed, scientific in SCALARS["numbers"]:
        value = float(number)
        assert display(value) == printed
        assert encode(value) == marshalled
        assert format_operand(Verb("f", width=6, precision=2), value) == fixed
        assert format_operand(Verb("e"), value) == scientific


def test_strings_marshal_and_quote_as_in_go() -> None:
    for string, printed, marshalled, quoted in SCALARS["strings"]:
        assert display(string) == printed
        assert encode(string) == marshalled
        assert go_quote(string) == quoted


@given(finite.filter(lambda number: number > 0))
def test_the_shortest_digits_mean_the_same_number(number: float) -> None:
    text, point = digits(number)
    assert text == "0" or (text[0] != "0" and text[-1] != "0")
    assert float(f"0.{text}e{point}") == number


@given(finite, st.integers(-10, 0), st.integers(1, 30))
@example(-0.0, -4, 6)
def test_a_printed_float_reads_back(number: float, low: int, high: int) -> None:
    printed = shortest(number, low, high)
    assert float(printed) == number
    assert math.copysign(1, float(printed)) == math.copysign(1, number)


@given(finite)
@example(1e21)
@example(1e-7)
@example(123456789012345680.0)
def test_a_json_number_reads_back(number: float) -> None:
    assert float(json_float(number)) == number
    json.loads(json_float(number))


@given(text)
@example("\\b\b\\f\f")
def test_a_json_string_reads_back_and_is_safe_in_html(string: str) -> None:
    assert json.loads(quote(string)) == string
    assert json.loads(quote_key(string)) == string
    assert not set("<>&\u2028\u2029") & set(quote(string))


def test_a_broken_byte_is_escaped_in_json_and_shown_by_q() -> None:
    assert quote("a\udce9b") == '"a\\ufffdb"'
    assert go_quote("a\udce9b") == '"a\\xe9b"'


def test_a_key_of_an_ordered_map_has_no_short_form_for_two_controls() -> None:
    assert quote("\b\f\n") == '"\\b\\f\\n"'
    assert quote_key("\b\f\n") == '"\\u0008\\u000c\\n"'
    assert quote_key("\\b") == '"\\\\b"'


def test_a_flag_that_reaches_into_a_list_is_given_up() -> None:
    numbers = box_any([1.0])
    assert format_operand(Verb("v"), numbers) == "[1]"
    with pytest.raises(RenderError):
        format_operand(Verb("v", " "), numbers)


@pytest.mark.parametrize(
    ("number", "printed", "marshalled"),
    [
        (1e6, "1e+06", "1000000"),
        (999999.0, "999999", "999999"),
        (1e21, "1e+21", "1e+21"),
        (1e-7, "1e-07", "1e-7"),
        (0.0001, "0.0001", "0.0001"),
        (0.00001, "1e-05", "0.00001"),
        (-0.0, "-0", "-0"),
        (12345678901234567890.0, "1.2345678901234567e+19", "12345678901234567000"),
    ],
)
def test_the_bounds_of_the_exponent_form(number: float, printed: str, marshalled: str) -> None:
    assert display(number) == printed
    assert json_float(number) == marshalled
