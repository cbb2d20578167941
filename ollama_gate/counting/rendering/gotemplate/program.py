"""Bodies of templates, compiled to Python closures (`text/template/exec.go`, Go 1.26: `walk` and below).

What a body costs is known from the tree, but for the loops and calls in it, so each body pays once when it starts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from ollama_gate.counting.rendering.gotemplate import nodes
from ollama_gate.counting.rendering.gotemplate.expressions import pipeline
from ollama_gate.counting.rendering.gotemplate.frame import Evaluator, Frame, Leave, Step
from ollama_gate.counting.rendering.gotemplate.functions import GoFunction, printable
from ollama_gate.counting.rendering.gotemplate.gofmt import display
from ollama_gate.counting.rendering.gotemplate.limits import MAX_DEPTH, Budget
from ollama_gate.counting.rendering.gotemplate.scope import Scope
from ollama_gate.counting.rendering.gotemplate.values import (
    INVALID,
    GoValue,
    Kind,
    Typed,
    box,
    indirect,
    refuse,
    sorted_items,
    truth,
)
from ollama_gate.errors import RenderError


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled template."""

    body: Step
    size: int
    """How many slots its variables need."""

    def run(self, data: GoValue, *, budget: Budget, today: date) -> str:
        """Render data.

        Raises:
            TemplateRefused: Go's template fails.
            RenderError: the text cannot be known here, or the budget is used up.
        """
        frame = Frame(self.size, data, budget=budget, today=today)
        self.body(frame, data)
        return "".join(frame.out)


def compile_all(
    definitions: nodes.Definitions, functions: Mapping[str, GoFunction], *, missing_is_zero: bool
) -> Mapping[str, Program]:
    """Compile a template and those it defines.

    Args:
        definitions: the parsed templates by name.
        functions: all functions but `and` and `or`.
        missing_is_zero: the option `missingkey=zero`; without it a missing key is the invalid value.

    Raises:
        RenderError: it holds what is not known here.
    """
    programs: dict[str, Program] = {}
    for name, body in definitions.items():
        scope = Scope(functions, missing_is_zero=missing_is_zero)
        compiled = _body(body, scope, programs)
        programs[name] = Program(compiled, scope.size)
    return programs


_Programs = Mapping[str, Program]
"""Filled while the templates that refer to it are compiled."""


def _body(body: nodes.Body, scope: Scope, programs: _Programs) -> Step:
    mark = len(scope.names)
    steps = tuple([_NODES[type(node)](node, scope, programs) for node in body])
    scope.names.drop(mark)
    work = 1 + sum(_work(node) for node in body)
    text = sum(len(node.text) for node in body if isinstance(node, nodes.Text))
    if len(steps) == 1:
        only = steps[0]

        def run_one(frame: Frame, dot: GoValue) -> Leave | None:
            frame.budget.spend(work, text)
            return only(frame, dot)

        return run_one

    def run(frame: Frame, dot: GoValue) -> Leave | None:
        frame.budget.spend(work, text)
        for step in steps:
            leave = step(frame, dot)
            if leave is not None:
                return leave
        return None

    return run


def _work(node: nodes.Node) -> int:
    """The operands that a node evaluates at most, without the bodies in it."""
    if isinstance(node, nodes.Text | nodes.Break | nodes.Continue) or node.pipeline is None:
        return 1
    return 1 + _operands(node.pipeline)


def _operands(tree: nodes.Operand) -> int:
    if isinstance(tree, nodes.Pipeline):
        return sum(_operands(operand) for command in tree.commands for operand in command.operands)
    return _operands(tree.operand) + len(tree.names) if isinstance(tree, nodes.Chain) else 1


def _text(node: nodes.Text, _scope: Scope, _programs: _Programs) -> Step:
    text = node.text
    return lambda frame, _dot: frame.out.append(text)


def _action(node: nodes.Action, scope: Scope, _programs: _Programs) -> Step:
    evaluate = pipeline(node.pipeline, scope)
    if node.pipeline.variables:

        def assign(frame: Frame, dot: GoValue) -> None:
            evaluate(frame, dot)

        return assign

    def write(frame: Frame, dot: GoValue) -> None:
        value = evaluate(frame, dot)
        if not isinstance(value, str):
            value = display(printable(value))
        frame.budget.make(len(value))
        frame.out.append(value)

    return write


def _branches(node: nodes.Branch, scope: Scope, programs: _Programs) -> tuple[Evaluator, Step, Step]:
    """The compiled condition and bodies; variables of the condition are in scope in both, and gone afterwards."""
    mark = len(scope.names)
    evaluate = pipeline(node.pipeline, scope)
    body = _body(node.body, scope, programs)
    otherwise = _nothing if node.otherwise is None else _body(node.otherwise, scope, programs)
    scope.names.drop(mark)
    return evaluate, body, otherwise


def _nothing(_frame: Frame, _dot: GoValue) -> None:
    """The body of an else that is not there."""


def _if(node: nodes.If, scope: Scope, programs: _Programs) -> Step:
    evaluate, body, otherwise = _branches(node, scope, programs)

    def choose(frame: Frame, dot: GoValue) -> Leave | None:
        return body(frame, dot) if truth(evaluate(frame, dot)) else otherwise(frame, dot)

    return choose


def _with(node: nodes.With, scope: Scope, programs: _Programs) -> Step:
    evaluate, body, otherwise = _branches(node, scope, programs)

    def choose(frame: Frame, dot: GoValue) -> Leave | None:
        value = evaluate(frame, dot)
        return body(frame, value) if truth(value) else otherwise(frame, dot)

    return choose


def _range(node: nodes.Range, scope: Scope, programs: _Programs) -> Step:
    evaluate, body, otherwise = _branches(node, scope, programs)
    bind = _binder(node.pipeline, scope)
    pairs = len(node.pipeline.variables) > 1

    def loop(frame: Frame, dot: GoValue) -> Leave | None:
        value, _ = indirect(evaluate(frame, dot))
        ran = False
        for key, item in _iterate(frame, value, pairs=pairs):
            ran = True
            bind(frame, key, item)
            if body(frame, item) is Leave.BREAK:
                break
        return None if ran else otherwise(frame, dot)

    return loop


def _binder(tree: nodes.Pipeline, scope: Scope) -> Callable[[Frame, GoValue, GoValue], None]:
    """Gives a loop's variables their values: two take key and item, one takes the item."""
    names = tree.variables
    if not names:
        return lambda _frame, _key, _item: None
    first = len(scope.names)  # where `:=` has put them: they are out of scope again by now
    slots: Sequence[int | None] = [
        scope.names.place(name) if tree.assigns else first + i for i, name in enumerate(names)
    ]
    key_slot, item_slot = slots[0] if len(names) > 1 else None, slots[-1]

    def bind(frame: Frame, key: GoValue, item: GoValue) -> None:
        if key_slot is not None:
            frame.slots[key_slot] = key
        if item_slot is not None:
            frame.slots[item_slot] = item

    return bind


def _iterate(frame: Frame, value: GoValue, *, pairs: bool) -> Iterable[tuple[GoValue, GoValue]]:
    """Keys and items in Go's order."""
    if not isinstance(value, Typed):
        if value is INVALID:
            return ()
        if type(value) is int and not pairs:
            return ((INVALID, number) for number in range(value))
        raise refuse("range can't iterate over this value")
    kind, data, inner = value.type.kind, value.data, value.type.inner
    if kind is Kind.SLICE:
        frame.budget.work(16 * len(data or ()))
        return enumerate([box(inner, item) for item in data or ()])
    if kind is Kind.MAP:
        frame.budget.work(16 * len(data or ()))
        return sorted_items(value)
    if kind is Kind.ITERATOR:
        return [(key, box(inner, item)) if pairs else (INVALID, key) for key, item in data]
    if kind is Kind.OPAQUE:
        raise RenderError("the bytes of an image in the text")
    raise refuse(f"range can't iterate over {value.type}")


def _call(node: nodes.Call, scope: Scope, programs: _Programs) -> Step:
    name = node.name
    evaluate = None if node.pipeline is None else pipeline(node.pipeline, scope)

    def call(frame: Frame, dot: GoValue) -> None:
        program = programs.get(name)
        if program is None:
            raise refuse(f"template {name!r} not defined")
        if frame.depth >= MAX_DEPTH:
            raise RenderError("templates call each other too deeply")
        data = INVALID if evaluate is None else evaluate(frame, dot)
        inner = Frame(program.size, data, budget=frame.budget, today=frame.today, depth=frame.depth + 1)
        inner.out = frame.out
        program.body(inner, data)

    return call


_NODES: Final[Mapping[type, Callable[..., Step]]] = {
    nodes.Text: _text,
    nodes.Action: _action,
    nodes.If: _if,
    nodes.With: _with,
    nodes.Range: _range,
    nodes.Break: lambda _node, _scope, _programs: lambda _frame, _dot: Leave.BREAK,
    nodes.Continue: lambda _node, _scope, _programs: lambda _frame, _dot: Leave.CONTINUE,
    nodes.Call: _call,
}
