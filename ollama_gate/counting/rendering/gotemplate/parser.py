"""Tokens to a tree, as Go's `text/template/parse/parse.go` (Go 1.26) does it.

Names of functions and variables are checked here, as Go does; what a variable holds is looked up when it runs.
"""

from collections.abc import Sequence
from typing import Final, Literal

from ollama_gate.counting.normalise import GO_SPACE
from ollama_gate.counting.rendering.gotemplate import nodes
from ollama_gate.counting.rendering.gotemplate.lexer import END, Token, tokens
from ollama_gate.counting.rendering.gotemplate.limits import MAX_NESTING
from ollama_gate.counting.rendering.gotemplate.literals import character, number, unquote
from ollama_gate.counting.rendering.gotemplate.scope import Names
from ollama_gate.counting.rendering.gotemplate.values import refuse
from ollama_gate.errors import RenderError

_Stop = Literal["end", "else"]
_OPERANDS: Final = frozenset({"bool", "char", "dot", "field", "name", "number", "nil", "string", "variable", "("})
_BRANCHES: Final[dict[str, type[nodes.If] | type[nodes.With] | type[nodes.Range]]] = {
    "if": nodes.If,
    "with": nodes.With,
    "range": nodes.Range,
}


def parse(source: str, functions: frozenset[str]) -> dict[str, nodes.Body]:
    """Parse a template and those it defines; the main one has the empty name.

    Raises:
        TemplateRefused: Go refuses it.
        RenderError: it is nested more deeply than is allowed, or holds what is not known here.
    """
    return _Parser(tokens(source), functions).run()


class _Parser:
    """One run over the tokens of a source."""

    def __init__(self, stream: Sequence[Token], functions: frozenset[str]) -> None:
        self.stream = stream
        self.position = 0
        self.functions = functions
        self.definitions: dict[str, nodes.Body] = {}
        self.variables = Names()
        """Names that Go's parser knows at this point; they go out of scope with their block."""
        self.ranges = 0
        self.depth = 0

    def run(self) -> dict[str, nodes.Body]:
        body: list[nodes.Node] = []
        while self.peek().kind != "end of input":
            if self.at_definition():
                name = unquote(self.expect("string", "define").text)
                self.expect("close", "define")
                self.definition(name)
                continue
            node = self.node()
            if isinstance(node, str):
                raise refuse(f"unexpected {{{{{node}}}}}")
            body.append(node)
        self.define("", tuple(body))
        return self.definitions

    # --- tokens

    def peek(self) -> Token:
        """The next token that is not space."""
        while self.stream[self.position].kind == "space":
            self.position += 1
        return self.stream[self.position]

    def next(self) -> Token:
        token = self.peek()
        if token is not END:
            self.position += 1
        return token

    def expect(self, kind: str, context: str) -> Token:
        token = self.next()
        if token.kind != kind:
            raise refuse(f"unexpected {token.text or token.kind} in {context}")
        return token

    def at_definition(self) -> bool:
        """Consume `{{ define` if that is what comes."""
        if self.stream[self.position].kind != "open":
            return False
        start = self.position
        self.position += 1
        if self.next().kind == "define":
            return True
        self.position = start
        return False

    # --- bodies

    def define(self, name: str, body: nodes.Body) -> None:
        """Keep a template; only an empty one may be defined twice."""
        old = self.definitions.get(name)
        if old is None or _is_empty(old):
            self.definitions[name] = body
        elif not _is_empty(body):
            raise refuse(f"multiple definition of template {name!r}")

    def definition(self, name: str) -> None:
        """The rest of a `define` or `block`, which sees no variables and no loop of its surroundings."""
        variables, ranges, self.variables, self.ranges = self.variables, self.ranges, Names(), 0
        self.enter()
        body, stop = self.body()
        self.depth -= 1
        if stop != "end":
            raise refuse("unexpected {{else}} in a definition")
        self.variables, self.ranges = variables, ranges
        self.define(name, body)

    def body(self) -> tuple[nodes.Body, _Stop]:
        """Nodes up to `{{ end }}` or `{{ else }}`, and which of them it was."""
        out: list[nodes.Node] = []
        while self.peek().kind != "end of input":
            node = self.node()
            if isinstance(node, str):
                return tuple(out), node
            out.append(node)
        raise refuse("unexpected EOF")

    def node(self) -> nodes.Node | _Stop:
        """Text or an action."""
        token = self.next()
        if token.kind == "text":
            return nodes.Text(token.text)
        if token.kind != "open":
            raise refuse(f"unexpected {token.kind}")
        kind = self.peek().kind
        if kind in _BRANCHES:
            self.position += 1
            return self.branch(kind)
        if kind == "else":
            self.position += 1
            if self.peek().kind not in {"if", "with"}:
                self.expect("close", "else")
            return "else"
        if kind == "end":
            self.position += 1
            self.expect("close", "end")
            return "end"
        if kind in {"break", "continue"}:
            self.position += 1
            self.expect("close", kind)
            if not self.ranges:
                raise refuse(f"{{{{{kind}}}}} outside {{{{range}}}}")
            return nodes.Break() if kind == "break" else nodes.Continue()
        if kind in {"template", "block"}:
            self.position += 1
            return self.call(kind)
        return nodes.Action(self.pipeline("command", "close"))

    def branch(self, kind: str) -> nodes.Branch:
        self.enter()
        mark = len(self.variables)
        pipeline = self.pipeline(kind, "close")
        self.ranges += kind == "range"
        body, stop = self.body()
        self.ranges -= kind == "range"
        otherwise: nodes.Body | None = None
        if stop == "else":
            if kind != "range" and self.stream[self.position].kind == kind:  # `else if`, `else with`: one end for both
                self.position += 1
                otherwise = (self.branch(kind),)
            else:
                otherwise, stop = self.body()
                if stop != "end":
                    raise refuse("expected end; found {{else}}")
        self.variables.drop(mark)
        self.depth -= 1
        return _BRANCHES[kind](pipeline, body, otherwise)

    def call(self, kind: str) -> nodes.Call:
        name = unquote(self.expect("string", kind).text)
        if kind == "block":
            pipeline = self.pipeline("block", "close")
            self.definition(name)
            return nodes.Call(name, pipeline)
        if self.peek().kind == "close":
            self.position += 1
            return nodes.Call(name, None)
        return nodes.Call(name, self.pipeline("template", "close"))

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise RenderError("the template is nested too deeply")

    # --- pipelines

    def pipeline(self, context: str, end: str) -> nodes.Pipeline:
        variables, assigns = self.receivers(context)
        commands: list[nodes.Command] = []
        while (token := self.next()).kind != end:
            if token.kind not in _OPERANDS:
                raise refuse(f"unexpected {token.text or token.kind} in {context}")
            self.position -= 1
            commands.append(self.command())
        if not commands:
            raise refuse(f"missing value for {context}")
        for command in commands[1:]:
            if isinstance(command.operands[0], nodes.Constant | nodes.Dot | nodes.NilLiteral):
                raise refuse("non executable command in pipeline")
        return nodes.Pipeline(tuple(commands), variables, assigns)

    def receivers(self, context: str) -> tuple[tuple[str, ...], bool]:
        """`$x :=`, `$x =` or, for range, `$i, $x :=` before the commands."""
        names: list[str] = []
        while self.peek().kind == "variable":
            start = self.position
            name = self.next().text
            mark = self.next()
            if name == "$" and mark.kind in {"=", ":="}:
                raise RenderError("the template gives $ another value")
            if mark.kind in {"=", ":="}:
                self.variables.push(name)
                return (*names, name), mark.kind == "="
            if mark != ("other", ","):
                self.position = start
                break
            self.variables.push(name)
            names.append(name)
            if context != "range" or len(names) > 1:
                raise refuse(f"too many declarations in {context}")
            if self.peek().kind not in {"variable", "close", ")"}:
                raise refuse("range can only initialize variables")
        return tuple(names), False

    def command(self) -> nodes.Command:
        operands: list[nodes.Operand] = []
        while True:
            self.peek()
            operand = self.operand()
            if operand is not None:
                operands.append(operand)
            kind = self.stream[self.position].kind
            if kind == "space":
                continue
            if kind == "|":
                self.position += 1
            elif kind not in {"close", ")"}:
                raise refuse(f"unexpected {kind} in operand")
            if not operands:
                raise refuse("empty command")
            return nodes.Command(tuple(operands))

    def operand(self) -> nodes.Operand | None:
        """A term and the fields that follow it without a space."""
        term = self.term()
        if term is None:
            return None
        names: list[str] = []
        while self.stream[self.position].kind == "field":
            names.append(self.stream[self.position].text)
            self.position += 1
        if not names:
            return term
        if isinstance(term, nodes.Field):
            return nodes.Field((*term.names, *names))
        if isinstance(term, nodes.Variable):
            return nodes.Variable(term.name, tuple(names))
        if isinstance(term, nodes.Constant | nodes.NilLiteral | nodes.Dot):
            raise refuse("unexpected . after a term")
        return nodes.Chain(term, tuple(names))

    def term(self) -> nodes.Operand | None:
        token = self.stream[self.position]
        if token.kind not in _OPERANDS:
            return None
        self.position += 1
        kind, text = token
        if kind == "field":
            return nodes.Field((text,))
        if kind == "variable":
            if text not in self.variables:
                raise refuse(f"undefined variable {text!r}")
            return nodes.Variable(text)
        if kind == "name":
            if text not in self.functions:
                raise refuse(f"function {text!r} not defined")
            return nodes.Function(text)
        if kind == "(":
            self.enter()
            pipeline = self.pipeline("parenthesized pipeline", ")")
            self.depth -= 1
            return pipeline
        return _literal(kind, text)


def _literal(kind: str, text: str) -> nodes.Operand:
    if kind == "string":
        return nodes.Constant(unquote(text))
    if kind == "number":
        return nodes.Constant(number(text))
    if kind == "bool":
        return nodes.Constant(text == "true")
    if kind == "char":
        return nodes.Constant(character(text))
    return nodes.Dot() if kind == "dot" else nodes.NilLiteral()


def _is_empty(body: nodes.Body) -> bool:
    return all(isinstance(node, nodes.Text) and not node.text.strip(GO_SPACE) for node in body)
