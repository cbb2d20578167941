"""Values as llama.cpp's jinja prints them, and the budget that every rendering has.

A chat template is a program from a stranger, run for every prompt; it stops when it has done more work than any real
one does. Source of the forms: `common/jinja/value.cpp` and `value.h`, llama.cpp b10488.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from jinja2 import ChainableUndefined
from jinja2.runtime import Undefined

from ollama_gate.errors import RenderError

STEPS: Final = 50_000
STEPS_PER_ITEM: Final = 1_000
"""Loop turns, calls and values printed in one rendering, and for each message and tool. Real templates take tens."""
CHARACTERS: Final = 10_000_000
CHARACTERS_PER_CHARACTER: Final = 64
"""Characters made in one rendering, intermediate ones too, and for each of the request's. Real templates make a few."""

_INT64: Final = 2**63


class TooMuchWork(RenderError):
    """The template does more than any real one."""


class Missing(ChainableUndefined):
    """An undefined value: a member of it is undefined too."""


class Budget:
    """What one rendering may still spend, and the time it takes for now."""

    __slots__ = ("characters", "now", "steps")

    def __init__(self, now: datetime, *, items: int = 0, characters: int = 0) -> None:
        """Start with what a request of this size may take.

        Args:
            now: the local time where the server runs.
            items: messages and tools.
            characters: the text in the messages.
        """
        self.steps = STEPS + STEPS_PER_ITEM * items
        self.characters = CHARACTERS + CHARACTERS_PER_CHARACTER * characters
        self.now = now

    def step(self, count: int = 1) -> None:
        """Spend steps."""
        self.steps -= count
        if self.steps < 0:
            raise TooMuchWork("the template takes too many steps")

    def write(self, characters: int) -> None:
        """Spend characters."""
        self.characters -= characters
        if self.characters < 0:
            raise TooMuchWork("the template writes too much")


class WatchedText(str):  # noqa: SLOT000 (two of them are ever made for a template)
    """Text that remembers whether a template took it for a list."""

    as_list = False


class WatchedMapping(dict[str, Any]):
    """A mapping that remembers which of its values a template looked at. Printing it whole is not looking."""

    __slots__ = ("seen",)

    def __init__(self, **fields: Any) -> None:
        """Nothing seen yet."""
        super().__init__(fields)
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As `dict.get`, seen."""
        self.seen.add(key)
        return super().get(key, default)

    def items(self) -> Any:
        """As `dict.items`, all seen."""
        self.seen.update(self)
        return super().items()

    def values(self) -> Any:
        """As `dict.values`, all seen."""
        self.seen.update(self)
        return super().values()


def weigh(value: Any, budget: Budget) -> None:
    """Pay for comparing a value, in which one list may stand in many places, with something as large."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            budget.write(len(item) // 64)
        elif isinstance(item, (list, tuple)):
            budget.step(len(item))
            waiting.extend(item)
        elif isinstance(item, dict):
            budget.step(len(item))
            waiting.extend(dict.values(item))


def output_of(value: Any, budget: Budget) -> str:
    """A value as `{{ }}` prints it: a list as its items in a row, none and a mapping as nothing."""
    if isinstance(value, (list, tuple)):
        budget.step(len(value))
        return "".join([output_of(item, budget) for item in value])
    return text_of(value, budget) if isinstance(value, (str, int, float)) else ""


def text_of(value: Any, budget: Budget) -> str:
    """A value as text, as `~` and the `string` filter make it."""
    if isinstance(value, str):
        budget.write(len(value))
        return value
    return _printed(value, budget)


def _printed(value: Any, budget: Budget) -> str:
    budget.step()
    match value:
        case str():
            budget.write(len(value))
            return to_json(value, budget) if "'" in value else f"'{value}'"
        case None | bool() | int():
            return str(value)
        case float():
            text = f"{value:f}".rstrip("0")
            return text + "0" if text.endswith(".") else text
        case Undefined():
            return ""
        case dict():
            pairs = [f"{_printed(key, budget)}: {_printed(item, budget)}" for key, item in dict.items(value)]
            return f"{{{', '.join(pairs)}}}"
        case tuple():
            inner = ", ".join([_printed(item, budget) for item in value])
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case list():
            return f"[{', '.join([_printed(item, budget) for item in value])}]"
        case _:
            raise RenderError(f"the template prints a {type(value).__name__}")


def to_json(
    value: Any,
    budget: Budget,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
) -> str:
    """A value as the `tojson` filter writes it: keys in their order, nothing escaped for HTML.

    Floats have six significant digits there, and integers beyond 64 bits wrap or become floats.
    """
    odd = _odd_numbers(value, budget)
    mark = _unused_mark(value) if odd else ""
    text = json.dumps(
        _marked(value, mark) if odd else value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators or (", " if indent is None else ",", ": "),
        default=_null,
    )
    for number in odd:
        text = text.replace(json.dumps(f"{mark}{number}", ensure_ascii=ensure_ascii), number)
    budget.write(len(text))
    return text


def _null(_: object) -> None:
    """What is no JSON is written as null."""


def _unused_mark(value: Any) -> str:
    """Text that is nowhere in a value: it marks the numbers that Python would spell differently."""
    text, mark = json.dumps(value, ensure_ascii=False, default=_null), "\ue000"
    while mark in text:
        mark += "\ue000"
    return mark


def _odd_numbers(value: Any, budget: Budget) -> set[str]:
    """Spellings of the numbers in a value that differ from Python's. Spends a step a value."""
    odd: set[str] = set()
    waiting = [value]
    budget.step()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            continue  # most of them
        if isinstance(item, dict):
            budget.step(len(item))
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            budget.step(len(item))
            waiting.extend(item)
        elif isinstance(item, float) or (isinstance(item, int) and not -_INT64 <= item < _INT64):
            odd.add(_number(item))
    return odd


def _marked(value: Any, mark: str) -> Any:
    if isinstance(value, dict):
        return {key: _marked(item, mark) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(item, mark) for item in value]
    if isinstance(value, float) or (isinstance(value, int) and not -_INT64 <= value < _INT64):
        return f"{mark}{_number(value)}"
    return value


def _number(value: float) -> str:
    if isinstance(value, int) and 0 < value < 2 * _INT64:
        return str(value - 2 * _INT64)  # read as unsigned, kept as signed
    return f"{value:g}"


def printable(values: Iterable[Any], budget: Budget) -> list[str]:
    """Each value as text."""
    return [text_of(value, budget) for value in values]
