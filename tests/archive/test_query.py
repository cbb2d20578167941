import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.archive.query import BadQuery, Query, texts

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def body(**message: object) -> bytes:
    return orjson.dumps({"role": "user", **message})


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("one two", ("one", "two")),
        ('"One  TWO" three', ("one two", "three")),
        ("a a A", ("a",)),
        ('half"open', ("half", "open")),
        ("straße STRASSE", ("strasse",)),
        ("日本語", ("日本語",)),
        ('"" x', ("x",)),
    ],
)
def test_words_and_phrases(query: str, terms: tuple[str, ...]) -> None:
    assert Query.parse(query).terms == terms


@pytest.mark.parametrize("query", ["", "   ", '""', '" "', "x" * 1001, " ".join(map(str, range(17)))])
def test_what_cannot_be_looked_for(query: str) -> None:
    with pytest.raises(BadQuery):
        Query.parse(query)


@pytest.mark.parametrize(
    ("message", "query"),
    [
        (body(content="The key is\nunder the mat"), '"key is under"'),
        (body(content=None, thinking="Look under the mat"), "mat"),
        (
            body(content="", tool_calls=[{"function": {"name": "read_file", "arguments": {"path": 'C:\\x "y"'}}}]),
            "c:\\x",
        ),
        (body(content="", tool_calls=[{"function": {"name": "add", "arguments": {"a": 17.5}}}]), '"a 17.5"'),
        (body(role="tool", content="ok", tool_name="get_weather"), "get_weather"),
        (body(content=[{"type": "text", "text": "in a part"}]), '"in a part"'),
        (body(content="ÄRGER"), "ärger"),
    ],
)
def test_it_is_found_where_it_is_said(message: bytes, query: str) -> None:
    assert Query.parse(query).excerpt(message) is not None


def test_all_terms_have_to_be_there() -> None:
    assert Query.parse("key mat").excerpt(body(content="the key")) is None
    assert Query.parse("role").excerpt(body(content="the key")) is None


def test_an_excerpt_is_one_short_line_around_the_first_term() -> None:
    excerpt = Query.parse("needle").excerpt(body(content="hay\n" * 500 + "the needle is here\n" + "hay " * 500))
    assert excerpt is not None
    assert excerpt.startswith("…")
    assert excerpt.endswith("…")
    assert "the needle is here hay" in excerpt
    assert "\n" not in excerpt
    assert len(excerpt) < 220


@given(st.dictionaries(st.sampled_from(["role", "content", "thinking", "tool_calls", "tool_name", "x"]), JSON))
def test_any_message_can_be_looked_through(message: dict[str, object]) -> None:
    raw = orjson.dumps(message)
    for text in texts(orjson.loads(raw)):
        for word in text.split()[:3]:
            try:
                query = Query.parse(word)
            except BadQuery:
                continue
            assert query.excerpt(raw) is not None
