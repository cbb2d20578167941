"""What Ollama reads off a template's tree: the names it mentions, and the part before its first `.Response`.

Source: `template/template.go` (`Identifiers`, `Vars`, `deleteNode`), Ollama v0.33.
"""

from collections.abc import Iterator
from dataclasses import replace

from ollama_gate.counting.rendering.gotemplate import nodes
from ollama_gate.counting.rendering.gotemplate.values import refuse


def identifiers(definitions: nodes.Definitions) -> frozenset[str]:
    """The names by which Ollama decides how to run a template, in lower case.

    Raises:
        TemplateRefused: a `{{ template }}` has no argument, which makes the whole template invalid.
    """
    return frozenset(name.lower() for body in definitions.values() for name in _body_names(body))


def mentions(definitions: nodes.Definitions) -> frozenset[str]:
    """Every name of a field, variable or function in a template, in lower case."""
    found: set[str] = set()
    for body in definitions.values():
        for pipeline in _pipelines(body):
            for command in pipeline.commands:
                for operand in command.operands:
                    found.update(name.lower() for name in _all_names(operand))
    return frozenset(found)


def before_response(body: nodes.Body) -> nodes.Body:
    """The template up to its first `.Response`, itself included: what opens the assistant's turn.

    Raises:
        TemplateRefused: where Ollama panics over a `.Response` in a branch that has an else.
    """
    return _Cut().body(body)


def _body_names(body: nodes.Body) -> Iterator[str]:
    for node in body:
        if isinstance(node, nodes.Action | nodes.If | nodes.With | nodes.Range):
            yield from _names(node.pipeline)
        if isinstance(node, nodes.If | nodes.With | nodes.Range):
            yield from _body_names(node.body)
            yield from _body_names(node.otherwise or ())
        elif isinstance(node, nodes.Call):
            if node.pipeline is None:
                raise refuse("undefined template specified")
            yield from _names(node.pipeline)


def _names(pipeline: nodes.Pipeline) -> Iterator[str]:
    """Names in a pipeline as Ollama walks it: not into the fields of a parenthesis."""
    for command in pipeline.commands:
        for operand in command.operands:
            if isinstance(operand, nodes.Field):
                yield from operand.names
            elif isinstance(operand, nodes.Variable):
                yield operand.name
                yield from operand.names
            elif isinstance(operand, nodes.Pipeline):
                yield from _names(operand)


def _pipelines(body: nodes.Body) -> Iterator[nodes.Pipeline]:
    for node in body:
        if not isinstance(node, nodes.Text | nodes.Break | nodes.Continue) and node.pipeline is not None:
            yield node.pipeline
        if isinstance(node, nodes.If | nodes.With | nodes.Range):
            yield from _pipelines(node.body)
            yield from _pipelines(node.otherwise or ())


def _all_names(operand: nodes.Operand) -> Iterator[str]:
    if isinstance(operand, nodes.Field | nodes.Variable):
        yield from operand.names
    elif isinstance(operand, nodes.Function):
        yield operand.name
    elif isinstance(operand, nodes.Chain):
        yield from operand.names
        yield from _all_names(operand.operand)
    elif isinstance(operand, nodes.Pipeline):
        for command in operand.commands:
            for inner in command.operands:
                yield from _all_names(inner)


class _Cut:
    """One cut. After the first `.Response` every node goes, in whatever block; conditions are left alone."""

    def __init__(self) -> None:
        self.done = False

    def body(self, body: nodes.Body) -> nodes.Body:
        out: list[nodes.Node] = []
        for node in body:
            if self.done:
                break
            kept = self.node(node)
            if kept is not None:
                out.append(kept)
        return tuple(out)

    def node(self, node: nodes.Node) -> nodes.Node | None:
        if isinstance(node, nodes.Action):
            pipeline = self.pipeline(node.pipeline)
            return None if pipeline is None else nodes.Action(pipeline)
        if not isinstance(node, nodes.If | nodes.With | nodes.Range):
            return node
        body, otherwise = self.body(node.body), node.otherwise
        if otherwise is not None:
            if self.done:
                raise refuse("a .Response in a branch that has an else")
            otherwise = self.body(otherwise)
        return replace(node, body=body, otherwise=otherwise)

    def pipeline(self, pipeline: nodes.Pipeline) -> nodes.Pipeline | None:
        commands: list[nodes.Command] = []
        for command in pipeline.commands:
            operands = [kept for operand in command.operands if (kept := self.operand(operand)) is not None]
            if not operands:
                return None
            commands.append(nodes.Command(tuple(operands)))
        return replace(pipeline, commands=tuple(commands))

    def operand(self, operand: nodes.Operand) -> nodes.Operand | None:
        if isinstance(operand, nodes.Field) and "Response" in operand.names:
            self.done = True
            return operand  # kept even after the cut, in the command where it happened
        if self.done:
            return None
        return self.pipeline(operand) if isinstance(operand, nodes.Pipeline) else operand
