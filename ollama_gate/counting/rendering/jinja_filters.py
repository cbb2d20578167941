"""The filters, tests, methods and functions that llama.cpp's jinja has, as they work there.

What jinja2 does the same way is jinja2's; the rest is written after `common/jinja/value.cpp` and `string.cpp`,
llama.cpp b10488: white space is what C's isspace says, upper and lower case are ASCII's, the length of text is in
bytes, `default` also replaces none, sorting minds case, a mapping is no sequence. What llama.cpp lacks is missing here
too.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import pass_context
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context, Undefined
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Namespace

from ollama_gate.counting.rendering.jinja_values import Budget, WatchedText, printable, text_of, to_json, weigh
from ollama_gate.errors import RenderError, TemplateRefused

BUDGET: Final = " budget"
"""Where a context keeps its budget: a name that no template can spell."""

_SPACE: Final = " \t\n\v\f\r"
_WORD: Final = re.compile(rf"[^{_SPACE}]+")
_UPPER: Final = {byte: byte - 32 for byte in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {byte: byte + 32 for byte in range(ord("A"), ord("Z") + 1)}


def budget_of(context: Context) -> Budget:
    """The budget of the rendering that a context belongs to."""
    budget: Budget = context.parent[BUDGET]
    return budget


# --- text


def _characters(chars: Any) -> str:
    return _SPACE if chars is None or isinstance(chars, Undefined) else str(chars)


def _capitalize(text: str) -> str:
    return text[:1].translate(_UPPER) + text[1:].translate(_LOWER)


def _split(text: str, separator: Any = " ", most: int = -1) -> list[str]:
    if not isinstance(separator, str) or not separator:
        raise RenderError("split takes a separator")
    return text.split(separator, most)


def _rsplit(text: str, separator: Any = " ", most: int = -1) -> list[str]:
    if not isinstance(separator, str) or not separator:
        raise RenderError("rsplit takes a separator")
    return text.rsplit(separator, most)


TEXT_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "strip": lambda text, chars=None: text.strip(_characters(chars)),
    "lstrip": lambda text, chars=None: text.lstrip(_characters(chars)),
    "rstrip": lambda text, chars=None: text.rstrip(_characters(chars)),
    "upper": lambda text: text.translate(_UPPER),
    "lower": lambda text: text.translate(_LOWER),
    "capitalize": _capitalize,
    "title": lambda text: _WORD.sub(lambda word: _capitalize(word[0]), text),
    "split": _split,
    "rsplit": _rsplit,
    "startswith": lambda text, prefix: text.startswith(str(prefix)),
    "endswith": lambda text, suffix: text.endswith(str(suffix)),
}
"""Methods of text whose result is no longer than the text."""


def replace(budget: Budget, text: str, old: Any, new: Any, count: Any = -1) -> str:
    """`text.replace(old, new)`; a count is not known there."""
    if not isinstance(old, str) or not isinstance(new, str) or count != -1:
        raise RenderError("replace takes two texts")
    budget.write(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
    return text.replace(old, new)


def format_text(budget: Budget, text: str, *args: Any) -> str:
    """`text.format(…)` with plain `{}` only."""
    pieces = text.split("{}")
    if any("{" in piece for piece in pieces) or len(pieces) - 1 > len(args):
        raise RenderError("format takes plain {} placeholders")
    filled = [*printable(args[: len(pieces) - 1], budget), ""]
    budget.write(len(text))
    return "".join([piece + value for piece, value in zip(pieces, filled, strict=True)])


def _text_filter(method: Callable[..., str]) -> Callable[..., str]:
    @pass_context
    def apply(context: Context, value: Any, *args: Any) -> str:
        return "" if isinstance(value, Undefined) else method(text_of(value, budget_of(context)), *args)

    return apply


@pass_context
def _replace(context: Context, value: Any, old: Any, new: Any, count: Any = -1) -> str:
    budget = budget_of(context)
    return replace(budget, text_of(value, budget), old, new, count)


@pass_context
def _format(context: Context, value: Any, *args: Any) -> str:
    budget = budget_of(context)
    return format_text(budget, text_of(value, budget), *args)


@pass_context
def _indent(context: Context, value: Any, width: Any = 4, *flags: Any, **named: Any) -> str:
    first = named.get("first", flags[0] if flags else False)
    blank = named.get("blank", flags[1] if len(flags) > 1 else False)
    budget = budget_of(context)
    text = text_of(value, budget)
    margin = width if isinstance(width, str) else " " * min(int(width), 1000)
    lines = text.split("\n")
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    budget.write(len(text) + len(lines) * len(margin))
    out = [margin + line if (line or blank if number else first) else line for number, line in enumerate(lines)]
    tail = "\n" + (margin if blank else "") if ended and text else ""
    return "\n".join(out) + tail


@pass_context
def _join(context: Context, value: Any, d: Any = "", attribute: Any = None) -> str:
    if isinstance(value, Undefined):
        return ""
    budget = budget_of(context)
    items = _listed(value)
    if attribute is not None:
        items = [context.environment.getitem(item, attribute) for item in items]
    if not all(isinstance(item, (str, int, float)) for item in items):
        raise RenderError("join takes texts and numbers")
    delimiter = text_of(d, budget)
    budget.write(len(delimiter) * len(items))
    return delimiter.join(printable(items, budget))


@pass_context
def _string(context: Context, value: Any) -> str:
    """Text of anything. None is "None", though it prints as nothing, and a float has the form of JSON."""
    if isinstance(value, float):
        return f"{value:g}"
    return text_of(value, budget_of(context))


@pass_context
def _tojson(context: Context, value: Any, *args: Any, **named: Any) -> str:
    options = dict(zip(("ensure_ascii", "indent", "separators", "sort_keys"), args, strict=False)) | named
    if options.get("sort_keys"):
        raise RenderError("tojson with sorted keys")
    indent, separators = options.get("indent"), options.get("separators")
    if not isinstance(indent, int) or isinstance(indent, bool):
        indent = None
    elif not 0 <= indent <= 16:
        raise RenderError("tojson with such an indent")
    comma, colon = ", " if indent is None else ",", ": "
    match separators:
        case [item]:
            comma = str(item)
        case [item, key, *_]:
            comma, colon = str(item), str(key)
        case _:
            pass
    ascii_only = bool(options.get("ensure_ascii"))
    return to_json(value, budget_of(context), ensure_ascii=ascii_only, indent=indent, separators=(comma, colon))


# --- lists and mappings


def _listed(value: Any) -> list[Any]:
    if isinstance(value, (str, dict)):
        raise RenderError("a list is wanted")
    return list(value)


def _length(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value)


def _default(value: Any, default: Any = "", boolean: Any = None) -> Any:
    missing = not value if boolean else value is None or isinstance(value, Undefined)
    return default if missing else value


def _items(value: Any) -> list[tuple[Any, Any]]:
    if value is None or isinstance(value, Undefined):
        return []
    if not isinstance(value, dict):
        raise RenderError("items takes a mapping")
    return list(value.items())


@pass_context
def _dictsort(
    context: Context, value: Any, case_sensitive: Any = None, by: Any = "key", reverse: Any = None
) -> dict[Any, Any]:
    del case_sensitive  # it always is
    weigh(value, budget_of(context))
    index = 1 if by == "value" else 0
    return dict(sorted(value.items(), key=lambda pair: pair[index], reverse=bool(reverse)))


@pass_context
def _list(context: Context, value: Any) -> list[Any]:
    items = list(value)
    budget_of(context).step(len(items))
    return items


def _reverse(value: Any) -> list[Any]:
    return [] if isinstance(value, Undefined) else _listed(value)[::-1]


@pass_context
def _sort(context: Context, value: Any, reverse: Any = None, case_sensitive: Any = None, attribute: Any = None) -> Any:
    del case_sensitive  # it always is
    weigh(value, budget_of(context))
    return JINJA_FILTERS["sort"](context.environment, _listed(value), bool(reverse), True, attribute)


def _choosing(name: str) -> Callable[..., list[Any]]:
    """select, reject and their attr forms, which take no text."""

    @pass_context
    def choose(context: Context, value: Any, *args: Any) -> list[Any]:
        if isinstance(value, WatchedText):
            value.as_list = name.endswith("attr")
        items = [] if value is None else _listed(value)
        budget_of(context).step(len(items))
        return list(JINJA_FILTERS[name](context, items, *args))

    return choose


@pass_context
def _map(context: Context, value: Any, *args: Any, **named: Any) -> list[Any]:
    items = [] if value is None else _listed(value)
    budget_of(context).step(len(items))
    return list(JINJA_FILTERS["map"](context, items, *args, **named))


# --- what the rewriter puts into templates


def _iterated(value: Any, unpacked: Any = None) -> Any:
    """What a loop runs over: text is no list of letters there, and two loop variables take a mapping's pairs."""
    if isinstance(value, str):
        if isinstance(value, WatchedText):
            value.as_list = True
        raise RenderError("the template loops over text")
    return list(value.items()) if unpacked and isinstance(value, dict) else value


@pass_context
def _charged(context: Context, characters: int) -> None:
    """One turn of a loop or one run of a macro, with so much text of the template's own in it."""
    budget = budget_of(context)
    budget.step()
    budget.write(characters)


@pass_context
def _joined(context: Context, parts: list[Any]) -> str:
    """The `~` operator."""
    return "".join(printable(["" if part is None else part for part in parts], budget_of(context)))


@pass_context
def _contained(context: Context, pair: list[Any]) -> bool:
    """The `in` operator."""
    item, whole = pair
    if isinstance(whole, Undefined):
        return False
    if item is None or isinstance(item, Undefined) or (isinstance(item, (list, tuple)) and not isinstance(whole, dict)):
        raise RenderError("the template looks for what cannot be in anything")
    if not isinstance(whole, dict):
        weigh(whole, budget_of(context))
    return item in whole


@pass_context
def _weighed(context: Context, value: Any) -> Any:
    """One side of a comparison whose other side is no constant either."""
    weigh(value, budget_of(context))
    return value


def _paid(compare: Callable[..., Any], paying: int = 0) -> Callable[..., Any]:
    """A test or filter that goes through the whole of one of its values, which is paid for."""

    @pass_context
    def run(context: Context, *values: Any, **named: Any) -> Any:
        weigh(values[paying], budget_of(context))
        return compare(*values, **named)

    return run


def _least_or_most(name: str) -> Callable[..., Any]:
    @pass_context
    def choose(context: Context, value: Any, *args: Any, **named: Any) -> Any:
        weigh(value, budget_of(context))
        return JINJA_FILTERS[name](context.environment, value, *args, **named)

    return choose


ITERATED: Final = " iterated"
CHARGED: Final = " charged"
JOINED: Final = " joined"
CONTAINED: Final = " contained"
WEIGHED: Final = " weighed"

FILTERS: Final[dict[str, Callable[..., Any]]] = {
    **{name: JINJA_FILTERS[name] for name in ("abs", "first", "last")},
    **{name: _least_or_most(name) for name in ("max", "min")},
    **{name: _paid(JINJA_FILTERS[name]) for name in ("int", "float")},
    "list": _list,
    **{name: _choosing(name) for name in ("select", "selectattr", "reject", "rejectattr")},
    **{name: _text_filter(TEXT_METHODS[name]) for name in ("upper", "lower", "capitalize", "title", "strip")},
    "trim": _text_filter(TEXT_METHODS["strip"]),
    "replace": _replace,
    "indent": _indent,
    "join": _join,
    "format": _format,
    "reverse": _reverse,
    "string": _string,
    "safe": _string,
    "tojson": _tojson,
    "length": _length,
    "count": _length,
    "default": _default,
    "d": _default,
    "items": _items,
    "dictsort": _dictsort,
    "sort": _sort,
    "map": _map,
    ITERATED: _iterated,
    CHARGED: _charged,
    JOINED: _joined,
    CONTAINED: _contained,
    WEIGHED: _weighed,
}

_SHARED_TESTS: Final = (
    "boolean callable defined divisibleby even false float integer none odd sameas string true undefined"
)
_PAID_TESTS: Final = "eq equalto ge greaterthan gt le lessthan lower lt ne upper == != > >= < <="
TESTS: Final[dict[str, Callable[..., Any]]] = {
    **{name: JINJA_TESTS[name] for name in _SHARED_TESTS.split()},  # type: ignore[misc]
    **{name: _paid(JINJA_TESTS[name]) for name in _PAID_TESTS.split()},  # type: ignore[arg-type]
    "in": _paid(JINJA_TESTS["in"], paying=1),  # type: ignore[arg-type]
    "mapping": lambda value: isinstance(value, dict),
    "iterable": lambda value: isinstance(value, (list, tuple, str, Undefined)),
    "sequence": lambda value: isinstance(value, (list, tuple, str, Undefined)),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}


# --- functions


def _raise_exception(message: Any = "") -> None:
    raise TemplateRefused(str(message))


@pass_context
def _strftime_now(context: Context, layout: Any) -> str:
    if not isinstance(layout, str) or len(layout) > 100 or re.search(r"%[^A-Za-z%]", layout):
        raise RenderError("strftime_now with such a format")
    text = budget_of(context).now.strftime(layout)
    if not 0 < len(text.encode()) < 100:  # a buffer of 100 bytes there
        raise RenderError("strftime_now cannot format the time")
    return text


@pass_context
def _range(context: Context, *bounds: int) -> list[int]:
    numbers = range(*bounds)
    budget_of(context).step(len(numbers))
    return list(numbers)


GLOBALS: Final[dict[str, Callable[..., Any]]] = {
    "namespace": Namespace,
    "range": _range,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
