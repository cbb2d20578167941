"""What a search looks for, and where it finds it in a message. Pure; `search` walks through the messages."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

LIMIT: Final = 20
"""Matches that a search gives where it asks for no number."""
MOST_LIMIT: Final = 200
"""Matches that one search gives at most."""
LONGEST_QUERY: Final = 1000
"""Characters."""
MOST_TERMS: Final = 16
_BEFORE: Final = 60
_AFTER: Final = 140
_TERM: Final = re.compile(r'"([^"]*)"|([^\s"]+)')
_SPACES: Final = re.compile(r"\s+")
_ESCAPED: Final = re.compile(r"[\s\x00-\x1f\\\"]+")


class BadQuery(ValueError):
    """A search that cannot be made; the message says why."""

    def __init__(self, why: str, param: str = "q") -> None:
        """Carry the parameter of the search that is wrong: `q` or `after`."""
        super().__init__(why)
        self.param = param


@dataclass(frozen=True, slots=True)
class Query:
    """Terms that all have to be in a message, in any letter case."""

    terms: tuple[str, ...]
    pieces: tuple[str, ...]
    """Parts of the terms that stand in a message's JSON as they do in its text, without what JSON escapes."""

    @classmethod
    def parse(cls, text: str) -> "Query":
        """Read a query: words, and phrases in double quotes.

        Raises:
            BadQuery: there is nothing to look for, or too much.
        """
        if len(text) > LONGEST_QUERY:
            raise BadQuery(f"a query has at most {LONGEST_QUERY} characters")
        found = (phrase or word for phrase, word in _TERM.findall(text))
        terms = tuple(dict.fromkeys(term for each in found if (term := _folded(each).strip())))
        if not terms:
            raise BadQuery('say what to look for: words that are all in a message, or "a phrase"')
        if len(terms) > MOST_TERMS:
            raise BadQuery(f"a query has at most {MOST_TERMS} words and phrases")
        pieces = (piece for term in terms for piece in _ESCAPED.split(term))
        return cls(terms, tuple(dict.fromkeys(piece for piece in pieces if piece)))

    def excerpt(self, body: bytes) -> str | None:
        """The place in a message where its first term is, in one line; None where not all terms are in it.

        Args:
            body: a message as it is kept: a JSON object.
        """
        raw = body.decode().casefold()
        if not all(piece in raw for piece in self.pieces):
            return None  # as nearly all messages: twenty times cheaper than to take them apart
        text = _SPACES.sub(" ", "\n".join(texts(orjson.loads(body))))
        folded = _folded(text)
        if not all(term in folded for term in self.terms):
            return None
        if len(folded) != len(text):
            text = folded  # a few letters grow when their case is folded; then what is shown is what was searched
        place = folded.index(self.terms[0])
        start, end = max(place - _BEFORE, 0), place + len(self.terms[0]) + _AFTER
        return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"


def texts(message: Any) -> Iterator[str]:
    """What a message says: contents, thinking, names and arguments of tool calls, as text and not as JSON."""
    if not isinstance(message, Mapping):
        return
    for name in ("content", "thinking", "tool_name", "name"):
        value = message.get(name)
        if isinstance(value, str):
            yield value
        elif value is not None:
            yield from _leaves(value)
    yield from _leaves(message.get("tool_calls"))


def _leaves(value: Any) -> Iterator[str]:
    """Every text and number in a JSON value, with the names that they stand under."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case Mapping() as members:
                waiting.extend(reversed([part for pair in members.items() for part in pair]))
            case list(items):
                waiting.extend(reversed(items))
            case None | bool():
                pass
            case number:
                yield orjson.dumps(number).decode()


def _folded(text: str) -> str:
    return _SPACES.sub(" ", text.casefold())
