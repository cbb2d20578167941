"""Operands and pipelines, compiled to Python closures (`text/template/exec.go`, Go 1.26: `evalPipeline` and below).

A template is parsed once and rendered many times, so everything that the tree alone decides is decided here: which
function is meant, which parameter an argument goes to, in which slot a variable lives. What Go would only notice when
it runs (a wrong number of arguments, a variable that is not set) still fails only when it runs.
"""

from collections.abc import Sequence
from typing import Final

from ollama_gate.counting.rendering.gotemplate import nodes
from ollama_gate.counting.rendering.gotemplate.frame import Evaluator, Frame
from ollama_gate.counting.rendering.gotemplate.functions import (
    INTERFACE,
    SHORT_CIRCUIT,
    TEXT,
    GoFunction,
)
from ollama_gate.counting.rendering.gotemplate.scope import Scope
from ollama_gate.counting.rendering.gotemplate.values import (
    INVALID,
    NIL,
    GoValue,
    Kind,
    Typed,
    member,
    refuse,
    truth,
)
from ollama_gate.errors import RenderError


def pipeline(tree: nodes.Pipeline, scope: Scope) -> Evaluator:
    """Compile a pipeline; its variables, if any, are in scope afterwards."""
    first, *rest = tree.commands
    evaluate = _settled(_command(first.operands, scope, None), first)
    for command in rest:
        evaluate = _settled(_command(command.operands, scope, evaluate), command)
    for name in tree.variables:
        evaluate = _storing(evaluate, name, scope.names.place(name) if tree.assigns else scope.declare(name))
    return evaluate


def _settled(evaluate: Evaluator, command: nodes.Command) -> Evaluator:
    """What leaves a command is never a nil interface: the pipeline digs out the nothing inside."""
    first = command.operands[0]
    if isinstance(first, nodes.Constant | nodes.Pipeline) or (
        isinstance(first, nodes.Function) and first.name not in _MAY_GIVE_NIL
    ):
        return evaluate

    def settled(frame: Frame, dot: GoValue) -> GoValue:
        value = evaluate(frame, dot)
        return INVALID if value is NIL else value

    return settled


_MAY_GIVE_NIL: Final = SHORT_CIRCUIT | {"index", "slice"}


def _storing(evaluate: Evaluator, name: str, slot: int | None) -> Evaluator:
    if slot is None:
        return _failing(f"undefined variable: {name}")

    def store(frame: Frame, dot: GoValue) -> GoValue:
        value = frame.slots[slot] = evaluate(frame, dot)
        return value

    return store


def _failing(message: str) -> Evaluator:
    def fail(_frame: Frame, _dot: GoValue) -> GoValue:
        raise refuse(message)

    return fail


def _command(operands: Sequence[nodes.Operand], scope: Scope, piped: Evaluator | None) -> Evaluator:
    first = operands[0]
    if isinstance(first, nodes.Function):
        return _call(first.name, operands[1:], scope, piped)
    if piped is None and len(operands) == 1:
        return _failing("nil is not a command") if isinstance(first, nodes.NilLiteral) else operand(first, scope)
    if isinstance(first, nodes.Field | nodes.Chain) or (isinstance(first, nodes.Variable) and first.names):
        return _member_with_arguments(first, scope)
    return _failing("can't give argument to non-function")


# --- operands


def operand(tree: nodes.Operand, scope: Scope) -> Evaluator:
    """Compile an operand that is not called with arguments; the literal nil is the invalid value."""
    if isinstance(tree, nodes.Field):
        return _members(_dot, tree.names, scope)
    if isinstance(tree, nodes.Variable):
        return _members(_variable(tree.name, scope), tree.names, scope)
    if isinstance(tree, nodes.Function):
        return _call(tree.name, (), scope, None)
    if isinstance(tree, nodes.Pipeline):
        if tree.variables and not tree.assigns:
            raise RenderError("a variable is declared inside parentheses")
        return pipeline(tree, scope)
    if isinstance(tree, nodes.Chain):
        if isinstance(tree.operand, nodes.NilLiteral):
            return _failing("indirection through explicit nil")
        return _members(operand(tree.operand, scope), tree.names, scope)
    return _dot if isinstance(tree, nodes.Dot) else _constant(tree)


def _dot(_frame: Frame, dot: GoValue) -> GoValue:
    return dot


def _constant(tree: nodes.Constant | nodes.NilLiteral) -> Evaluator:
    value = tree.value if isinstance(tree, nodes.Constant) else INVALID
    return lambda _frame, _dot: value


def _variable(name: str, scope: Scope) -> Evaluator:
    slot = scope.names.place(name)
    if slot is None:
        return _failing(f"undefined variable: {name}")
    return lambda frame, _dot: frame.slots[slot]


def _members(evaluate: Evaluator, names: Sequence[str], scope: Scope) -> Evaluator:
    for name in names:
        evaluate = _member(evaluate, name, missing_is_zero=scope.missing_is_zero)
        if name in _METHODS:
            evaluate = _paid(evaluate)
    return evaluate


_METHODS: Final = frozenset({"String", "ToTypeScriptType", "ToMap", "All"})
"""Names that may be methods which make something of their value's size."""


def _member(evaluate: Evaluator, name: str, *, missing_is_zero: bool) -> Evaluator:
    if evaluate is _dot:
        return lambda _frame, dot: member(dot, name, missing_is_zero=missing_is_zero)
    return lambda frame, dot: member(evaluate(frame, dot), name, missing_is_zero=missing_is_zero)


def _member_with_arguments(tree: nodes.Field | nodes.Variable | nodes.Chain, scope: Scope) -> Evaluator:
    """A field is not called: with arguments it fails, unless there is nothing to have a field."""
    if isinstance(tree, nodes.Field):
        receiver = _members(_dot, tree.names[:-1], scope)
    elif isinstance(tree, nodes.Variable):
        receiver = _members(_variable(tree.name, scope), tree.names[:-1], scope)
    else:
        receiver = _members(operand(tree.operand, scope), tree.names[:-1], scope)

    def fail(frame: Frame, dot: GoValue) -> GoValue:
        if receiver(frame, dot) is INVALID:
            return INVALID
        raise refuse(f"{tree.names[-1]} has arguments but cannot be invoked as function")

    return fail


# --- calls


def _call(name: str, operands: Sequence[nodes.Operand], scope: Scope, piped: Evaluator | None) -> Evaluator:
    if name in SHORT_CIRCUIT:
        return _short_circuit(name, [operand(tree, scope) for tree in operands], piped)
    function = scope.functions.get(name)
    if function is None:
        return _failing(f"{name!r} is not a defined function")
    fixed, count = function.fixed, len(operands) + (piped is not None)
    if count < len(fixed) or (not function.variadic and count != len(fixed)):
        return _failing(f"wrong number of args for {name}")
    parameters = [*fixed, *[function.variadic] * (count - len(fixed))]
    if name == "len" and piped is None and (short := _length_of_slice(operands[0], scope)) is not None:
        return short
    arguments = [_argument(tree, parameters[i], scope) for i, tree in enumerate(operands)]
    if piped is not None:
        arguments.append(_checked(piped, parameters[-1]))
    return _paid(_applied(function, arguments)) if function.makes_text else _applied(function, arguments)


def _argument(tree: nodes.Operand, parameter: str, scope: Scope) -> Evaluator:
    if isinstance(tree, nodes.NilLiteral):
        return _failing("cannot assign nil to string") if parameter == TEXT else _nil_for(parameter)
    evaluate = operand(tree, scope)
    return evaluate if isinstance(tree, nodes.Constant) and parameter == INTERFACE else _checked(evaluate, parameter)


def _nil_for(parameter: str) -> Evaluator:
    value = NIL if parameter == INTERFACE else INVALID
    return lambda _frame, _dot: value


def _checked(evaluate: Evaluator, parameter: str) -> Evaluator:
    """An argument for a parameter of this type (`text/template/exec.go:validateType`)."""
    if parameter == INTERFACE:

        def interface(frame: Frame, dot: GoValue) -> GoValue:
            value = evaluate(frame, dot)
            return NIL if value is INVALID else value

        return interface
    if parameter == TEXT:

        def text(frame: Frame, dot: GoValue) -> GoValue:
            value = evaluate(frame, dot)
            if not isinstance(value, str):
                raise refuse("wrong type for value; expected string")
            return value

        return text
    return evaluate


def _applied(function: GoFunction, arguments: Sequence[Evaluator]) -> Evaluator:
    apply = function.apply
    if len(arguments) == 1:
        only = arguments[0]
        return lambda frame, dot: apply(frame, only(frame, dot))
    if len(arguments) == 2:
        first, second = arguments
        return lambda frame, dot: apply(frame, first(frame, dot), second(frame, dot))
    return lambda frame, dot: apply(frame, *[argument(frame, dot) for argument in arguments])


def _paid(evaluate: Evaluator) -> Evaluator:
    def paid(frame: Frame, dot: GoValue) -> GoValue:
        value = evaluate(frame, dot)
        if isinstance(value, str):
            frame.budget.make(len(value))
        elif isinstance(value, Typed):
            frame.budget.work(len(value.data or ()))
        return value

    return paid


def _short_circuit(name: str, arguments: Sequence[Evaluator], piped: Evaluator | None) -> Evaluator:
    """`and` and `or`: the first operand that settles it, else the last one."""
    wanted = name == "or"
    if not arguments:
        return _failing(f"wrong number of args for {name}") if piped is None else piped

    def settle(frame: Frame, dot: GoValue) -> GoValue:
        last = None if piped is None else piped(frame, dot)
        value: GoValue = INVALID
        for argument in arguments:
            value = argument(frame, dot)
            if truth(value) is wanted:
                return value
        return value if last is None else last

    return settle


def _length_of_slice(tree: nodes.Operand, scope: Scope) -> Evaluator | None:
    """`len (slice $.Messages $i)`, with which half of all templates look for the last message, without the slice."""
    if not isinstance(tree, nodes.Pipeline) or tree.variables or len(tree.commands) != 1:
        return None
    operands = tree.commands[0].operands
    if len(operands) != 3 or operands[0] != nodes.Function("slice"):
        return None
    whole, start = operand(operands[1], scope), operand(operands[2], scope)
    length, slice_ = scope.functions["len"].apply, scope.functions["slice"].apply

    def count(frame: Frame, dot: GoValue) -> GoValue:
        value, first = whole(frame, dot), start(frame, dot)
        if isinstance(value, Typed) and value.type.kind is Kind.SLICE and value.data and type(first) is int:
            size = len(value.data)
            if 0 <= first <= size:
                return size - first
        return length(frame, slice_(frame, value, first))

    return count
