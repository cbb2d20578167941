"""As much of PromQL's grammar as rules and panels use: what does not follow it, Prometheus would not load.

https://prometheus.io/docs/prometheus/latest/querying/basics/ and `promql/parser/generated_parser.y` (Prometheus 3).
"""

import re
from dataclasses import dataclass, field
from typing import Final

_DURATION: Final = r"(?:\d+(?:ms|[smhdwy]))+"
_TOKEN: Final = re.compile(
    rf"""\s*(?:
    (?P<duration>{_DURATION}\b)
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[+-]?Inf\b|NaN\b)
    | (?P<name>[A-Za-z_:][\w:]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){{}}\[\],])
    )""",
    re.VERBOSE,
)
_COMPARE: Final = frozenset({"==", "!=", ">", "<", ">=", "<="})
_OPERATORS: Final = _COMPARE | {"+", "-", "*", "/", "%", "^", "and", "or", "unless", "atan2"}
_AGGREGATIONS: Final = frozenset({"sum", "min", "max", "avg", "count", "group", "stddev", "stdvar"})
_RANGE: Final = frozenset({"rate", "increase", "irate", "delta", "idelta", "deriv", "changes", "resets"})
_OF_A_SERIES: Final = frozenset({"abs", "ceil", "floor", "round", "absent", "scalar", "clamp_min", "clamp_max"})
_FUNCTIONS: Final = _RANGE | _OF_A_SERIES | {"histogram_quantile"}
DURATION: Final = re.compile(_DURATION)


class NoQuery(ValueError):
    """It does not follow the grammar."""


@dataclass(slots=True)
class Query:
    """A query that is read from its beginning to its end."""

    text: str
    tokens: list[tuple[str, str]] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        """Split it.

        Raises:
            NoQuery: something in it is no token.
        """
        self.tokens, place = [], 0
        while place < len(self.text.rstrip()):
            found = _TOKEN.match(self.text, place)
            if found is None:
                raise NoQuery(f"at {self.text[place : place + 20]!r}")
            self.tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            place = found.end()

    def read(self) -> None:
        """Read all of it.

        Raises:
            NoQuery: it does not follow the grammar.
        """
        self._expression()
        if self.at < len(self.tokens):
            raise NoQuery(f"{self._next()[1]!r} is one too many")

    def _next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "the end")

    def _is(self, *texts: str) -> bool:
        return self._next()[1] in texts

    def _take(self, text: str = "", kind: str = "") -> str:
        found = self._next()
        if (text and found[1] != text) or (kind and found[0] != kind):
            raise NoQuery(f"{found[1]!r} where {text or kind!r} is wanted")
        self.at += 1
        return found[1]

    def _expression(self) -> bool:
        """Whether it is a range of samples."""
        ranged = self._operand()
        while self._next()[1] in _OPERATORS:
            operator = self._take()
            if ranged:
                raise NoQuery(f"a range before {operator}")
            if operator in _COMPARE and self._is("bool"):
                self._take()
            if self._is("on", "ignoring"):
                self._take()
                self._labels()
                if self._is("group_left", "group_right"):
                    self._take()
                    self._labels()
            if self._operand():
                raise NoQuery(f"a range after {operator}")
        return ranged

    def _operand(self) -> bool:
        if self._is("-", "+"):
            self._take()
        ranged = False
        kind, text = self._next()
        if kind == "number":
            self._take()
        elif text == "(":
            self._arguments(1)
        elif kind == "name" and text in _AGGREGATIONS:
            self._aggregation()
        elif kind == "name" and self.tokens[self.at + 1 : self.at + 2] == [("sign", "(")]:
            self._function()
        else:
            self._selector()
            if self._is("["):
                self._take("[")
                self._take(kind="duration")
                self._take("]")
                ranged = True
        if self._is("offset"):
            self._take()
            self._take(kind="duration")
        return ranged

    def _aggregation(self) -> None:
        self._take()
        grouped = self._grouping()
        if any(self._arguments(1)):
            raise NoQuery("an aggregation of a range")
        if not grouped:
            self._grouping()

    def _grouping(self) -> bool:
        if not self._is("by", "without"):
            return False
        self._take()
        self._labels()
        return True

    def _function(self) -> None:
        name = self._take()
        if name not in _FUNCTIONS:
            raise NoQuery(f"{name} is no function")
        ranged = self._arguments(2 if name in {"histogram_quantile", "clamp_min", "clamp_max"} else 1)
        if any(ranged) is not (name in _RANGE):
            raise NoQuery(f"{name} takes {'a range' if name in _RANGE else 'no range'}")

    def _arguments(self, number: int) -> list[bool]:
        self._take("(")
        ranged = [self._expression()]
        while self._is(","):
            self._take()
            ranged.append(self._expression())
        self._take(")")
        if len(ranged) != number:
            raise NoQuery(f"{len(ranged)} arguments in place of {number}")
        return ranged

    def _labels(self) -> None:
        self._take("(")
        while not self._is(")"):
            self._take(kind="name")
            if not self._is(")"):
                self._take(",")
        self._take(")")

    def _selector(self) -> None:
        named = self._next()[0] == "name"
        if named:
            self._take()
        elif not self._is("{"):
            raise NoQuery(f"{self._next()[1]!r} where a series is wanted")
        if not self._is("{"):
            return
        self._take()
        while not self._is("}"):
            self._take(kind="name")
            if self._next()[1] not in {"=", "!=", "=~", "!~"}:
                raise NoQuery(f"{self._next()[1]!r} compares no labels")
            regular = self._take() in {"=~", "!~"}
            text = self._take(kind="string")[1:-1]
            if regular:
                try:
                    re.compile(text)
                except re.error as bad:
                    raise NoQuery(f"{text!r}: {bad}") from bad
            if not self._is("}"):
                self._take(",")
        self._take("}")
