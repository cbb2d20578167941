"""The tree of a parsed template (Go's `text/template/parse/node.go`)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ollama_gate.counting.rendering.gotemplate.values import GoValue

# --- operands: what a command is made of


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: text, a number, true or false."""

    value: GoValue


@dataclass(frozen=True, slots=True)
class NilLiteral:
    """The word nil."""


@dataclass(frozen=True, slots=True)
class Dot:
    """The cursor."""


@dataclass(frozen=True, slots=True)
class Field:
    """`.A.B`: fields of the cursor."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x.A.B`: a variable and fields of it."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """`(…).A.B`: fields of a parenthesised pipeline or of a function's result."""

    operand: "Operand"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """Operands side by side: the first one is called with the others when it is a function."""

    operands: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by `|`, and the variables that receive the result."""

    commands: tuple[Command, ...]
    variables: tuple[str, ...] = ()
    assigns: bool = False
    """`=` rather than `:=`."""


Operand = Constant | NilLiteral | Dot | Field | Variable | Function | Chain | Pipeline

# --- nodes: what a body is made of


@dataclass(frozen=True, slots=True)
class Text:
    """Text between actions."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipeline whose value is printed, unless it goes to a variable."""

    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class If:
    """`{{ if }}`."""

    pipeline: Pipeline
    body: "Body"
    otherwise: "Body | None"


@dataclass(frozen=True, slots=True)
class With:
    """`{{ with }}`: the cursor moves to the value."""

    pipeline: Pipeline
    body: "Body"
    otherwise: "Body | None"


@dataclass(frozen=True, slots=True)
class Range:
    """`{{ range }}`."""

    pipeline: Pipeline
    body: "Body"
    otherwise: "Body | None"


@dataclass(frozen=True, slots=True)
class Break:
    """`{{ break }}`."""


@dataclass(frozen=True, slots=True)
class Continue:
    """`{{ continue }}`."""


@dataclass(frozen=True, slots=True)
class Call:
    """`{{ template "name" pipeline }}`."""

    name: str
    pipeline: Pipeline | None


Branch = If | With | Range
Node = Text | Action | If | With | Range | Break | Continue | Call
Body = tuple[Node, ...]
Definitions = Mapping[str, Body]
"""Every template by its name; the main one is the empty name."""
