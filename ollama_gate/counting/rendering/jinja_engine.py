"""The jinja that llama.cpp speaks, on top of jinja2: a closed sandbox in which all work is counted.

A template reaches the values of its prompt, the filters and functions of `jinja_filters`, and nothing of Python. Where
llama.cpp's engine is more forgiving than jinja2 (`common/jinja/runtime.cpp`, b10488) this one is too: a member of
something undefined is undefined, and none or undefined beside text is nothing.
"""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from jinja2 import nodes, pass_context
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from ollama_gate.counting.rendering.jinja_filters import (
    CHARGED,
    CONTAINED,
    FILTERS,
    GLOBALS,
    ITERATED,
    JOINED,
    TESTS,
    TEXT_METHODS,
    WEIGHED,
    budget_of,
    format_text,
    replace,
)
from ollama_gate.counting.rendering.jinja_values import Missing, WatchedText, output_of, text_of
from ollama_gate.errors import RenderError

_INT64: Final = 2**63
_GROWING: Final = {"replace": replace, "format": format_text}
"""Methods of text whose result may be longer than the text."""
_LIST_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "append": lambda items, item: items.append(item) or items,
    "pop": lambda items, index=-1: items.pop(index),
}
_DICT_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "get": lambda mapping, key, default=None: mapping.get(key, default),
    "keys": list,
    "values": lambda mapping: list(mapping.values()),
    "items": lambda mapping: list(mapping.items()),
}
_LOOP_MEMBERS: Final = frozenset(
    {"index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem"}
)


class _Generation(Extension):
    """`{% generation %}` marks, for training, what a model wrote; its body is printed."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_context
def _finalize(context: Context, value: Any) -> str:
    return output_of(value, budget_of(context))


class _Method:
    """A method of a value, not called yet."""

    __slots__ = ("owner", "run")

    def __init__(self, run: Callable[..., Any], owner: Any) -> None:
        self.run = run
        self.owner = owner


class Engine(SandboxedEnvironment):
    """Compiles templates. One serves all threads: what a rendering spends is kept in its context."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        """Take llama.cpp's white space control, and nothing of jinja2 that llama.cpp lacks."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=Missing,
            extensions=[LoopControlExtension, _Generation],
            finalize=_finalize,
            cache_size=0,
        )
        self.filters = dict(FILTERS)
        self.tests = {**TESTS, "callable": lambda value: isinstance(value, (Macro, _Method)) or callable(value)}
        self.globals = dict(GLOBALS)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Rewriter().visit(super()._parse(source, name, filename))
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: a method of the value's type first, then a key."""
        match obj:
            case dict():
                if attribute in _DICT_METHODS:
                    return _Method(_DICT_METHODS[attribute], obj)
                if attribute in obj:
                    return obj[attribute]
            case str():
                if attribute in TEXT_METHODS:
                    return _Method(TEXT_METHODS[attribute], obj)
                if attribute in _GROWING:
                    return _Method(_GROWING[attribute], obj)
            case list():
                if attribute in _LIST_METHODS:
                    return _Method(_LIST_METHODS[attribute], obj)
            case LoopContext():
                if attribute in _LOOP_MEMBERS:
                    return getattr(obj, attribute)
            case Namespace():
                if not attribute.startswith("_"):
                    return getattr(obj, attribute, self.undefined(name=attribute))
            case Undefined():
                return obj
            case _:
                pass
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`: a key, an index from either end, or a method by its name."""
        if isinstance(obj, Undefined) or isinstance(argument, Undefined):
            return self.undefined(name="item")
        if isinstance(obj, dict):
            if isinstance(argument, (list, dict)):
                raise RenderError("a list or mapping is no key")
            if argument in obj:
                return obj[argument]
        elif isinstance(obj, (list, tuple, str)) and isinstance(argument, int):
            if isinstance(obj, WatchedText):
                obj.as_list = True
            first = 0 if isinstance(obj, str) else -len(obj)
            return obj[argument] if first <= argument < len(obj) else self.undefined(name="item")
        if isinstance(argument, str):
            return self.getattr(obj, argument)
        return self.undefined(name="item")

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, a method or a function that is offered here."""
        budget = budget_of(context)
        budget.step()
        if isinstance(obj, _Method):
            kwargs = {name: value for name, value in kwargs.items() if not name.startswith("_")}  # jinja2's own
            if isinstance(obj.owner, str):
                if obj.run in _GROWING.values():
                    return obj.run(budget, obj.owner, *args, **kwargs)
                budget.write(len(obj.owner))
            elif not args:
                budget.step(len(obj.owner))  # keys, values or items
            return obj.run(obj.owner, *args, **kwargs)
        if not isinstance(obj, (Macro, LoopContext)) and not any(obj is offered for offered in GLOBALS.values()):
            raise RenderError("the template calls what is no function there")
        return context.call(obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic, and `+` and `*` for text and lists."""
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return _arithmetic(operator, left, right)
        budget = budget_of(context)
        if operator == "+":
            if isinstance(left, str) or isinstance(right, str):
                return "".join(["" if value is None else text_of(value, budget) for value in (left, right)])
            if isinstance(left, list) and isinstance(right, list):
                budget.step(len(left) + len(right))
                return left + right
        if operator == "*":
            text, times = (left, right) if isinstance(left, str) else (right, left)
            if isinstance(text, str) and isinstance(times, int):
                budget.write(len(text) * max(times, 0))
                return text * times
        raise RenderError(f"the template uses {operator} on {type(left).__name__} and {type(right).__name__}")


def _arithmetic(operator: str, left: float, right: float) -> float:
    """Numbers are 64-bit integers or doubles, and a remainder has the sign of the dividend."""
    number: float
    try:
        match operator:
            case "+":
                number = left + right
            case "-":
                number = left - right
            case "*":
                number = left * right
            case "/":
                return left / right
            case "%":
                number = math.fmod(left, right)
                number = int(number) if isinstance(left, int) and isinstance(right, int) else number
            case _:
                raise RenderError(f"the operator {operator} is unknown there")
    except (ArithmeticError, ValueError) as error:
        raise RenderError(f"the template computes a {operator} without a result") from error
    if isinstance(number, int) and not -_INT64 <= number < _INT64:
        raise RenderError("the template computes beyond 64 bits")
    return number


class _Rewriter(NodeTransformer):
    """Counts the work of loops and macros, and of what is no call in jinja2: `~` and `in`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (jinja2 names visitors so)
        self._charge(node)
        unpacked = nodes.Const(isinstance(node.target, nodes.Tuple), lineno=node.lineno)
        node.iter = _filtered(node.iter, ITERATED, unpacked)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._charge(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._charge(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), JOINED)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if len(node.ops) != 1 or node.ops[0].op not in {"in", "notin"}:
            return self._weigh(node)
        found = _filtered(nodes.List([node.expr, node.ops[0].expr], lineno=node.lineno), CONTAINED)
        return found if node.ops[0].op == "in" else nodes.Not(found, lineno=node.lineno)

    def _weigh(self, node: nodes.Compare) -> nodes.Node:
        """What is compared with a constant is compared at once, whatever it is."""
        sides: list[nodes.Expr] = [node.expr, *[operand.expr for operand in node.ops]]
        for place, pair in enumerate(pairwise(sides)):
            if any(isinstance(side, nodes.Const) for side in pair):
                continue
            holder = node.ops[place - 1] if place else node
            holder.expr = _filtered(holder.expr, WEIGHED)
        return node

    def _charge(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        written = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        charge = _filtered(nodes.Const(written, lineno=node.lineno), CHARGED)
        node.body.insert(0, nodes.ExprStmt(charge, lineno=node.lineno))
        return node


def _filtered(value: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)
